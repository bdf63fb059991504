"""What the SHMEM functions mean on the simulator. Ranks are found by number, so a rank without a direct pointer is reached, too."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...errors import LanesMissingWarning, NotSymmetricError, SimulationError, UnreachablePeerError
from ...runtime.address_map import STRIDE, rank_of
from ..check.actors import EACH
from ..memory import WORDS, element_index, scalar_view
from ..pending import PendingCopy, SignalUpdate, update_signal
from ..requests import Steps
from . import multicast, primitives

if TYPE_CHECKING:
    from ..check.actors import Threads
    from ..program import Program

WARP = 32

_SIGNAL_SET, _COMPARISONS = 9, ("eq", "ne", "gt", "le", "lt", "ge")
"""NVSHMEM's numbers of what signals and waits do."""


def _calls(context: Program, what: str, level: str, mask, operands: tuple, location: int) -> list[tuple[tuple[int, ...], int, int]]:
    """The different calls that a block's threads make here: the operands, how often they are made, and the first thread that does.

    level: who makes one call together. Raises SimulationError where a block or a warp does not make one call.
    """
    if mask is None and not any(isinstance(operand, np.ndarray) for operand in operands):
        times = {"thread": context.threads, "warp": context.threads // WARP, "block": 1}[level]
        return [(tuple(int(operand) for operand in operands), times, 0)]
    active = primitives.active_threads(context, mask)
    spread = np.stack([np.broadcast_to(np.asarray(operand, np.int64), (context.threads,)) for operand in operands], axis=1)
    if level == "thread":
        rows, threads = spread[active].tolist(), np.flatnonzero(active).tolist()
    elif level == "block":
        if not active.all():
            raise SimulationError(
                f"{what} is a call of the whole block, but {int(active.sum())} of {context.threads} threads come here; move it out of the "
                "condition, or use the form for a warp or a thread"
            )
        rows, threads = [_one_call(what, "block", spread)], [0]
    else:
        rows, threads = [], []
        for first in range(0, context.threads, WARP):
            here = active[first : first + WARP]
            if here.any():
                rows.append(_one_call(what, "warp", spread[first : first + WARP][here]))
                threads.append(first)
                if not here.all():
                    _warn_of_missing_lanes(context, what, int(here.sum()), location)
    counted: dict[tuple[int, ...], list[int]] = {}
    for row, thread in zip(rows, threads, strict=True):
        counted.setdefault(tuple(row), []).append(thread)
    return [(row, len(callers), callers[0]) for row, callers in counted.items()]


def _together(level: str, first: int) -> Threads:
    """The threads that make a call together, for the race check."""
    return None if level == "block" else tuple(range(first, first + WARP)) if level == "warp" else (first,)


def _one_call(what: str, group: str, rows: np.ndarray) -> list[int]:
    if (rows != rows[0]).any():
        raise SimulationError(f"{what} is one call of a {group}, but its threads pass different arguments; use the form for a thread")
    return rows[0].tolist()


def _warn_of_missing_lanes(context: Program, what: str, count: int, location: int) -> None:
    warnings.warn(
        f"{context.describe()} at {context.launch.kernel.location(location)}: {what} is a call of all {WARP} threads of a warp, but "
        f"{count} of them come here; NVSHMEM leaves undone what the others should do",
        LanesMissingWarning,
        stacklevel=2,
    )


def on_rank(context: Program, address: int, pe: int, what: str) -> int:
    """The address of the same symmetric object on ``pe``, whether or not there is a direct pointer. Raises the named errors."""
    owner = rank_of(address)
    if owner is None or owner >= context.world_size:
        owner = context.memory.check_symmetric(address, what).rank
    allocation = context.memory.find(address)
    if allocation is not None and allocation.foreign not in ("", "NVSHMEM"):
        raise NotSymmetricError(
            f'{what}: {allocation.name!r} is torch\'s symmetric memory, allocated by the backend "{allocation.foreign}", which NVSHMEM '
            'does not know; call set_backend("NVSHMEM") before it is allocated'
        )
    if not 0 <= pe < context.world_size:
        raise UnreachablePeerError(
            f"{what}: there is no rank {pe} in a world of {context.world_size}; ranks go from 0 to {context.world_size - 1}"
        )
    return address + (pe - owner) * STRIDE  # type: ignore[operator]


def _copy(context: Program, what: str, target: int, source: int, nbytes: int, is_get: bool, blocking: bool, location: int) -> PendingCopy:
    """A copy with its addresses checked and its time charged. A blocking put has read its source."""
    if nbytes < 0:
        raise SimulationError(f"{what}: bytes is {nbytes}; it has to be 0 or more")
    copy = PendingCopy(context, location, target, source, nbytes, is_get)
    if nbytes:
        written = context.memory.check(target, target + nbytes, 1, f"{what} to")
        read = context.memory.check(source, source + nbytes, 1, f"{what} from")
        if context.machine.timing:
            (context.read if is_get else context.write)(  # type: ignore[attr-defined]
                source if is_get else target, nbytes, read if is_get else written
            )
        else:
            context.charge((nbytes,), 1, read if is_get else written)
        if blocking and not is_get and not context.machine.timing:
            copy.data = ctypes.string_at(source, nbytes)
    return copy


def put(context: Program, what: str, level: str, nbi: int, mask, dest, source, nbytes, pe, location: int) -> None:
    """A put lands later; one that is made several times at once lands once."""
    for (to, start, size, rank), _, first in _calls(context, what, level, mask, (dest, source, nbytes, pe), location):
        copy = _copy(context, what, on_rank(context, to, rank, what), start, size, False, not nbi, location)
        if context.race is not None:
            context.race.checker.put_begins(context, what, _together(level, first), copy.target, start, size, not nbi)
        context.machine.pending.add(copy)


def get(context: Program, what: str, level: str, nbi: int, mask, dest, source, nbytes, pe, location: int) -> None:
    """A get reads when it lands: at once, or with nbi later."""
    for (to, start, size, rank), _, first in _calls(context, what, level, mask, (dest, source, nbytes, pe), location):
        copy = _copy(context, what, to, on_rank(context, start, rank, what), size, True, not nbi, location)
        if context.race is not None:
            context.race.checker.get_begins(context, what, _together(level, first), to, copy.source, size, not nbi)
        if nbi:
            context.machine.pending.add(copy)
        else:
            context.machine.pending.run(copy)


def put_signal(
    context: Program, what: str, level: str, nbi: int, op: str, size: int, mask,
    dest, source, nbytes, sig_addr, signal, pe, location: int,
) -> None:  # fmt: skip
    """Data and signal land together, later. size: bytes of the signal word."""
    for (to, start, count, word, value, rank), times, first in _calls(
        context, what, level, mask, (dest, source, nbytes, sig_addr, signal, pe), location
    ):
        address = on_rank(context, word, rank, f"{what} (sig_addr)")
        context.memory.check_word(address, size, f"{what} (sig_addr)")
        copy = _copy(context, what, on_rank(context, to, rank, what), start, count, False, not nbi, location)
        copy.signal = SignalUpdate(address, value * times if op == "add" else value, op, size)
        if context.race is not None:
            copy.race = context.race.checker.put_begins(context, what, _together(level, first), copy.target, start, count, not nbi)
        context.machine.pending.add(copy)


def signal(context: Program, op: str, size: int, mask, sig_addr, signal, pe, location: int) -> None:
    """A signal lands at once: no put before it does, unless a fence has made it."""
    for (word, value, rank), times, first in _calls(context, "signal_op", "thread", mask, (sig_addr, signal, pe), location):
        address = on_rank(context, word, rank, "signal_op")
        context.memory.check_word(address, size, "signal_op")
        if context.memory_ns:
            context.settle()
        if rank == context.rank:
            seen = context.clock = context.clock + context.rates.local_ns
        else:
            seen = context.clock + context.rates.signal_ns
            context.clock += context.rates.notify_ns
        if context.race is not None:
            context.race.checker.signals(context, first if times == 1 else EACH, address, size, op == "add")
        update_signal(context, SignalUpdate(address, value * times if op == "add" else value, op, size), location, seen)


def signal_operation(number: int) -> str:
    """What a number says that a signal does. NVSHMEM adds where it is not SET's, among GPUs that reach each other directly."""
    return "set" if int(number) == _SIGNAL_SET else "add"


def comparison(number: int) -> str:
    """What a number says that a wait compares by. Raises SimulationError for none of NVSHMEM's."""
    if not 0 <= int(number) < len(_COMPARISONS):
        raise SimulationError(f"wait_until: the comparison {int(number)} is none of NVSHMEM's; they are EQ 0, NE 1, GT 2, LE 3, LT 4, GE 5")
    return _COMPARISONS[int(number)]


def signal_wait(context: Program, mask, address, expected, compare: str, dtype: np.dtype, location: int) -> Steps:
    """``signal_wait_until``; gives what the word holds then."""
    if not isinstance(address, np.ndarray) and not isinstance(expected, np.ndarray):
        callers = [EACH] if mask is None else _lanes(context, mask)
        yield from primitives.wait(context, address, 1, expected, compare, dtype.itemsize, location, callers)
        return WORDS[dtype.itemsize][element_index(address, dtype.itemsize)]
    lanes = _lanes(context, mask)
    places, values = primitives.spread(context, address, np.dtype(np.int64)), primitives.spread(context, expected, dtype)
    waits: dict[tuple[int, int], list[int]] = {}
    for lane in lanes:
        waits.setdefault((int(places[lane]), values[lane].item()), []).append(lane)
    for (place, value), callers in waits.items():
        yield from primitives.wait(context, place, 1, value, compare, dtype.itemsize, location, callers)
    result = np.zeros(context.threads, dtype)
    result[lanes] = scalar_view(dtype)[element_index(places[lanes], dtype.itemsize)]
    return result


def _lanes(context: Program, mask) -> list[int]:
    return np.flatnonzero(primitives.active_threads(context, mask)).tolist()


def store_scalar(context: Program, dtype: np.dtype, mask, dest, value, pe, location: int) -> None:
    """``p``: each thread's scalar lands later, as a blocking put does."""
    size = dtype.itemsize
    active = primitives.active_threads(context, mask)
    data = np.ascontiguousarray(np.broadcast_to(np.asarray(value, dtype), (context.threads,)))
    bits = data.view(f"i{size}").astype(np.int64)
    for (to, pattern, rank), _, first in _calls(context, "p", "thread", active, (dest, bits, pe), location):
        target = on_rank(context, to, rank, "p")
        context.memory.check_word(target, size, "p")
        context.charge((size,), 1, context.memory.find(target))
        copy = PendingCopy(context, location, target, 0, size, data=int(pattern).to_bytes(8, "little", signed=True)[:size])
        if context.race is not None:
            context.race.checker.put_begins(context, "p", (first,), target, None, size, True)
        context.machine.pending.add(copy)


def load_scalar(context: Program, dtype: np.dtype, mask, source, pe):
    """``g``: one scalar, or an array of one for each thread where pointer or rank differ."""
    if not isinstance(source, np.ndarray) and not isinstance(pe, np.ndarray):
        return primitives.load_word(context, on_rank(context, source, pe, "g"), dtype, None)
    active = primitives.active_threads(context, mask)
    places = np.zeros(context.threads, np.int64)
    where, ranks = np.broadcast_to(source, places.shape), np.broadcast_to(pe, places.shape)
    for lane in np.flatnonzero(active).tolist():
        places[lane] = on_rank(context, int(where[lane]), int(ranks[lane]), "g")
    return primitives.load_each(context, places, True, dtype, active)


def remote_ptr(context: Program, mask, address, pe):
    """The peer's address, or NULL without a direct pointer; one for each thread where an operand differs."""
    return _each(context, mask, lambda place, rank: _remote_address(context, place, rank), address, pe)


def _remote_address(context: Program, address: int, pe: int) -> int:
    machine = context.machine
    if not 0 <= pe < context.world_size or machine.node_of(pe) != machine.node_of(context.rank):
        return 0
    return on_rank(context, address, pe, "remote_ptr")


def remote_mc_ptr(context: Program, mask, address, team):
    """The multicast address on a team, or NULL; one for each thread where an operand differs."""
    return _each(context, mask, lambda place, number: multicast.address_of(context, place, number), address, team)


def team_my_pe(context: Program, mask, team):
    """This rank's place in a team, -1 if it is in none of that number."""

    def place(number: int) -> int:
        members = context.machine.teams.members(context.rank, number)
        return -1 if members is None else members.index(context.rank)

    return _each(context, mask, place, team)


def team_n_pes(context: Program, mask, team):
    """Ranks of a team, -1 if this rank is in none of that number."""
    return _each(context, mask, lambda number: len(context.machine.teams.members(context.rank, number) or ()) or -1, team)


def team_translate_pe(context: Program, mask, src_team, place, dest_team):
    """The place in one team of the rank at a place of another one; -1 if it has none."""

    def translate(source: int, index: int, destination: int) -> int:
        old = context.machine.teams.members(context.rank, source) or ()
        new = context.machine.teams.members(context.rank, destination) or ()
        return new.index(old[index]) if 0 <= index < len(old) and old[index] in new else -1

    return _each(context, mask, translate, src_team, place, dest_team)


def _each(context: Program, mask, function: Callable[..., int], *operands):
    """A function of integers, for all threads at once or for each active one; the others get 0."""
    if not any(isinstance(operand, np.ndarray) for operand in operands):
        return function(*(int(operand) for operand in operands))
    spread = [np.broadcast_to(operand, (context.threads,)) for operand in operands]
    result = np.zeros(context.threads, np.int64 if len(operands) == 2 else np.int32)
    for lane in np.flatnonzero(primitives.active_threads(context, mask)).tolist():
        result[lane] = function(*(int(operand[lane]) for operand in spread))
    return result


def quiet(context: Program, mask) -> None:
    """Everything that this rank has issued lands."""
    context.machine.pending.complete(context.rank)
    if context.race is not None:
        context.race.checker.quiet(context, None if mask is None else tuple(_lanes(context, mask)))


def fence(context: Program, mask) -> None:
    """The puts that this rank has issued land, before anything that it does later."""
    context.machine.pending.deliver(context.rank)
    if context.race is not None:
        context.race.checker.fence(context, None if mask is None else tuple(_lanes(context, mask)))


def barrier(context: Program, what: str, level: str, completes: int, mask, team, location: int) -> Steps:
    """Waits until every rank of the team has come as often as this one. Raises SimulationError if several callers of a rank come."""
    (number,), threads = one_caller(context, what, level, mask, (team,), location)
    yield from meet(context, what, number, completes, location, threads)


def one_caller(context: Program, what: str, level: str, mask, operands: tuple, location: int) -> tuple[tuple[int, ...], Threads]:
    """The operands of a call that one ``level`` of the block makes, and its threads. Raises SimulationError if several make it."""
    calls = _calls(context, what, level, mask, operands, location)
    times = sum(count for _, count, _ in calls)
    if times != 1:
        block = what.removesuffix("_warp") + "_block"
        raise SimulationError(
            f"{what} is called by {times} {level}s of the block, but one {level} of each rank has to call it; put it under a condition "
            f"such as tid(0) == 0, or call {block} by the whole block"
        )
    return calls[0][0], _together(level, calls[0][2])


def members_of(context: Program, what: str, number: int) -> tuple[int, ...]:
    """World ranks of the team with this number. Raises SimulationError if the program's rank is in none."""
    teams = context.machine.teams
    members = teams.members(context.rank, number)
    if members is None:
        raise SimulationError(
            f"{what}: rank {context.rank} is in no team {number}; its teams are {teams.known(context.rank)}. Make one by "
            "triton_dist.make_team, and pass triton_dist.team_number(team) to the kernel"
        )
    return members


def meet(context: Program, what: str, number: int, completes: int, location: int, threads: Threads) -> Steps:
    """The barrier of a team, for one caller of each rank.

    completes: whether puts under way are complete behind it. Raises SimulationError.
    """
    teams, pending = context.machine.teams, context.machine.pending
    members = members_of(context, what, number)
    meeting = teams.meeting(context.rank, number)
    if meeting.inside is not None:
        raise SimulationError(
            f"{what} of team {number} while {meeting.inside.describe()} is in a barrier of this team; one caller of each rank at a time"
        )
    meeting.inside = context
    recorder = context.machine.recorder
    noted = None if recorder is None else recorder.barrier_begins(context, what, number, location)
    if completes:
        pending.complete(context.rank)
    context.settle()
    meeting.epoch += 1
    epoch, place = meeting.epoch, members.index(context.rank)
    if context.race is not None:
        meeting.known.pop(epoch - 2, None)  # a rank that comes again has met all others once
        meeting.known[epoch] = context.race.checker.arrives(context, threads, bool(completes))
    seen = context.clock + context.rates.signal_ns
    for peer in members:
        word = SignalUpdate(teams.meeting(peer, number).address(place), epoch, "set", 4)
        update_signal(context, word, location, context.clock if peer == context.rank else seen)
    if len(members) > 1:
        context.clock += context.rates.notify_ns
    yield
    yield from primitives.wait(context, meeting.address(0), len(members), epoch, "ge", 4, location, None)
    if context.race is not None:
        context.at = location
        context.race.checker.meets(context, threads, [teams.meeting(peer, number).known[epoch] for peer in members])
    meeting.inside = None
    if recorder is not None and noted is not None:
        recorder.barrier_ends(noted, context)


def put_to_member(context: Program, what: str, target: int, source: int, nbytes: int, threads: Threads, location: int) -> None:
    copy = _copy(context, what, target, source, nbytes, False, True, location)
    if context.race is not None:
        context.race.checker.put_begins(context, what, threads, target, source, nbytes, True)
    context.machine.pending.add(copy)


def broadcast(context: Program, what: str, level: str, mask, team, dest, source, nbytes, pe_root, location: int) -> Steps:
    """The root puts to every rank of the team; all meet behind it."""
    (number, to, start, size, root), threads = one_caller(context, what, level, mask, (team, dest, source, nbytes, pe_root), location)
    members = members_of(context, what, number)
    if not 0 <= root < len(members):
        raise SimulationError(f"{what}: pe_root is {root}; it has to be a place in team {number} of {len(members)} ranks")
    if members[root] == context.rank:
        for peer in members:
            put_to_member(context, what, on_rank(context, to, peer, what), start, size, threads, location)
    yield from meet(context, what, number, 1, location, threads)


def fcollect(context: Program, what: str, level: str, mask, team, dest, source, nbytes, location: int) -> Steps:
    """Each rank puts its part to every rank of the team; all meet behind it."""
    (number, to, start, size), threads = one_caller(context, what, level, mask, (team, dest, source, nbytes), location)
    members = members_of(context, what, number)
    place = members.index(context.rank)
    for peer in members:
        put_to_member(context, what, on_rank(context, to, peer, what) + place * size, start, size, threads, location)
    yield from meet(context, what, number, 1, location, threads)
