"""TD201 and TD203: loads that the compiler moved before the wait that guards them, or into warps that do not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..lints import Finding
from ..sim.ir import Operation
from .guarded import Source
from .operations import chain_of, is_load, key_of_op, operations, shown, waits_in
from .places import PTX_FRAMES, Frame, Key
from .ptx import Instruction, Ptx, reached_before
from .traces import Kind, Tracer, Warps, load_before_wait, partition_operations, waits_before_loads, warps_of


@dataclass(frozen=True)
class Pair:
    """A wait and a load that it guards, by key. needed: waits that come before the load's k-th time, see ``traces``."""

    wait: Key
    load: Key
    needed: list[int]


def guarded_pairs(source: Source) -> list[Pair]:
    """All waits of the source with the loads that come after them and that they may be for."""
    pairs = []
    for wait in source.waits:
        for load in source.loads:
            if source.may_guard(wait, load):
                needed = waits_before_loads(Tracer(source.tree, _kind(wait, load, source.tree)).traces(Warps()))
                if any(needed):
                    pairs.append(Pair(wait, load, needed))
    return pairs


def check_order(source: Source, pairs: list[Pair], ttgir: Operation, ptx: Ptx, arch: int) -> Iterator[Finding]:
    """Compare the order of every wait and every load that it guards in the source with that in the GPU IR and in the PTX."""
    all_compiled = list(operations(ttgir))
    groups = warps_of(ttgir, all_compiled)
    loads = [op for op in all_compiled if is_load(op)]
    present = {key_of_op(op) for op in loads}
    others = _other_names(source, loads)
    for pair in pairs:
        where = _Where(shown(chain_of(source.loads[pair.load])), shown(source.waits[pair.wait].chain), arch)
        kind = _kind(pair.wait, pair.load, ttgir, others.get(pair.load))
        tracer = Tracer(ttgir, kind)
        traces = {group: tracer.traces(group) for group in groups}
        found = list(_moved(pair.needed, traces, kind, where))
        if not found and pair.load not in present and pair.load not in others:
            found = list(_merged(source, pair, present, where))
        if not found:
            in_order = not any(load_before_wait(one) for one in traces.values())
            copies = len(_waits_with(pair.wait, ttgir)) if in_order else -1
            found = list(_moved_in_ptx(ptx, source, ttgir, pair, copies, where))
        yield from found


class _Where:
    def __init__(self, load: Frame, wait: Frame, arch: int) -> None:
        self.load, self.wait, self.arch = load, wait, arch

    def finding(self, code: str, text: str) -> Finding:
        return Finding(code, text, self.load.file or self.wait.file or None, self.load.line or self.wait.line or None)


def _waits_with(key: Key, tree: Operation) -> list[Operation]:
    return [wait.whole for wait in waits_in(tree) if wait.chain.key == key]


def _other_names(source: Source, loads: list[Operation]) -> dict[Key, Key]:
    """For loads of the source that the GPU IR has not: the key of one at the same line that the source has not.

    A pass that takes a load and what turns its tile together gives it the place of the latter.
    """
    names = {key_of_op(op) for op in loads}
    strange = names - set(source.loads) - {()}
    others: dict[Key, Key] = {}
    for key in set(source.loads) - names:
        here = [other for other in strange if other[0][:2] == key[0][:2]]
        alone = sum(1 for one in set(source.loads) - names if one[0][:2] == key[0][:2]) == 1
        if len(here) == 1 and alone:
            others[key] = here[0]
    return others


def _kind(wait_key: Key, load_key: Key, tree: Operation, other: Key | None = None) -> Kind:
    """other: another key that the load may have."""
    waits = {id(op) for op in _waits_with(wait_key, tree)}

    def kind(op: Operation) -> str | None:
        if id(op) in waits:
            return "wait"
        return "load" if is_load(op) and key_of_op(op) in (load_key, other) else None

    return kind


def _moved(needed: list[int], traces: dict[Warps, list], kind: Kind, where: _Where) -> Iterator[Finding]:
    behind = f"{where.wait.file}:{where.wait.line}"
    for group, ways in traces.items():
        least = waits_before_loads(ways)
        if all(is_now >= must_be for is_now, must_be in zip(least, needed, strict=False)):
            continue
        if group.region is not None and not any(kind(op) == "wait" for op in partition_operations(group)):
            yield where.finding(
                "TD203",
                f"for sm_{where.arch} {group.name} of the warp-specialised loop loads this with no copy of the wait at {behind}; "
                "give the wait's token to what the load is addressed with (dl.consume_token on the pointer, or on a coordinate of the "
                "descriptor), so that Triton copies the wait to the warps that load",
            )
        else:
            yield where.finding(
                "TD201",
                f"for sm_{where.arch} Triton issues this load before the wait at {behind} that it comes after in the source; "
                "give the wait's token to what the load is addressed with (dl.consume_token), use dl.wait, which ends in a block "
                "barrier, and put it before the loop that is pipelined",
            )
        return


def _merged(source: Source, pair: Pair, present: set[Key], where: _Where) -> Iterator[Finding]:
    """The load is gone because an earlier one of the same address stands for it, and none that comes after as many waits."""
    numbers = Numbers(source.tree)
    value = numbers.of(source.loads[pair.load])
    earlier: list[Operation] = []
    for key, other in source.loads.items():
        if key == pair.load or key not in present or numbers.of(other) != value:
            continue
        before = waits_before_loads(Tracer(source.tree, _kind(pair.wait, key, source.tree)).traces(Warps()))
        if before and before[0] >= pair.needed[0]:
            return
        if before:
            earlier.append(other)
    if earlier:
        first = shown(chain_of(earlier[0]))
        yield where.finding(
            "TD201",
            f"for sm_{where.arch} Triton merged this load with the one of the same address at {first.file}:{first.line}, before the "
            f"wait at {where.wait.file}:{where.wait.line}; wait with dl.wait, which ends in a block barrier, or put tl.debug_barrier() "
            "behind your own",
        )


class Numbers:
    """Value numbering: ops that compute the same from the same have one number."""

    def __init__(self, tree: Operation) -> None:
        self._makers = {result: (op, index) for op in operations(tree) for index, result in enumerate(op.results)}
        self._known: dict[str, object] = {}

    def of(self, load: Operation) -> object:
        """What a load reads, as a number for its operands and attributes."""
        return load.name, repr(sorted(load.attributes.items())), tuple(map(self._value, load.operands))

    def _value(self, name: str) -> object:
        known = self._known.get(name)
        if known is None:
            self._known[name] = name
            op, index = self._makers.get(name, (None, 0))
            pure = op is not None and not op.regions and not is_load(op) and (op.name[:6] == "arith." or op.name in _PURE)
            if op is not None and pure:
                parts = (op.name, index, repr(sorted(op.attributes.items())), tuple(map(self._value, op.operands)))
                self._known[name] = hash((parts, str(op.result_types)))
            known = self._known[name]
        return known


_PURE = frozenset(
    f"tt.{name}"
    for name in ("addptr", "splat", "broadcast", "expand_dims", "make_range", "bitcast", "int_to_ptr", "ptr_to_int", "get_program_id")
)


def _moved_in_ptx(ptx: Ptx, source: Source, ttgir: Operation, pair: Pair, copies: int, where: _Where) -> Iterator[Finding]:
    """What LLVM did. copies: how many waits the GPU IR has, all before the load; -1 if some come behind it.

    If every way to the load passes the wait in the GPU IR, none may lead around it (other warps than the default ones are started by
    messages, which are no ways). If the wait stands in a branch, and LLVM has not multiplied it, no load may come before it.
    """
    wait, load = pair.wait[:PTX_FRAMES], pair.load[:PTX_FRAMES]
    if _same_in_ptx(source, wait) or _same_in_ptx(source, load):
        return
    instructions = list(ptx.instructions())
    begins = _begins(instructions, wait)
    if not begins:
        return
    begin = {id(instruction) for instruction in begins}
    loads = _test(load)
    early: list[Instruction] = []
    specialised = any(op.name == "ttg.warp_specialize" for op in operations(ttgir))
    if not specialised and all_ways_wait(ttgir, _kind(pair.wait, pair.load, ttgir)):
        early = reached_before(ptx, loads, lambda one: id(one) in begin)
    elif len(begins) == copies:
        behind = reached_before(ptx, lambda one: id(one) in begin, lambda one: False, start=loads, forward=True)
        if behind:
            early = [one for one in instructions if loads(one)]
    if early:
        yield where.finding(
            "TD201",
            f"in the PTX for sm_{where.arch} (line {early[0].number}) this load is issued before the wait at "
            f"{where.wait.file}:{where.wait.line} that it comes after in the source; use dl.wait and give its token to what the load is "
            "addressed with (dl.consume_token)",
        )


def _test(load: Key) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.is_load and instruction.key == load


def _same_in_ptx(source: Source, key: Key) -> bool:
    """Whether PTX does not tell the op from another one of the source."""
    return sum(1 for other in (*source.waits, *source.loads) if other[:PTX_FRAMES] == key) > 1


def _begins(instructions: list[Instruction], wait: Key) -> list[Instruction]:
    """The first instruction of each copy of a wait."""
    marked = [one for one in instructions if one.marks_wait and one.key == wait]
    if marked:
        return marked
    return [one for one in instructions if one.key == wait and ("acquire" in one.text or "acq_rel" in one.text or "volatile" in one.text)]


def all_ways_wait(tree: Operation, kind: Kind) -> bool:
    """Whether in structured IR every way to the load passes the wait."""
    good = True

    def visit(op: Operation, waited: bool) -> bool:
        nonlocal good
        what = kind(op)
        if what == "wait":
            return True
        if what == "load" and not waited:
            good = False
        if not op.regions:
            return waited
        ends = [region_end(region, waited) for region in op.regions]
        if op.name == "scf.if":
            return waited or len(ends) == 2 and all(ends)
        if op.name == "scf.while":
            region_end(op.regions[1], ends[0])
            return ends[0]
        return waited if op.name == "scf.for" else ends[0]

    def region_end(region: list, waited: bool) -> bool:
        several = len(region) > 1
        for block in region:
            state = waited
            for op in block.operations:
                state = visit(op, state)
            # With jumps between blocks what one block waits for says nothing of the others.
            waited = waited if several else state
        return waited

    visit(tree, False)
    return good
