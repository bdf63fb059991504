"""What PTX says of memory, atomics and order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ...compiled_checks.places import Key
from ...compiled_checks.ptx import Instruction, Ptx
from ...runtime.wait_layout import MARKER
from .report import Ordered

SEMANTICS = ("relaxed", "acquire", "release", "acq_rel", "volatile")
SCOPES = ("cta", "cluster", "gpu", "sys")
_UPDATES = ("add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec")
_MNEMONIC = re.compile(r"(?:@!?\S+\s+)?([a-z][\w.:]*)")
_BULK = (
    ("reduce", re.compile(r"cp\.reduce\.async\.bulk")),
    ("load", re.compile(r"cp\.async\.bulk\.(?!prefetch)\S*shared::\w+\.global")),
    ("store", re.compile(r"cp\.async\.bulk\.\S*global\.shared::\w+")),
)
_BEGIN, _END = "// begin inline asm", "// end inline asm"


def mnemonic(instruction: Instruction) -> str:
    """The operation with its modifiers, without predicate and operands."""
    found = _MNEMONIC.match(instruction.text)
    return found[1] if found else ""


def lines_of_waits(text: str) -> dict[int, int]:
    """Of each line in the assembly of one of this package's waits, the line in which that begins."""
    lines = text.splitlines()
    found: dict[int, int] = {}
    begin = 0
    for number, line in enumerate(lines, 1):
        if line.strip() == _BEGIN:
            begin = number
        elif line.strip() == _END:
            if any(MARKER in inner for inner in lines[begin - 1 : number]):
                found |= dict.fromkeys(range(begin, number + 1), begin)
            begin = 0
    return found


def outside_waits(ptx: Ptx, text: str) -> list[Instruction]:
    """All instructions but those of waits, whose slow path alone is twenty."""
    inside = lines_of_waits(text)
    return [one for one in ptx.instructions() if one.number not in inside]


def order_of(name: str) -> tuple[str, str] | None:
    """Semantic and scope of an atomic, or of a load or store that has them; None for others. What is not written is PTX's default."""
    parts = name.split(".")
    if parts[0] not in ("ld", "st", "atom", "red") or "shared" in name or "param" in parts or "nc" in parts:
        return None
    semantic = next((part for part in parts if part in SEMANTICS), None)
    if semantic is None and parts[0] in ("ld", "st"):
        return None
    return semantic or "relaxed", next((part for part in parts if part in SCOPES), "sys" if semantic == "volatile" else "gpu")


def ordered_instructions(instructions: Iterable[Instruction], ways: Mapping[Key, str]) -> tuple[Ordered, ...]:
    """Atomics, and loads and stores with an order. ways: to other ranks' memory, by key, see ``RemoteAccess.way``."""
    found: Counter[tuple[str, str, str, str, str]] = Counter()
    for one in instructions:
        name = mnemonic(one)
        order = order_of(name)
        if order is None:
            continue
        parts = name.split(".")
        update = next((part for part in parts if part in _UPDATES), "")
        found[f"{parts[0]}.{update}" if update else parts[0], parts[-1], *order, ways.get(one.key, "")] += 1
    return tuple(Ordered(*what, count=count) for what, count in sorted(found.items()))


def fences(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Fences by their text."""
    names = (mnemonic(one) for one in instructions)
    return dict(sorted(Counter(name for name in names if name.startswith(("fence.", "membar."))).items()))


def block_barriers(instructions: Iterable[Instruction]) -> int:
    """Barriers of the whole block or of some of its warps."""
    return sum(mnemonic(one).startswith(("bar.sync", "barrier.sync", "barrier.cta.sync")) for one in instructions)


def bulk_copies(instructions: Iterable[Instruction]) -> dict[str, int]:
    """TMA copies by direction."""
    counts = {name: 0 for name, _ in _BULK}
    for one in instructions:
        for name, pattern in _BULK:
            if pattern.search(one.text):
                counts[name] += 1
                break
    return {name: count for name, count in counts.items() if count}


def waits(ptx: Ptx, text: str) -> Iterator[tuple[Instruction, str, str, int]]:
    """Of each of this package's waits the first instruction that reads the word, its semantic and scope, and the bits of the word."""
    inside = lines_of_waits(text)
    seen: set[int] = set()
    for one in ptx.instructions():
        begin = inside.get(one.number)
        name = mnemonic(one)
        if begin is None or begin in seen or not name.startswith("ld."):
            continue
        order = order_of(name)
        if order is not None:
            seen.add(begin)
            yield one, *order, int(re.sub(r"\D", "", name.split(".")[-1]) or 0)
