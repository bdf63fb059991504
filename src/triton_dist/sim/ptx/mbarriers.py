"""mbarrier objects, and bulk copies between global and shared memory.

A bulk copy into shared memory lands when somebody looks at its mbarrier, the latest that a right program can tell. One out of shared memory
has read its source when it is issued, and lands at a time that the seed chooses, at the latest where its thread waits for it, or when its
kernel ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SimulationError
from ..check.history import READ, WRITE
from ..check.shadow import Box
from ..memory import element_index, scalar_view
from ..pending import PendingCopy
from .block_state import BulkLoad, BulkStore, Mbarrier, state_of
from .form import Form, Step, contents, opcode, writer
from .memory import SHARED_SPACES, address
from .order import SCOPE_WORDS
from .shared import changed, check_place, memory_of, shared_address
from .syntax import Address, Discard, Immediate, Instruction
from .types import TYPES

if TYPE_CHECKING:
    from .frame import Frame

_BYTES = 8
_MOST = (1 << 20) - 1
"""Arrivals, and bytes, that an mbarrier counts."""

_UNIT = 16
"""Bytes that the addresses and the size of a bulk copy are multiples of."""


def _space(form: Form, instruction: Instruction) -> None:
    if not any([form.flag(space) for space in SHARED_SPACES]):  # noqa: C419  (each has to be looked at)
        raise instruction.unsupported("an mbarrier is found by its address in shared memory; write .shared::cta")


def _order(form: Form, semantics: tuple[str, ...]) -> None:
    """They order as their defaults do, and relaxed ones are taken to, so that no right program is blamed."""
    for word in (*semantics, "relaxed", *SCOPE_WORDS):
        form.flag(word)


def _number(instruction: Instruction, operands: list, width: int = 32) -> Callable[[Frame], np.ndarray]:
    if not operands:
        return lambda frame: np.ones(1, np.uint32)
    return contents(instruction, operands[0], width, "su")


@opcode("mbarrier")
def _mbarrier(instruction: Instruction) -> Step:
    form = Form(instruction)
    name = form.one_of(("init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait"))
    if name in ("test_wait", "try_wait"):
        return _wait(instruction, form, name)
    if name in ("arrive", "arrive_drop"):
        return _arrive(instruction, form, name == "arrive_drop")
    _order(form, ())
    _space(form, instruction)
    if name == "inval":
        form.one_of(("b64",))
        form.done(1)
        place, amount = shared_address(instruction, instruction.operands[0]), _number(instruction, [])
    else:
        form.one_of(("b64",))
        form.done(2)
        place, amount = shared_address(instruction, instruction.operands[0]), _number(instruction, [instruction.operands[1]])
    return _each(place, [amount], {"init": _init, "inval": _invalidate, "expect_tx": _expect, "complete_tx": _complete}[name])


def _each(place, amounts: list, act: Callable) -> Step:
    """For each lane in turn ``act(frame, address, *amounts)``."""

    def run(frame, mask) -> None:
        starts = np.broadcast_to(place(frame), frame.lanes)
        values = [np.broadcast_to(amount(frame), frame.lanes) for amount in amounts]
        for lane in frame.chosen(mask).tolist():
            act(frame, int(starts[lane]), *(int(value[lane]) for value in values))
        changed(frame.context)

    return Step(run, touches=True, orders=True)


def _init(frame, start: int, count: int) -> None:
    check_place(frame, start, _BYTES, _BYTES, "mbarrier.init")
    if not 0 < count <= _MOST:
        raise SimulationError(f"mbarrier.init with a count of {count}; it counts from 1 to {_MOST} arrivals")
    state_of(frame.context).mbarriers[start] = Mbarrier(count, count)


def _invalidate(frame, start: int, _: int) -> None:
    find(frame, start)
    del state_of(frame.context).mbarriers[start]


def _expect(frame, start: int, size: int) -> None:
    found = find(frame, start)
    found.bytes += size
    if found.bytes > _MOST:
        raise SimulationError(f"an mbarrier expects {found.bytes} bytes at once; it counts up to {_MOST}")


def _complete(frame, start: int, size: int) -> None:
    found = find(frame, start)
    found.bytes -= size
    _advance(frame, found)


def find(frame: Frame, start: int) -> Mbarrier:
    """The mbarrier at an address. Raises SimulationError."""
    check_place(frame, start, _BYTES, _BYTES, "mbarrier")
    found = state_of(frame.context).mbarriers.get(start)
    if found is None:
        raise SimulationError(f"there is no mbarrier at {start:#x} of shared memory: mbarrier.init comes first")
    return found


def _advance(frame: Frame, one: Mbarrier) -> None:
    if one.pending or one.bytes:
        return
    one.phase += 1
    one.pending = one.count
    if frame.context.race is not None:
        # It orders those that arrive before those that wait; it is taken for a barrier of all, so that no right program is blamed.
        frame.context.race.block_barrier()
    memory_of(frame.context).order()


def _arrive(instruction: Instruction, form: Form, drops: bool) -> Step:
    """What it gives is the phase, which a wait takes."""
    expects = form.flag("expect_tx")
    form.flag("noComplete")
    _order(form, ("release",))
    _space(form, instruction)
    form.one_of(("b64",))
    form.done((2, 3) if not expects else 3)
    target, place, *more = instruction.operands
    if isinstance(target, Address):
        raise instruction.wrong("it gives a state of 64 bits first; _ takes none")
    write = writer(instruction, target, TYPES["b64"])
    read, amount = shared_address(instruction, place), _number(instruction, more)

    def run(frame, mask) -> None:
        starts, amounts = (np.broadcast_to(one(frame), frame.lanes) for one in (read, amount))
        phases = np.zeros(frame.lanes, np.uint64)
        for lane in frame.chosen(mask).tolist():
            start, number = int(starts[lane]), int(amounts[lane])
            if expects:
                _expect(frame, start, number)
            phases[lane] = _arrive_once(frame, start, 1 if expects else number, drops)
        changed(frame.context)
        write(frame, phases, mask)

    return Step(run, per_thread=not isinstance(target, Discard), touches=True, orders=True)


def _arrive_once(frame: Frame, start: int, number: int, drops: bool) -> int:
    found = find(frame, start)
    if number > found.pending:
        raise SimulationError(
            f"{number} arrivals at an mbarrier that waits for {found.pending} more in this phase (of {found.count}): "
            "its count has to be the number of all that arrive"
        )
    phase = found.phase
    found.pending -= number
    if drops:
        found.count -= number
    _advance(frame, found)
    return phase


def _wait(instruction: Instruction, form: Form, name: str) -> Step:
    """``test_wait`` and ``try_wait``, which looks once here, too: loops poll with it."""
    parity = form.flag("parity")
    _order(form, ("acquire",))
    _space(form, instruction)
    form.one_of(("b64",))
    form.done(3 if name == "test_wait" else (3, 4))
    target, place, phase = instruction.operands[:3]
    write, read = writer(instruction, target, TYPES["pred"]), shared_address(instruction, place)
    asked = contents(instruction, phase, 32 if parity else 64, "su")

    def run(frame, mask) -> None:
        starts, phases = (np.broadcast_to(one(frame), frame.lanes) for one in (read, asked))
        result = np.zeros(frame.lanes, np.bool_)
        state = state_of(frame.context)
        for lane in frame.chosen(mask).tolist():
            start = int(starts[lane])
            found = find(frame, start)
            _land(frame, start)
            result[lane] = found.phase & 1 != int(phases[lane]) & 1 if parity else found.phase > int(phases[lane])
            if not result[lane]:
                state.stuck = (
                    f"an mbarrier is waited for that nobody completes: in phase {found.phase} it has {found.count - found.pending} of "
                    f"{found.count} arrivals, and {found.bytes} bytes are still expected"
                )
        write(frame, result, mask)

    return Step(run, per_thread=True, touches=True, yields_before=True, orders=True)


# Bulk copies


@opcode("cp")
def _copy(instruction: Instruction) -> Step:
    form = Form(instruction)
    if form.left[:2] != ["async", "bulk"]:
        raise instruction.unsupported("of asynchronous copies the simulator has cp.async.bulk between global and shared memory")
    del form.left[:2]
    if form.left[:1] in (["commit_group"], ["wait_group"]):
        return _group(instruction, form)
    if form.flag("prefetch"):
        form.one_of(("L2",))
        form.one_of(("global",))
        form.drop(("L2::",))
        form.done((2, 3))
        address(instruction, instruction.operands[0])
        return Step(lambda frame, mask: None)
    spaces = [word for word in form.left if word in (*SHARED_SPACES, "global")]
    if len(spaces) != 2 or (spaces[0] == "global") == (spaces[1] == "global"):
        raise instruction.unsupported("a bulk copy is one between .shared::cta (or ::cluster) and .global here; none of a tensor map")
    form.left = [word for word in form.left if word not in spaces]
    return (_bulk_store if spaces[0] == "global" else _bulk_load)(instruction, form)


def _bulk_load(instruction: Instruction, form: Form) -> Step:
    form.one_of(("mbarrier::complete_tx::bytes",))
    hinted = form.flag("L2::cache_hint")
    form.done(4 + hinted)
    target, source, size, barrier = instruction.operands[:4]
    to, word = (shared_address(instruction, operand) for operand in (target, barrier))
    start, number = address(instruction, source), _number(instruction, [size])

    def run(frame, mask) -> None:
        values = [np.broadcast_to(one(frame), frame.lanes) for one in (to, start, number, word)]
        for lane in frame.chosen(mask).tolist():
            one = BulkLoad(*(int(value[lane]) for value in values))
            check_place(frame, one.target, one.size, _UNIT, "a bulk copy to")
            _check_global(frame, lane, one.source, one.size, READ)
            find(frame, one.mbarrier)
            state_of(frame.context).loads.append(one)
        changed(frame.context)

    return Step(run, touches=True, yields_after=True)


def _check_global(frame: Frame, lane: int, start: int, size: int, kind) -> None:
    """Bounds, alignment, cost and the race check of one side. Raises SimulationError."""
    context = frame.context
    what = "load" if kind is READ else "store"
    if size <= 0 or size % _UNIT:
        raise SimulationError(f"a bulk copy of {size} bytes; the size is a multiple of {_UNIT}")
    if start % _UNIT:
        raise context.memory.misaligned(start, _UNIT, what)
    found = context.memory.check(start, start + size, size, what, None)
    context.charge((size,), 1, found)
    if context.race is not None:
        context.at = frame.location
        box = Box(start, size, (), size)
        thread = int(frame.threads[lane]) if frame.known else -1
        context.race.checker.access(context.race, box, kind, context.at, context.race.checker.find(start), thread)


def _land(frame: Frame, mbarrier: int) -> None:
    """Let the copies land that an mbarrier is told of."""
    state = state_of(frame.context)
    mine = [one for one in state.loads if one.mbarrier == mbarrier]
    if not mine:
        return
    state.loads = [one for one in state.loads if one.mbarrier != mbarrier]
    data = memory_of(frame.context).data
    for one in mine:
        places = element_index(np.arange(one.source, one.source + one.size, dtype=np.int64), 1)
        data[one.target : one.target + one.size] = scalar_view(np.dtype(np.uint8))[places]
        _complete(frame, mbarrier, one.size)
    changed(frame.context)


def _bulk_store(instruction: Instruction, form: Form) -> Step:
    form.one_of(("bulk_group",))
    hinted = form.flag("L2::cache_hint")
    form.done(3 + hinted)
    to, start = address(instruction, instruction.operands[0]), shared_address(instruction, instruction.operands[1])
    number = _number(instruction, [instruction.operands[2]])

    def run(frame, mask) -> None:
        context, state = frame.context, state_of(frame.context)
        values = [np.broadcast_to(one(frame), frame.lanes) for one in (to, start, number)]
        for lane in frame.chosen(mask).tolist():
            target, source, size = (int(value[lane]) for value in values)
            check_place(frame, source, size, _UNIT, "a bulk copy of")
            _check_global(frame, lane, target, size, WRITE)
            data = memory_of(context).data[source : source + size].tobytes()
            copy = PendingCopy(context, frame.location, target, 0, size, data=data)
            context.machine.pending.add(copy)
            state.stores.setdefault(int(frame.threads[lane]), []).append(BulkStore(copy))

    return Step(run, touches=True, yields_after=True)


def _group(instruction: Instruction, form: Form) -> Step:
    waits = form.one_of(("commit_group", "wait_group")) == "wait_group"
    only_read = waits and form.flag("read")
    form.done(1 if waits else 0)
    left = 0
    if waits:
        left = instruction.number(instruction.operands[0], "the number of groups that may still be under way", 1 << 31)

    def run(frame, mask) -> None:
        state = state_of(frame.context)
        for thread in frame.threads[frame.chosen(mask)].tolist():
            stores = state.stores.get(thread, [])
            if not waits:
                state.commits[thread] = state.commits.get(thread, 0) + 1
                for one in stores:
                    one.group = one.group or state.commits[thread]
            elif not only_read and stores:
                last = state.commits.get(thread, 0) - left
                done = [one for one in stores if 0 < one.group <= last]
                frame.context.machine.pending.land_some([one.copy for one in done])
                state.stores[thread] = [one for one in stores if one not in done]

    return Step(run, touches=True, orders=waits)


@opcode("createpolicy")
def _policy(instruction: Instruction) -> Step:
    """What hints at the cache take; it means nothing."""
    form = Form(instruction)
    form.one_of(("fractional", "range"))
    form.drop(("L2::",))
    form.flag("global")
    kind = form.type(("b64",))
    if not instruction.operands:
        raise instruction.wrong("it gives a policy of 64 bits")
    form.done()
    write = writer(instruction, instruction.operands[0], kind)
    return Step(lambda frame, mask: write(frame, np.zeros(1, np.uint64), mask))


@opcode("setmaxnreg")
def _registers(instruction: Instruction) -> Step:
    """Registers are not counted."""
    form = Form(instruction)
    form.one_of(("inc", "dec"))
    for word in ("sync", "aligned", "u32"):
        form.one_of((word,))
    form.done(1)
    (count,) = instruction.operands
    if not isinstance(count, Immediate) or not isinstance(count.value, int) or count.value % 8 or not 24 <= count.value <= 256:
        raise instruction.wrong("it takes a number of registers from 24 to 256, a multiple of 8")
    return Step(lambda frame, mask: None, touches=True)
