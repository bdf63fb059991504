"""What the threads of a warp do together: shfl, vote, match, redux, elect, activemask.

Those of a mask meet first, as on a GPU; one that is named and does not come, or comes and is not named, is an error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .barriers import members
from .form import Form, Met, Step, contents, meeting_opcode, numbers, opcode, predicate, writer
from .meeting import Meeting, groups
from .special import WARP
from .syntax import Discard, Instruction, Pair
from .types import TYPES

_PREDICATE, _WORD = TYPES["pred"], TYPES["b32"]
_NOBODY = 0xFFFFFFFF
"""What a shuffle gives from a thread that takes no part; a GPU gives anything."""


def _sync(instruction: Instruction, form: Form) -> None:
    if not form.flag("sync"):
        raise instruction.wrong(f"{instruction.opcode} needs .sync and a mask since sm_70")


def _met(instruction: Instruction, place: int, operand, run) -> Met:
    meeting = Meeting(f"{instruction.opcode}.sync", -1, members=members(instruction, operand), place=place, orders=False)
    return Met(meeting, Step(run(meeting), per_thread=True, touches=True))


def _two(instruction: Instruction, kind) -> tuple:
    """How to write a result and the predicate beside it, ``d|p``."""
    target = instruction.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, Discard())
    return writer(instruction, first, kind), writer(instruction, second, _PREDICATE)


def _source(mode: str, lane: np.ndarray, amount: np.ndarray, clamp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each thread the lane that it takes from, and whether that is in its segment. clamp: the bits of the last operand."""
    segment = clamp >> 8 & 31
    least = lane & segment
    most = least | (clamp & 31 & ~segment)
    amount = amount & 31
    if mode == "up":
        source = lane - amount
        return source, source >= most
    source = {"down": lane + amount, "bfly": lane ^ amount, "idx": least | (amount & ~segment)}[mode]
    return source, source <= most


@meeting_opcode("shfl")
def _shuffle(instruction: Instruction, place: int) -> Met:
    form = Form(instruction)
    _sync(instruction, form)
    mode = form.one_of(("up", "down", "bfly", "idx"))
    kind = form.type(("b32",))
    form.done(5)
    write, write_inside = _two(instruction, kind)
    read, amount, clamp = (contents(instruction, operand, 32) for operand in instruction.operands[1:4])

    def make(meeting: Meeting):
        def run(frame, mask) -> None:
            lanes = frame.chosen(mask)
            threads = frame.threads[lanes]
            lane = threads % WARP
            values, amounts, clamps = (np.broadcast_to(one(frame), frame.lanes)[lanes] for one in (read, amount, clamp))
            source, inside = _source(mode, lane, amounts.astype(np.int64), clamps.astype(np.int64))
            place_of = np.full(int(frame.threads.max()) + WARP, -1)
            place_of[threads] = np.arange(len(lanes))
            taken = place_of[threads - lane + np.where(inside, source, lane)]
            result = np.where(taken >= 0, values[taken], np.uint32(_NOBODY))
            write(frame, _spread(frame, lanes, result), mask)
            write_inside(frame, _spread(frame, lanes, inside), mask)

        return run

    return _met(instruction, place, instruction.operands[4], make)


def _spread(frame, lanes: np.ndarray, values: np.ndarray) -> np.ndarray:
    result = np.zeros(frame.lanes, values.dtype)
    result[lanes] = values
    return result


def _each_group(meeting: Meeting, frame, mask, result: np.ndarray, compute: Callable) -> np.ndarray:
    """Fill ``result`` for the lanes of each group by ``compute(lanes)``."""
    here = np.zeros(frame.lanes, np.bool_)
    here[frame.chosen(mask)] = True
    for lanes, _ in groups(frame, here, meeting.masks(frame)):
        result[lanes] = compute(lanes)
    return result


def _bits(frame, lanes: np.ndarray) -> int:
    """Lanes of one warp as a mask."""
    return int((np.uint64(1) << (frame.threads[lanes] % WARP).astype(np.uint64)).sum())


@meeting_opcode("vote")
def _vote(instruction: Instruction, place: int) -> Met:
    form = Form(instruction)
    _sync(instruction, form)
    mode = form.one_of(("all", "any", "uni", "ballot"))
    kind = form.type(("b32",) if mode == "ballot" else ("pred",))
    form.done(3)
    holds, write = predicate(instruction, instruction.operands[1]), writer(instruction, instruction.operands[0], kind)
    decide = {"all": np.all, "any": np.any, "uni": lambda found: found.all() or not found.any()}.get(mode)

    def make(meeting: Meeting):
        def run(frame, mask) -> None:
            found = np.broadcast_to(holds(frame), frame.lanes)

            def compute(lanes):
                return _bits(frame, lanes[found[lanes]]) if decide is None else decide(found[lanes])

            write(frame, _each_group(meeting, frame, mask, np.zeros(frame.lanes, kind.raw), compute), mask)

        return run

    return _met(instruction, place, instruction.operands[2], make)


@meeting_opcode("match")
def _match(instruction: Instruction, place: int) -> Met:
    form = Form(instruction)
    mode = form.one_of(("any", "all"))
    _sync(instruction, form)
    kind = form.type(("b32", "b64"))
    form.done(3)
    if mode == "any" and isinstance(instruction.operands[0], Pair):
        raise instruction.wrong("match.any gives no predicate")
    write, write_same = _two(instruction, _WORD)
    read = contents(instruction, instruction.operands[1], kind.bits)

    def make(meeting: Meeting):
        def run(frame, mask) -> None:
            values = np.broadcast_to(read(frame), frame.lanes)

            def alike(lanes):
                if mode == "any":
                    return [_bits(frame, lanes[values[lanes] == values[lane]]) for lane in lanes]
                return _bits(frame, lanes) if (values[lanes] == values[lanes[0]]).all() else 0

            result = _each_group(meeting, frame, mask, np.zeros(frame.lanes, np.uint32), alike)
            write(frame, result, mask)
            write_same(frame, result != 0, mask)

        return run

    return _met(instruction, place, instruction.operands[2], make)


_REDUCTIONS = {
    "add": np.sum, "min": np.min, "max": np.max,
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
}  # fmt: skip


@meeting_opcode("redux")
def _reduce(instruction: Instruction, place: int) -> Met:
    form = Form(instruction)
    _sync(instruction, form)
    name = form.one_of(_REDUCTIONS)
    kind = form.type(("b32",) if name in ("and", "or", "xor") else ("u32", "s32"))
    form.done(3)
    read, write = numbers(instruction, instruction.operands[1], kind), writer(instruction, instruction.operands[0], kind)

    def make(meeting: Meeting):
        def run(frame, mask) -> None:
            values = np.broadcast_to(read(frame), frame.lanes)

            def combine(lanes):
                if name == "add":
                    return np.array(int(values[lanes].astype(np.int64).sum()) & 0xFFFFFFFF, np.uint32).view(kind.dtype)
                return _REDUCTIONS[name](values[lanes])

            write(frame, kind.contents(_each_group(meeting, frame, mask, np.zeros(frame.lanes, kind.dtype), combine)), mask)

        return run

    return _met(instruction, place, instruction.operands[2], make)


@meeting_opcode("elect")
def _elect(instruction: Instruction, place: int) -> Met:
    """The leader is the lowest thread of the mask."""
    form = Form(instruction)
    _sync(instruction, form)
    form.done(2)
    if not isinstance(instruction.operands[0], Pair):
        raise instruction.wrong("it gives a lane and a predicate, d|p")
    write, write_leads = _two(instruction, _WORD)

    def make(meeting: Meeting):
        def run(frame, mask) -> None:
            lane = (frame.threads % WARP).astype(np.uint32)
            leader = _each_group(meeting, frame, mask, np.zeros(frame.lanes, np.uint32), lambda lanes: lane[lanes].min())
            write(frame, leader, mask)
            write_leads(frame, leader == lane, mask)

        return run

    return _met(instruction, place, instruction.operands[1], make)


@opcode("activemask")
def _active(instruction: Instruction) -> Step:
    """The threads of the warp that are here together; on a GPU it may be fewer."""
    form = Form(instruction)
    form.type(("b32",))
    form.done(1)
    write = writer(instruction, instruction.operands[0], _WORD)

    def run(frame, mask) -> None:
        lanes, result = frame.chosen(mask), np.zeros(frame.lanes, np.uint32)
        warps = frame.threads[lanes] // WARP
        for warp in np.unique(warps).tolist():
            mine = lanes[warps == warp]
            result[mine] = _bits(frame, mine)
        write(frame, result, mask)

    return Step(run, per_thread=True, touches=True)
