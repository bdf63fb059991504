"""Instructions that move, choose and compare: mov, cvta, isspacep, selp, slct, setp, set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import SimulationError
from ..ops import arith
from .form import Form, Run, contents, numbers, opcode, predicate, pure, writer
from .syntax import Discard, Instruction, Pair, Special, Vector
from .types import B128, TYPES, PtxType


@opcode("mov")
@pure
def _move(instruction: Instruction) -> Run:
    form = Form(instruction)
    parts = next((count for name, count in (("v2", 2), ("v4", 4)) if form.flag(name)), 0)
    kind = form.type()
    form.done(2)
    target, source = instruction.operands
    if parts:
        return _each(instruction, kind, target, source, parts)
    if isinstance(source, Vector):
        return _joined(instruction, kind, source, target)
    if isinstance(target, Vector):
        return _parted(instruction, kind, target, source)
    read = contents(instruction, source, kind.bits, kind.constants, wider=isinstance(source, Special))
    write = writer(instruction, target, kind)
    return lambda frame, mask: write(frame, read(frame), mask)


def _each(instruction: Instruction, kind: PtxType, target, source, parts: int) -> Run:
    """``mov.v2``, ``mov.v4``: register by register; a number goes into each."""
    sources = source.items if isinstance(source, Vector) else (source,) * parts
    if not isinstance(target, Vector) or {len(target.items), len(sources)} != {parts}:
        raise instruction.wrong(f"it moves {parts} registers into {parts}")
    reads = [contents(instruction, item, kind.bits, kind.constants) for item in sources]
    writes = [writer(instruction, item, kind) for item in target.items]

    def run(frame, mask) -> None:
        for write, found in zip(writes, [read(frame) for read in reads], strict=True):
            write(frame, found, mask)

    return run


def _piece(instruction: Instruction, kind: PtxType, vector: Vector) -> PtxType:
    width, rest = divmod(kind.bits, len(vector.items))
    if rest or f"b{width}" not in TYPES or kind.bits == 1:
        raise instruction.wrong(f"{kind.bits} bits are not {len(vector.items)} registers")
    return TYPES[f"b{width}"]


def _need_bits(instruction: Instruction, kind: PtxType) -> None:
    if kind.kind != "b":
        raise instruction.wrong(f"registers in braces are of a type .b, not .{kind.name}")


def _joined(instruction: Instruction, kind: PtxType, source: Vector, target) -> Run:
    _need_bits(instruction, kind)
    piece = _piece(instruction, kind, source)
    reads = [contents(instruction, item, piece.bits) for item in source.items]
    write = writer(instruction, target, kind)

    def run(frame, mask) -> None:
        values = np.broadcast_arrays(*(read(frame) for read in reads))
        joined = np.ascontiguousarray(np.stack(values, axis=-1))
        write(frame, joined.view(np.uint64) if kind is B128 else joined.view(kind.raw)[..., 0], mask)

    return run


def _parted(instruction: Instruction, kind: PtxType, target: Vector, source) -> Run:
    _need_bits(instruction, kind)
    piece = _piece(instruction, kind, target)
    read = contents(instruction, source, kind.bits)
    writes = [writer(instruction, item, piece) for item in target.items]

    def run(frame, mask) -> None:
        whole = read(frame)
        pieces = np.ascontiguousarray(whole).view(piece.raw).reshape(whole.shape[0], -1)
        for number, write in enumerate(writes):
            write(frame, pieces[:, number], mask)

    return run


@opcode("cvta")
@pure
def _convert_address(instruction: Instruction) -> Run:
    """Global addresses are generic ones."""
    form = Form(instruction)
    form.flag("to")
    form.one_of(("global",))
    kind = form.type(("u32", "u64"))
    form.done(2)
    read = contents(instruction, instruction.operands[1], kind.bits, kind.constants)
    write = writer(instruction, instruction.operands[0], kind)
    return lambda frame, mask: write(frame, read(frame), mask)


@opcode("isspacep")
@pure
def _is_in_space(instruction: Instruction) -> Run:
    form = Form(instruction)
    space = form.one_of(("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"))
    form.done(2)
    write = writer(instruction, instruction.operands[0], TYPES["pred"])
    contents(instruction, instruction.operands[1], 64, "su")
    answer = np.array([space == "global"])
    return lambda frame, mask: write(frame, answer, mask)


@opcode("mapa", "getctarank")
@pure
def _in_cluster(instruction: Instruction) -> Run:
    """A cluster is one block: an address in shared memory of block 0 is its own, and all are of block 0."""
    form = Form(instruction)
    maps = instruction.opcode == "mapa"
    if not form.flag("shared::cluster"):
        raise instruction.unsupported("generic addresses are global ones; write .shared::cluster")
    kind = form.type(("u32", "u64"))
    form.done(3 if maps else 2)
    read = contents(instruction, instruction.operands[1], kind.bits, "su")
    write = writer(instruction, instruction.operands[0], kind if maps else TYPES["u32"])
    if not maps:
        return lambda frame, mask: write(frame, np.zeros(1, np.uint32), mask)
    block = contents(instruction, instruction.operands[2], 32, "su")

    def run(frame, mask) -> None:
        asked = np.broadcast_to(block(frame), frame.lanes)[frame.chosen(mask)]
        if asked.any():
            raise SimulationError(f"mapa: there is no block {int(asked.max())} in the cluster, which is one block")
        write(frame, read(frame), mask)

    return run


@opcode("selp")
@pure
def _select(instruction: Instruction) -> Run:
    form = Form(instruction)
    kind = form.type()
    form.done(4)
    target, first, second, condition = instruction.operands
    a, b = (contents(instruction, operand, kind.bits, kind.constants) for operand in (first, second))
    holds, write = predicate(instruction, condition), writer(instruction, target, kind)
    return lambda frame, mask: write(frame, np.where(holds(frame), a(frame), b(frame)), mask)


@opcode("slct")
@pure
def _select_by_sign(instruction: Instruction) -> Run:
    form = Form(instruction)
    form.flag("ftz")
    kind, sign = form.type(), form.type(("s32", "f32"))
    form.done(4)
    target, first, second, chooser = instruction.operands
    a, b = (contents(instruction, operand, kind.bits, kind.constants) for operand in (first, second))
    c, write = numbers(instruction, chooser, sign), writer(instruction, target, kind)
    return lambda frame, mask: write(frame, np.where(c(frame) >= 0, a(frame), b(frame)), mask)


Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]

_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
COMPARISONS = (*_ORDERED, *_UNSIGNED, *_UNORDERED, "num", "nan")
_JOIN: dict[str, Compare] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(instruction: Instruction, name: str, kind: PtxType) -> Compare:
    if kind.kind == "f":
        return _float_comparison(instruction, name)
    if name in _UNORDERED or name in ("num", "nan"):
        raise instruction.wrong(f".{name} compares floats only")
    if name in _UNSIGNED:
        if kind.kind == "s":
            raise instruction.wrong(f".{name} compares unsigned integers")
        name = _UNSIGNED[name]
    if kind.kind == "b" and name not in ("eq", "ne"):
        raise instruction.wrong(f"{kind.name} is compared by .eq and .ne only")
    return _ORDERED[name]


def _float_comparison(instruction: Instruction, name: str) -> Compare:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "ne":
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    if name in _UNORDERED:
        plain = _ORDERED[_UNORDERED[name]]
        return lambda a, b: plain(a, b) | np.isnan(a) | np.isnan(b)
    if name not in _ORDERED:
        raise instruction.wrong(f".{name} does not compare floats")
    return _ORDERED[name]


@opcode("setp")
@pure
def _set_predicate(instruction: Instruction) -> Run:
    form = Form(instruction)
    name = form.one_of(COMPARISONS)
    join = form.one_of(_JOIN, "")
    flush = form.flag("ftz")
    kind = form.type()
    form.done(4 if join else 3)
    if kind.count > 1:
        return _set_two(instruction, name, join, kind, flush)
    compare = _comparison(instruction, name, kind)
    target = instruction.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, Discard())
    a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:3])
    writes = [writer(instruction, one, TYPES["pred"]) for one in (first, second)]
    also = predicate(instruction, instruction.operands[3]) if join else None

    def run(frame, mask) -> None:
        left, right = a(frame), b(frame)
        if flush:
            left, right = arith.flush(left), arith.flush(right)
        holds = compare(left, right)
        results = (holds, ~holds)
        for write, result in zip(writes, results, strict=True):
            write(frame, result if also is None else _JOIN[join](result, also(frame)), mask)

    return run


def _set_two(instruction: Instruction, name: str, join: str, kind: PtxType, flush: bool) -> Run:
    """Of a packed type: a predicate for each half."""
    target = instruction.operands[0]
    if not isinstance(target, Pair):
        raise instruction.wrong("a packed type needs two predicates, p|q")
    compare = _comparison(instruction, name, kind)
    a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:3])
    writes = [writer(instruction, one, TYPES["pred"]) for one in (target.first, target.second)]
    also = predicate(instruction, instruction.operands[3]) if join else None

    def run(frame, mask) -> None:
        holds = compare(a(frame), b(frame))
        for number, write in enumerate(writes):
            result = holds[..., number]
            write(frame, result if also is None else _JOIN[join](result, also(frame)), mask)

    return run


@opcode("set")
@pure
def _set(instruction: Instruction) -> Run:
    form = Form(instruction)
    name = form.one_of(COMPARISONS)
    flush = form.flag("ftz")
    given, kind = form.type(("u32", "s32", "f32", "b32")), form.type()
    form.done(3)
    if kind.count > 1:
        raise instruction.unsupported("a packed set is not in the subset; use setp")
    compare = _comparison(instruction, name, kind)
    a, b = (numbers(instruction, operand, kind) for operand in instruction.operands[1:3])
    write = writer(instruction, instruction.operands[0], given)
    yes = np.array([1.0], np.float32).view(np.uint32) if given.kind == "f" else np.array([0xFFFFFFFF], np.uint32)

    def run(frame, mask) -> None:
        left, right = a(frame), b(frame)
        if flush:
            left, right = arith.flush(left), arith.flush(right)
        write(frame, np.where(compare(left, right), yes, np.uint32(0)), mask)

    return run
