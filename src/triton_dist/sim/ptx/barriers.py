"""Barriers of a block and of a warp: bar, barrier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import SimulationError
from .block_state import state_of
from .form import Form, Met, Step, contents, meeting_opcode, predicate, writer
from .meeting import ClusterWait, Meeting
from .special import WARP
from .syntax import Immediate, Instruction
from .types import TYPES

_BARRIERS = 16
_COUNTS: dict[str, Callable[[np.ndarray], int]] = {
    "popc": lambda holds: int(holds.sum()),
    "and": lambda holds: bool(holds.all()),
    "or": lambda holds: bool(holds.any()),
}
"""What ``bar.red`` tells."""


@meeting_opcode("bar", "barrier")
def _barrier(instruction: Instruction, place: int) -> Met:
    form = Form(instruction)
    if instruction.opcode == "barrier" and form.flag("cluster"):
        return _of_cluster(form)
    form.flag("cta")
    if form.left[:1] == ["warp"]:
        return _of_warp(instruction, form)
    kind = form.one_of(("sync", "arrive", "red"))
    form.flag("aligned")
    if kind == "red":
        return _reduction(instruction, form, place)
    form.done(2 if kind == "arrive" else (1, 2))
    number, count = _numbers(instruction, instruction.operands)
    if kind == "arrive":
        return Met(None, Step(lambda frame, mask: _arrive(frame, mask, number), touches=True, yields_after=True, orders=True))
    return Met(Meeting("a block barrier", number, count), None)


def _of_cluster(form: Form) -> Met:
    kind = form.one_of(("arrive", "wait"))
    for word in ("aligned", *(("release", "relaxed") if kind == "arrive" else ("acquire",))):
        form.flag(word)
    form.done(0)
    if kind == "wait":
        return Met(ClusterWait("barrier.cluster.wait", 0), None)
    return Met(None, Step(_arrive_in_cluster, touches=True, yields_after=True, orders=True))


def _arrive_in_cluster(frame, mask) -> None:
    known = state_of(frame.context).cluster
    for thread in frame.threads[frame.chosen(mask)].tolist():
        arrived, waited = known.get(thread, (0, 0))
        if arrived > waited:
            raise SimulationError(f"thread {thread} arrives at the cluster's barrier again before it has waited; wait in between")
        known[thread] = arrived + 1, waited


def _numbers(instruction: Instruction, operands) -> tuple[int, int]:
    """(number of the barrier, count of threads or 0)."""
    if not all(isinstance(operand, Immediate) and isinstance(operand.value, int) for operand in operands):
        raise instruction.unsupported("the number of a barrier and of its threads have to be numbers")
    number, count = ([int(operand.value) for operand in operands] + [0])[:2]
    if not 0 <= number < _BARRIERS:
        raise instruction.wrong(f"barriers have numbers from 0 to {_BARRIERS - 1}")
    if count % WARP or count < 0 or (len(operands) > 1 and not count):
        raise instruction.wrong(f"a barrier counts whole warps, a multiple of {WARP} threads, not {count}")
    return number, count


def _arrive(frame, mask, number: int) -> None:
    arrived = state_of(frame.context).arrived
    arrived[number] = arrived.get(number, 0) + len(frame.chosen(mask))


def _of_warp(instruction: Instruction, form: Form) -> Met:
    form.left.pop(0)
    form.one_of(("sync",))
    form.done(1)
    return Met(Meeting("a barrier of a warp", -1, members=members(instruction, instruction.operands[0])), None)


def members(instruction: Instruction, operand):
    """The mask of an instruction of a warp: a number, or how to read it."""
    if isinstance(operand, Immediate) and isinstance(operand.value, int):
        mask = operand.value & 0xFFFFFFFF
        if not mask:
            raise instruction.wrong("its mask names no thread")
        return mask
    return contents(instruction, operand, 32, "su")


def _reduction(instruction: Instruction, form: Form, place: int) -> Met:
    """``bar.red``: a barrier that also tells in how many threads, in all, or in any a predicate holds."""
    how = form.one_of(("popc", "and", "or"))
    kind = form.type(("u32",) if how == "popc" else ("pred",))
    form.done((3, 4))
    target, *counted, condition = instruction.operands
    number, count = _numbers(instruction, counted)
    holds, write = predicate(instruction, condition), writer(instruction, target, TYPES[kind.name])

    def run(frame, mask) -> None:
        chosen = np.broadcast_to(holds(frame), frame.lanes)[frame.chosen(mask)]
        write(frame, np.array([_COUNTS[how](chosen)], kind.raw), mask)

    return Met(Meeting("a block barrier", number, count, place=place), Step(run, per_thread=bool(count), touches=True))
