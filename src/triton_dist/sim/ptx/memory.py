"""Loads and stores of global and of shared memory: ld, st; and what only hints at the cache."""

from __future__ import annotations

import numpy as np

from ..check.order import Order
from .form import Form, Read, Step, contents, opcode, writer
from .frame import Frame
from .order import order_of
from .places import Access, spread
from .shared import checked_places, load_shared, shared_address, store_shared
from .syntax import Address, Instruction, Operand, Register, Variable, Vector
from .types import B128, PtxType

_HINTS = ("L1::", "L2::", "level::", "ca", "cg", "cs", "lu", "cv", "wb", "wt")
"""Cache operators and eviction priorities: nothing that a simulated memory could follow."""

_COUNTS = {"v2": 2, "v4": 4, "v8": 8}

SHARED_SPACES = ("shared", "shared::cta", "shared::cluster")
"""A cluster is one block."""

_OTHER_SPACES = ("local", "const", "param", "param::entry", "param::func")


def address(instruction: Instruction, operand: Operand) -> Read:
    """Addresses that an operand ``[a + b]`` stands for."""
    if not isinstance(operand, Address):
        raise instruction.wrong("an address, in brackets, is taken here")
    offset = np.int64(operand.offset)
    if isinstance(operand.base, Variable):
        raise instruction.wrong(f"{operand.base.name} is in shared memory, and .shared is not there")
    if operand.base.width != 64:
        raise instruction.wrong(f"{operand.base.name} has {operand.base.width} bits, but a global address has 64")
    read = contents(instruction, operand.base, 64)
    return lambda frame: read(frame).view(np.int64) + offset


def is_shared(form: Form) -> bool:
    """Whether an access is of shared memory, else it is of global memory; a generic address is one of that."""
    for space in _OTHER_SPACES:
        if space in form.left:
            raise form.instruction.unsupported(f"the memory .{space} is not simulated, only global and shared memory are")
    shared = [space for space in SHARED_SPACES if form.flag(space)]
    if shared and form.flag("global"):
        raise form.instruction.wrong(f"an access is of .global or of .{shared[0]} memory")
    form.flag("global")
    return bool(shared)


def global_space(form: Form) -> None:
    """For what takes global memory only."""
    if is_shared(form):
        raise form.instruction.unsupported("it takes global memory here, not shared memory")


def vector(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    """The registers of an access of ``count`` elements."""
    if count == 1:
        return operand.items if isinstance(operand, Vector) and len(operand.items) == 1 else (operand,)
    if not isinstance(operand, Vector) or len(operand.items) != count:
        raise instruction.wrong(f"it takes {count} registers in braces")
    return operand.items


def halves(kind: PtxType) -> tuple[int, int]:
    """(bytes of a piece, pieces) that one element is moved in: 128 bits are two words."""
    return (8, 2) if kind is B128 else (kind.bits // 8, 1)


def _parse(instruction: Instruction, semantics: tuple[str, ...]) -> tuple[PtxType, int, Order | None, bool]:
    form = Form(instruction)
    order = order_of(form, semantics, None)
    shared = is_shared(form)
    form.flag("nc")
    count = _COUNTS[form.one_of(_COUNTS)] if any(word in form.left for word in _COUNTS) else 1
    kind = form.type()
    hinted = form.flag("L2::cache_hint")
    form.left = [word for word in form.left if word not in _HINTS and not word.startswith(("L1::", "L2::", "level::"))]
    form.done((2, 3) if hinted else 2)
    if kind.kind == "pred":
        raise instruction.wrong("predicates are not loaded or stored")
    if (kind.count > 1 and kind is not B128) or kind.name in ("f16", "bf16"):
        raise instruction.wrong(f".{kind.name} is no type of a load or store; use .b{kind.bits}")
    if kind.bits * count > 256:
        raise instruction.wrong(f"{kind.bits * count} bits are more than one access moves (128, or 256 from sm_100 on)")
    return kind, count, order, shared


@opcode("ld", "ldu")
def _load(instruction: Instruction) -> Step:
    kind, count, order, shared = _parse(instruction, ("relaxed", "acquire"))
    read = (shared_address if shared else address)(instruction, instruction.operands[1])
    targets = vector(instruction, instruction.operands[0], count)
    writes = [writer(instruction, target, kind, wider=kind is not B128) for target in targets]
    size, pieces = halves(kind)

    def look(frame, lanes) -> np.ndarray:
        access = Access(frame, read(frame), lanes, size, count * pieces, order, "ld")
        access.check()
        if id(instruction) not in frame.waits:
            access.report()
        note_poll(frame, instruction, access)
        return spread(access.read(), access, frame.lanes)

    def look_into_shared(frame, lanes) -> np.ndarray:
        places = checked_places(frame, read(frame), lanes, size, count * pieces, "ld")
        values = np.zeros((frame.lanes, count * pieces), f"u{size}")
        values[lanes] = load_shared(frame, places, lanes, size, order is None)
        return values

    def run(frame, mask) -> None:
        values = (look_into_shared if shared else look)(frame, frame.chosen(mask))
        for number, write in enumerate(writes):
            write(frame, values[:, 2 * number : 2 * number + 2] if pieces == 2 else values[:, number], mask)

    # In shared memory threads find what others of the block have stored, at addresses that may be the same for all.
    return Step(run, shared, touches=True, yields_before=order is not None, orders=order is not None and order.acquire)


def note_poll(frame: Frame, instruction: Instruction, access: Access) -> None:
    """Remember which words an instruction read last: it may be what a loop polls."""
    frame.polled[id(instruction)] = access


def rows(frame: Frame, reads: list[Read], lanes: np.ndarray) -> np.ndarray:
    """What lanes store: a row for each lane, or one if all store the same; a column for each piece."""
    values = [read(frame) for read in reads]
    columns = [value if value.ndim > 1 else value[:, None] for value in values]
    height = max(column.shape[0] for column in columns)
    joined = np.concatenate([np.broadcast_to(column, (height, column.shape[1])) for column in columns], axis=1)
    return joined[lanes] if height > 1 else joined


@opcode("st")
def _store(instruction: Instruction) -> Step:
    kind, count, order, shared = _parse(instruction, ("relaxed", "release"))
    read = (shared_address if shared else address)(instruction, instruction.operands[0])
    sources = vector(instruction, instruction.operands[1], count)
    reads = [contents(instruction, source, kind.bits, kind.constants, wider=True) for source in sources]
    size, pieces = halves(kind)

    def run(frame, mask) -> None:
        lanes = frame.chosen(mask)
        if shared:
            places = checked_places(frame, read(frame), lanes, size, count * pieces, "st")
            store_shared(frame, places, lanes, rows(frame, reads, lanes), order is None)
            return
        access = Access(frame, read(frame), lanes, size, count * pieces, order, "st")
        access.check()
        access.report()
        access.store(rows(frame, reads, lanes))

    return Step(run, touches=True, yields_after=order is not None, orders=order is not None and order.release)


@opcode("prefetch", "prefetchu", "applypriority", "discard")
def _hint(instruction: Instruction) -> Step:
    if instruction.opcode == "discard":
        raise instruction.unsupported("it leaves memory without a content")
    for operand in instruction.operands:
        if isinstance(operand, Address) and not isinstance(operand.base, Register):
            raise instruction.wrong("an address is taken here")
    return Step(lambda frame, mask: None)
