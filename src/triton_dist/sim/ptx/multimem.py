"""multimem.ld_reduce, multimem.st and multimem.red: one address for the same symmetric object on every rank of a team.

Sums of floats are formed in the order of the ranks, in fp32 and rounded once with ``.acc::f32``, else rounded after each rank. A switch may
use another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SimulationError
from ...runtime.address_map import MULTICAST, STRIDE_BITS
from ..ops.multicast import places_of
from .atomics import OPERATIONS, update_lanes
from .floats import canonical
from .form import Form, Step, contents, opcode, writer
from .memory import address, global_space, rows, vector
from .order import order_of
from .places import Access, spread
from .syntax import Instruction
from .types import PtxType

if TYPE_CHECKING:
    from .frame import Frame

_COUNTS = {"v2": 2, "v4": 4, "v8": 8}
_FLOATS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_INTEGERS = ("u32", "s32", "u64", "s64")
_LOGIC = ("and", "or", "xor")
_TYPES = {
    "add": (*_INTEGERS, *_FLOATS),
    "min": (*_INTEGERS, *_FLOATS),
    "max": (*_INTEGERS, *_FLOATS),
    **dict.fromkeys(_LOGIC, ("b32", "b64")),
}


@opcode("multimem")
def _multimem(instruction: Instruction) -> Step:
    form = Form(instruction)
    name = form.one_of(("ld_reduce", "st", "red"))
    return {"ld_reduce": _load_and_reduce, "st": _store, "red": _reduce}[name](instruction, form)


def _parse(instruction: Instruction, form: Form, operation: str) -> tuple[PtxType, int]:
    global_space(form)
    count = _COUNTS[form.one_of(_COUNTS)] if any(word in form.left for word in _COUNTS) else 1
    kind = form.type(_TYPES[operation] if operation else ("b32", "b64", *_INTEGERS, *_FLOATS))
    form.done(2)
    if count > 1 and kind.name not in _FLOATS:
        raise instruction.wrong(f".{kind.name} has no vectors here; only floats do")
    if kind.bits * count > 128:
        raise instruction.wrong(f"{kind.bits * count} bits are more than one access moves (128)")
    return kind, count


def _on_each_rank(frame: Frame, addresses: np.ndarray, lanes: np.ndarray, what: str) -> list[np.ndarray]:
    """The addresses on each rank of the team, in team order."""
    teams = np.unique((addresses if addresses.size == 1 else addresses[lanes]) - MULTICAST >> STRIDE_BITS)
    if teams.size > 1:
        raise SimulationError(f"multimem.{what}: threads give multicast addresses of different teams")
    one = int(addresses[0 if addresses.size == 1 else lanes[0]])
    return [addresses - one + place for place in places_of(frame.context, one, f"multimem.{what}")]


def _load_and_reduce(instruction: Instruction, form: Form) -> Step:
    order = order_of(form, ("relaxed", "acquire"), None)
    operation = form.one_of(_TYPES)
    wide = form.flag("acc::f32")
    kind, count = _parse(instruction, form, operation)
    if wide and (operation != "add" or kind.dtype.itemsize != 2):
        raise instruction.wrong(".acc::f32 is for sums of types of 16 bits")
    read = address(instruction, instruction.operands[1])
    writes = [writer(instruction, target, kind) for target in vector(instruction, instruction.operands[0], count)]
    combine = OPERATIONS[operation][0] if operation != "add" else np.add

    def run(frame, mask) -> None:
        lanes = frame.chosen(mask)
        total = None
        for addresses in _on_each_rank(frame, read(frame), lanes, "ld_reduce"):
            access = Access(frame, addresses, lanes, kind.bits // 8, count, order, "ld")
            access.check()
            access.report()
            values = kind.numbers(spread(access.read(), access, frame.lanes))
            total = _widened(values, wide) if total is None else combine(total, _widened(values, wide))
        assert total is not None, "a team has a member"
        result = kind.contents(_finished(total, kind))
        for number, write in enumerate(writes):
            write(frame, result[:, number], mask)

    return Step(run, touches=True, yields_before=True, orders=order is not None and order.acquire)


def _widened(values: np.ndarray, wide: bool) -> np.ndarray:
    return values.astype(np.float32) if wide else values


def _finished(total: np.ndarray, kind: PtxType) -> np.ndarray:
    return canonical(total.astype(kind.dtype)) if kind.kind == "f" else total


def _store(instruction: Instruction, form: Form) -> Step:
    order = order_of(form, ("relaxed", "release"), None)
    kind, count = _parse(instruction, form, "")
    read = address(instruction, instruction.operands[0])
    reads = [contents(instruction, source, kind.bits, kind.constants) for source in vector(instruction, instruction.operands[1], count)]

    def run(frame, mask) -> None:
        lanes = frame.chosen(mask)
        values = rows(frame, reads, lanes)
        for addresses in _on_each_rank(frame, read(frame), lanes, "st"):
            access = Access(frame, addresses, lanes, kind.bits // 8, count, order, "st")
            access.check()
            access.report()
            access.store(values)

    return Step(run, touches=True, yields_after=True, orders=order is not None and order.release)


def _reduce(instruction: Instruction, form: Form) -> Step:
    order = order_of(form, ("relaxed", "release"), ("relaxed", "gpu"))
    operation = form.one_of(_TYPES)
    kind, count = _parse(instruction, form, operation)
    read = address(instruction, instruction.operands[0])
    reads = [contents(instruction, source, kind.bits, kind.constants) for source in vector(instruction, instruction.operands[1], count)]
    combine: Callable = OPERATIONS[operation][0]

    def run(frame, mask) -> None:
        lanes = frame.chosen(mask)
        values = rows(frame, reads, lanes)
        for addresses in _on_each_rank(frame, read(frame), lanes, "red"):
            update_lanes(frame, Access(frame, addresses, lanes, kind.bits // 8, count, order, "atomic"), combine, kind, values, None)

    return Step(run, touches=True, yields_before=True, yields_after=True, orders=True)
