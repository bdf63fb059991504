"""What the device primitives mean on the simulator, for a whole block and for threads that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SimulationError, UnreachablePeerError
from ...runtime.address_map import FIRST_SLOT, STRIDE, STRIDE_BITS, rank_of
from ..check.checker import SILENT
from ..memory import VIEW_BASE, WORDS, element_index, scalar_view
from ..pointers import Pointers, full
from ..requests import COMPARISONS, Steps, WaitRequest
from .arith import wrap
from .memory import ADD, atomic_scalar, check_scalar, compare_and_swap_scalar, put_integer, put_word, see_word

if TYPE_CHECKING:
    from ..check.program_actor import ProgramActor
    from ..program import Program


def _shift_to(context: Program, address: int, rank: int, what: str) -> int:
    """Bytes from a symmetric address to the same object on ``rank``; raises the named errors."""
    allocation = context.memory.find(address)
    if allocation is None or not allocation.symmetric:
        owner = rank_of(address)
        if owner is None or owner >= context.world_size:
            context.memory.check_symmetric(address, what)
        # A pointer just past a symmetric tensor, or before a masked access, is still symmetric: the access itself is checked.
        here = owner
    elif allocation.foreign:
        raise context.memory.not_of_this_heap(allocation, what)
    else:
        here = allocation.rank
    check_peer(context, rank, what)
    return (rank - here) * STRIDE  # type: ignore[operator]


def check_peer(context: Program, rank: int, what: str) -> None:
    """Raise UnreachablePeerError unless ``rank`` exists and has a direct pointer from this rank."""
    if not 0 <= rank < context.world_size:
        raise UnreachablePeerError(
            f"{what}: there is no rank {rank} in a world of {context.world_size}; ranks go from 0 to {context.world_size - 1}"
        )
    machine = context.machine
    if machine.node_of(rank) != machine.node_of(context.rank):
        raise UnreachablePeerError(
            f"{what}: rank {rank} is on node {machine.node_of(rank)} and rank {context.rank} on node {machine.node_of(context.rank)}; "
            "there is no direct pointer between nodes, use a put or a signal"
        )


def symm_at(context: Program, address: int, rank: int) -> int:
    """The address of the same symmetric object on ``rank``."""
    return address + _shift_to(context, address, rank, "symm_at")


def symm_at_tile(context: Program, pointers, ranks):
    """``symm_at`` for a tile of pointers, to one rank or to one for each element."""
    ranks = np.asarray(ranks)
    if ranks.size == 1:
        rank = int(ranks.reshape(-1)[0])
        if isinstance(pointers, Pointers):
            shift = _shift_to(context, pointers.base, rank, "symm_at")
            return Pointers(pointers.base + shift, pointers.layout)
        if not isinstance(pointers, np.ndarray):
            return pointers + _shift_to(context, int(pointers), rank, "symm_at")
    addresses, ranks = np.broadcast_arrays(full(pointers), ranks)
    moved = [a + _shift_to(context, a, r, "symm_at") for a, r in zip(addresses.ravel().tolist(), ranks.ravel().tolist(), strict=True)]
    return np.array(moved, np.int64).reshape(addresses.shape)


def symm_at_each(context: Program, addresses, ranks, mask) -> np.ndarray:
    """``symm_at`` where each active thread has its own pointer or rank; the others get NULL."""
    places, ranks = spread(context, addresses, np.dtype(np.int64)), spread(context, ranks, np.dtype(np.int32))
    moved = np.zeros(context.threads, np.int64)
    for lane in np.flatnonzero(active_threads(context, mask)).tolist():
        moved[lane] = places[lane] + _shift_to(context, int(places[lane]), int(ranks[lane]), "symm_at")
    return moved


def wait(
    context: Program,
    address: int,
    count: int,
    expected: int,
    compare: str,
    itemsize: int,
    location: int = -1,
    threads: Sequence[int] | None = (),
) -> Steps:
    """Wait until ``count`` words from ``address`` on fulfil the condition; gives the token 0.

    threads: for the race check, who waits for itself; none for the block together, None for a word that tells it nothing.
    """
    view, holds, half = WORDS[itemsize], COMPARISONS[compare], 1 << (8 * itemsize - 1)
    memory, rates, order = context.memory, context.rates, context.order
    if count < 0:
        raise SimulationError(f"wait is given {count} words to wait for, and would wait for none; give how many there are")
    if context.memory_ns:
        context.settle()
    for number in range(count):
        word = context.word = address + number * itemsize
        known = memory.known_words[itemsize].get(word) or memory.check_word(word, itemsize, "wait")
        context.clock += rates.wait_ns if known.rank == context.rank else rates.remote_ns
        index = (word - VIEW_BASE) // itemsize
        if not holds(view[index], expected, half):
            begin = context.clock
            request = WaitRequest(word, itemsize, compare, expected, location)
            recorder = context.machine.recorder
            noted = None if recorder is None else recorder.wait_begins(context, request)
            while True:
                yield request
                if holds(view[index], expected, half):
                    break
            see_word(context, word)
            context.machine.timeline.waited(context, word, begin)
            if recorder is not None and noted is not None:
                recorder.wait_ends(noted, context, word, itemsize)
        else:
            write = memory.writes.get(word)
            if write is not None and write[2] > context.clock:
                context.clock = write[2]
            if context.machine.recorder is not None:
                context.machine.recorder.wait_holds(context, WaitRequest(word, itemsize, compare, expected, location))
        if context.race is not None and threads is not None:
            if threads:
                context.at = location  # other threads of the block may have moved on meanwhile
            context.race.checker.waited(context, word, itemsize, order, compare, expected, threads)
    return 0


def notify(context: Program, address: int, rank: int, value: int, op: str, scope: str, itemsize: int, location: int) -> None:
    """Set or add a signal word of ``rank`` (of this GPU where the scope is "gpu")."""
    machine, memory = context.machine, context.memory
    target = address
    if scope != "gpu":
        target += (rank - (address >> STRIDE_BITS) + FIRST_SLOT + 1) * STRIDE
    known = memory.known_words[itemsize].get(target)
    if known is None or (scope != "gpu" and (known.rank != rank or machine.num_nodes > 1)):
        if scope != "gpu":
            if rank_of(address) is None:
                memory.check_symmetric(address, "notify")
            if scope == "intra_node" or not 0 <= rank < context.world_size:
                check_peer(context, rank, "notify")
        found = memory.check_word(target, itemsize, "notify")
        if scope != "gpu" and found.foreign:
            raise memory.not_of_this_heap(found, "notify")
    if context.memory_ns:
        context.settle()
    rates = context.rates
    if rank == context.rank:
        seen = context.clock = context.clock + rates.local_ns
    else:
        seen = context.clock + rates.signal_ns
        context.clock += rates.notify_ns
    if context.race is not None:
        context.race.checker.notified(context, target, itemsize, scope, op == "add")
    if op == "add":
        value = wrap(WORDS[itemsize][(target - VIEW_BASE) // itemsize] + value, 8 * itemsize)
    put_integer(context, target, value, itemsize, location, seen)


def load_word(context: Program, address: int, dtype: np.dtype, origin):
    """``ld`` of one word by every thread."""
    check_scalar(context, address, dtype.itemsize, "ld", origin)
    see_word(context, address)
    return scalar_view(dtype)[element_index(address, dtype.itemsize)]


def atomic_poll(context: Program, address: int, expected, timeout, dtype: np.dtype) -> Steps:
    """Triton 3.9's ``atomic_poll``: wait for equality; gives False once ``timeout`` simulated nanoseconds have passed."""
    if timeout is None:
        yield from wait(context, address, 1, expected, "eq", dtype.itemsize)
        return np.True_
    order = context.order
    check_scalar(context, address, dtype.itemsize, "atomic_poll", None)
    view, index = scalar_view(dtype), element_index(address, dtype.itemsize)
    deadline = context.clock + timeout
    while view[index] != dtype.type(expected):
        if context.clock >= deadline:
            return np.False_
        context.clock += context.rates.clock_read_ns
        yield
    see_word(context, address)
    if context.race is not None:
        context.race.checker.waited(context, address, dtype.itemsize, order, "eq", int(expected))
    return np.True_


def atomic_poll_tile(context: Program, pointers, expected, timeout, dtype: np.dtype, shape: tuple[int, ...]) -> Steps:
    """``atomic_poll`` of a tile of words, one after the other, within one time budget for all; gives an array of booleans."""
    addresses, wanted = np.broadcast_to(full(pointers), shape), np.broadcast_to(expected, shape)
    deadline = None if timeout is None else context.clock + timeout
    seen = []
    for address, value in zip(addresses.ravel().tolist(), wanted.ravel().tolist(), strict=True):
        left = None if deadline is None else max(deadline - context.clock, 0)
        seen.append((yield from atomic_poll(context, address, value, left, dtype)))
    return np.array(seen, np.bool_).reshape(shape)


def thread_index(context: Program) -> np.ndarray:
    """``tid(0)``: one index for each thread of the block."""
    return np.arange(context.threads, dtype=np.int32)


def active_threads(context: Program, mask) -> np.ndarray:
    """For each thread of the block whether it comes here; all do where there is no mask."""
    if mask is None:
        return np.ones(context.threads, np.bool_)
    return np.broadcast_to(mask, (context.threads,))


def spread(context: Program, value, dtype: np.dtype) -> np.ndarray:
    """A value for each thread of the block."""
    return np.broadcast_to(np.asarray(value, dtype), (context.threads,))


def check_all_threads(context: Program, mask) -> None:
    """A block barrier under a condition hangs or worse on a GPU unless every thread comes."""
    active = active_threads(context, mask)
    if not active.all():
        raise SimulationError(
            f"a block barrier is reached by {int(active.sum())} of {context.threads} threads; move it out of the condition so that all come"
        )


def load_each(context: Program, addresses, on, dtype: np.dtype, mask, other=0) -> np.ndarray:
    """``ld`` or a scalar ``tl.load`` where each thread has its own address. other: what a thread has that does not load."""
    active = active_threads(context, mask) & spread(context, on, np.dtype(np.bool_))
    lanes = np.flatnonzero(active)
    places = spread(context, addresses, np.dtype(np.int64))[lanes]
    result = spread(context, other, dtype).copy()
    _check_lanes(context, places, dtype, "ld")
    if context.race is not None and lanes.size:
        _report_lanes(context, context.race, places, lanes, dtype.itemsize, "ld")
    result[lanes] = scalar_view(dtype)[element_index(places, dtype.itemsize)]
    for address in np.unique(places).tolist() if lanes.size else ():
        see_word(context, address)
    return result


def _check_lanes(context: Program, places: np.ndarray, dtype: np.dtype, what: str) -> None:
    context.lane = SILENT
    for address in np.unique(places).tolist():
        check_scalar(context, address, dtype.itemsize, what, None)
    context.lane = -1


def _report_lanes(context: Program, actor: ProgramActor, places: np.ndarray, lanes: np.ndarray, itemsize: int, what: str) -> None:
    """Tell the race check of accesses by threads with an address each."""
    if context.order is None:
        actor.checker.tile(context, places, itemsize, what, None, lanes)
        return
    for lane, address in zip(lanes.tolist(), places.tolist(), strict=True):
        context.lane = lane
        actor.checker.scalar(context, address, itemsize, what)
    context.lane = -1


def store_each(context: Program, addresses, values, dtype: np.dtype, mask, location: int) -> None:
    """``st`` where addresses or values differ from thread to thread. The last thread's value stays where several write one word."""
    lanes = np.flatnonzero(active_threads(context, mask))
    places = spread(context, addresses, np.dtype(np.int64))[lanes]
    data = spread(context, values, dtype)[lanes]
    for lane, address, value in zip(lanes.tolist(), places.tolist(), data, strict=True):
        context.lane = lane
        check_scalar(context, address, dtype.itemsize, "st", None)
        put_word(context, address, value, dtype, location)
    context.lane = -1


def store_first(context: Program, address, value, on, dtype: np.dtype, mask, location: int) -> None:
    """Stock ``tl.store`` of a scalar: thread 0 stores, and what the others would have stored is lost, which is an error.

    Raises SimulationError where thread 0 does not come here but others do, or they would store something else.
    """
    lanes = np.flatnonzero(active_threads(context, mask) & spread(context, on, np.dtype(np.bool_)))
    if not lanes.size:
        return
    places, data = spread(context, address, np.dtype(np.int64)), spread(context, value, dtype)
    place, word = int(places[0]), data[0]
    bits = np.dtype(f"u{dtype.itemsize}")
    lost = np.flatnonzero((places[lanes] != place) | (data[lanes].view(bits) != word.view(bits)))
    if lanes[0] or lost.size:
        thread = int(lanes[0] or lanes[lost[0]])
        why = "thread 0 does not come here" if lanes[0] else f"thread {thread} has another address or value"
        raise SimulationError(
            f"tl.store of a scalar is done by thread 0 alone, on a GPU too, and {why}; use st of triton_dist.language, by which each "
            "thread stores, or let all threads have the same"
        )
    check_scalar(context, place, dtype.itemsize, "store", None)
    put_word(context, place, word, dtype, location)


def atomic_add_each(context: Program, addresses, values, dtype: np.dtype, mask, location: int) -> np.ndarray:
    """``atomic_add`` by every active thread, in thread order; gives each the value that it saw."""
    result = np.zeros(context.threads, dtype)
    places, data = spread(context, addresses, np.dtype(np.int64)), spread(context, values, dtype)
    active = active_threads(context, mask)
    together = bool(active.all()) and bool((places == places[0]).all())
    if context.race is not None and together:
        context.race.checker.updates_of_block(context, int(places[0]), dtype.itemsize)
    for lane in np.flatnonzero(active).tolist():
        context.lane = SILENT if together else lane
        result[lane] = atomic_scalar(context, ADD, int(places[lane]), data[lane], True, dtype, None, location)
    context.lane = -1
    return result


def atomic_cas_each(context: Program, addresses, expected, values, dtype: np.dtype, mask, location: int) -> np.ndarray:
    """``atomic_cas`` by every active thread, in thread order; gives each the value that it saw."""
    result = np.zeros(context.threads, dtype)
    places = spread(context, addresses, np.dtype(np.int64))
    wanted, data = spread(context, expected, dtype), spread(context, values, dtype)
    for lane in np.flatnonzero(active_threads(context, mask)).tolist():
        context.lane = lane
        result[lane] = compare_and_swap_scalar(context, int(places[lane]), wanted[lane], data[lane], dtype, None, location)
    context.lane = -1
    return result


def wait_each(context: Program, addresses, counts, expected, compare: str, dtype: np.dtype, mask, location: int) -> Steps:
    """A ``wait`` whose words differ from thread to thread: each active thread's condition has to hold."""
    lanes = np.flatnonzero(active_threads(context, mask)).tolist()
    places = spread(context, addresses, np.dtype(np.int64))
    numbers = spread(context, counts, np.dtype(np.int32))
    values = spread(context, expected, dtype)
    for address, count, value in {(int(places[lane]), int(numbers[lane]), values[lane].item()) for lane in lanes}:
        yield from wait(context, address, count, value, compare, dtype.itemsize, location)
