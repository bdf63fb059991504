"""Collectives whose data carry their own signal: one way over the link, no barrier, no word besides; for small tensors.

Every rank stores what it sends straight into a place of its own at each peer, in words of 8 bytes: 4 bytes of data and behind them a flag
of 4 bytes, the number of the call (``primitives/flagged.py``; NCCL calls it LL). Whoever sees the flag has the data. It wins while twice
the bytes to every peer take less time than a signal: up to some hundred KiB. One kernel serves where every rank sends to every other one:
it sends the same to all or a part to each, and adds up what came or stores it part by part. ``broadcast``, where one sends, has its own.

Program ``p`` of a rank meets programs ``p`` of the others only, and counts its own pieces in ``epochs[p]``: the flag. Pieces take turns in
two slots. That is enough without any barrier: a place has one writer and one reader, and who writes piece ``e`` over piece ``e - 2`` has
read the reader's words of piece ``e - 1``, which it stored behind reading all of piece ``e - 2`` (a block barrier ends each piece, the end
of a kernel each call). So every program of a grid has at least one piece, every rank stores at least one unit of each piece to every peer,
who waits for it, and places never move: ``CAPACITY`` and the number of ranks lay them out, not the call.

A word that a short piece leaves alone keeps an old flag. Flags come round after 2**32 pieces, some hours; each place is stored anew long
before, whatever the pieces' lengths: once in ``_RENEWED`` pieces some in a row store a part each of what their own data leave alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.primitives.flagged_functions import push_flagged, take_flagged

from ...runtime.preload import Launch
from ...runtime.symmetric import symm_zeros
from ...triton_dtypes import TRITON_DTYPES
from ..team import Team, peer_addresses, workspace
from .plans import Plan
from .reduction import averaged, combine, rounded
from .staging import MAX_PROGRAMS
from .words import word_of

CAPACITY = 512
"""Units of a piece at most: 4 KiB of data, 8 KiB of words."""

UNIT_BYTES = 8
"""Data of a unit, which is two words."""

_SLOTS = 2
_RENEWED = tl.constexpr(1 << 24)
_RENEWED_AT_ONCE = tl.constexpr(32)
"""Units: of one warp, the fewest threads that a program has."""

_MOST_RANKS = 8
"""Beyond, a thread that loads the units of all ranks has too many registers, and every piece too many stores."""

_MOST_SPACE = 16 << 20
"""Bytes of the workspace; groups of many ranks have fewer programs."""

_FEWEST_WARPS = 4

_INTEGERS = {1: tl.int8, 2: tl.int16, 4: tl.int32, 8: tl.int64}


@triton.jit
def _at_the_place(element, part, EACH: tl.constexpr):
    """An integer element as element number ``part`` of a unit."""
    return (element.to(tl.int64) & (-1 if EACH == 1 else (1 << 64 // EACH) - 1)) << (part * (64 // EACH))


@triton.jit
def _load_units(x, unit, count, EACH: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr):
    """Elements of x, ``EACH`` in a unit of 8 bytes, as int64; zero behind the last. WHOLE: x is int64, and has whole units."""
    if WHOLE:
        units = tl.load(x + unit, mask=unit < count, other=0)
    else:
        units = unit * 0
        for part in tl.static_range(EACH):
            offset = unit * EACH + part
            element = tl.load(x + offset, mask=offset < count, other=0.0)
            units |= _at_the_place(element.to(INTEGER, bitcast=True), part, EACH)
    return units


@triton.jit
def _reduce_part(
    mine, theirs, index, SHIFT: tl.constexpr, ELEMENT: tl.constexpr, INTEGER: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """The elements ``SHIFT`` bits up in the units of all ranks, reduced in rank order; ``mine`` are those of rank ``index``."""
    total = (tl.where(index == 0, mine, theirs[0]) >> SHIFT).to(INTEGER).to(ELEMENT, bitcast=True).to(SUM)
    for rank in tl.static_range(1, SIZE):
        element = (tl.where(index == rank, mine, theirs[rank]) >> SHIFT).to(INTEGER).to(ELEMENT, bitcast=True)
        total = combine(total, element.to(SUM), OP)
    return rounded(averaged(total, OP, SIZE), ELEMENT)


@triton.jit
def _words_of_peers(peer_words, index, apart, SIZE: tl.constexpr):
    """Pointers to the words of every peer, beginning behind this rank, so that each begins with another one. apart: see the kernel."""
    peers = ()
    for step in tl.static_range(1, SIZE):
        words = tl.load(peer_words + (index + step) % SIZE + apart).to(tl.pointer_type(tl.int64))
        peers = peers + (tl.multiple_of(words, 16),)  # type: ignore[assignment]
    return peers


@triton.jit
def _load_sent(
    x, unit, count, index, EACH: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr, PARTS: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The units that this rank keeps and, with PARTS, those for each peer behind it; else all get the same. count: of a part."""
    if PARTS:
        units = ()
        for step in tl.static_range(SIZE):
            part = tl.cast((index + step) % SIZE, tl.int64) * count
            units = units + (_load_units(x + part, unit, count, EACH, INTEGER, WHOLE),)  # type: ignore[assignment]
    else:
        units = (_load_units(x, unit, count, EACH, INTEGER, WHOLE),)  # type: ignore[assignment]
    return units


@triton.jit
def _store_units(out, unit, data, count, mask, EACH: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr):
    """The inverse of ``_load_units``, for integer elements."""
    if WHOLE:
        tl.store(out + unit, data, mask=mask)
    else:
        for part in tl.static_range(EACH):
            tl.store(out + unit * EACH + part, (data >> (part * (64 // EACH))).to(INTEGER), mask=mask & (unit * EACH + part < count))


@triton.jit
def _store_sums(
    out, unit, mine, theirs, index, count, mask, EACH: tl.constexpr, ELEMENT: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr,
    SUM: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The units of all ranks, reduced."""
    if WHOLE:
        sums = mine * 0
        for part in tl.static_range(EACH):
            result = _reduce_part(mine, theirs, index, part * (64 // EACH), ELEMENT, INTEGER, SUM, OP, SIZE)
            sums |= _at_the_place(result.to(INTEGER, bitcast=True), part, EACH)
        tl.store(out + unit, sums, mask=mask)
    else:
        for part in tl.static_range(EACH):
            result = _reduce_part(mine, theirs, index, part * (64 // EACH), ELEMENT, INTEGER, SUM, OP, SIZE)
            tl.store(out + unit * EACH + part, result, mask=unit * EACH + part < count)


@triton.jit
def _slot_of(program, now, CAPACITY: tl.constexpr, SIZE: tl.constexpr):
    """Where the words of piece ``now`` of a program begin; pieces take turns in two slots."""
    return (program * 2 + (now & 1)) * (SIZE * CAPACITY * 2)


@triton.jit
def _renew(peers, there, place, data, now, sent, CAPACITY: tl.constexpr, UNITS: tl.constexpr, SIZE: tl.constexpr):
    """Store a part of what piece ``now`` leaves alone of this rank's places, if it is its turn. sent: units that the piece has stored."""
    turn = now & (_RENEWED - 1)
    other = (turn >> 1) * _RENEWED_AT_ONCE + place
    renewed = (turn < CAPACITY // _RENEWED_AT_ONCE * 2) & (place < _RENEWED_AT_ONCE) & ((other >= UNITS) | (other >= sent))
    for step in tl.static_range(SIZE - 1):
        push_flagged(peers[step] + (there + other * 2), data, now.to(tl.int32), renewed)


@triton_dist.jit(do_not_specialize=["index", "zero"])
def low_latency_kernel(
    x, out, words, peer_words, epochs, index, count, zero,
    SIZE: tl.constexpr, EACH: tl.constexpr, ELEMENT: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr, UNITS: tl.constexpr,
    CAPACITY: tl.constexpr, PARTS: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """``x``, or with PARTS its part of ``count`` elements for each rank, goes to every rank; ``out`` becomes what came, reduced, or with OP
    None one behind the other. With WHOLE x and out are int64, and ``count`` is of units.

    words: symmetric int64 words, (programs, 2 slots, SIZE, CAPACITY, 2); peer_words: int64 addresses of them on every rank. epochs: int64,
    pieces that each program has moved, in this rank's memory. SIZE: ranks of the team. EACH: elements of a unit. ELEMENT: their type.
    INTEGER: one as wide. UNITS: of a piece. SUM: type of the sums. OP: see reduction.py.
    zero: 0, which the compiler does not know. A word that all threads load by one address goes to the warp's uniform registers, and moving
    it there stops the warp: the loads of epoch, addresses and data would come one behind the other. Loaded ``apart``, by an address of
    each thread's own, all are under way together. For the same reason the data of a piece are asked for ahead of it.
    """
    program = tl.program_id(0)
    place = tl.arange(0, UNITS)
    apart = place * zero
    units = count if WHOLE else tl.cdiv(count, EACH)
    unit = program * UNITS + place.to(tl.int64)
    mine = _load_sent(x, unit, count, index, EACH, INTEGER, WHOLE, PARTS, SIZE)
    now = tl.load(epochs + program + apart)
    peers = _words_of_peers(peer_words, index, apart, SIZE)
    for first in range(program * UNITS, units, tl.num_programs(0) * UNITS):
        inside = unit < units
        now += 1
        flag = now.to(tl.int32)
        slot = _slot_of(program, now, CAPACITY, SIZE)
        there = slot + index * (CAPACITY * 2)
        for step in tl.static_range(SIZE - 1):
            push_flagged(peers[step] + (there + place * 2), mine[step + 1 if PARTS else 0], flag, inside)
        theirs = take_flagged(words + (slot + place * 2), CAPACITY * 16, flag, index, inside, SIZE)
        if OP is None:
            for rank in tl.static_range(SIZE):
                came = tl.where(index == rank, mine[0], theirs[rank])
                _store_units(out + tl.cast(count, tl.int64) * rank, unit, came, count, inside, EACH, INTEGER, WHOLE)
        else:
            _store_sums(out, unit, mine[0], theirs, index, count, inside, EACH, ELEMENT, INTEGER, WHOLE, SUM, OP, SIZE)
        _renew(peers, there, place, mine[0], now, units - first, CAPACITY, UNITS, SIZE)
        unit += tl.num_programs(0) * UNITS
        mine = _load_sent(x, unit, count, index, EACH, INTEGER, WHOLE, PARTS, SIZE)
        tl.debug_barrier()  # so that what any thread stores for the next piece comes behind the whole block's reading this one
    tl.store(epochs + program + apart, now, mask=place == 0)


@triton_dist.jit(do_not_specialize=["index", "source", "zero"])
def low_latency_broadcast_kernel(
    x, out, words, peer_words, epochs, index, source, count, zero,
    SIZE: tl.constexpr, EACH: tl.constexpr, INTEGER: tl.constexpr, WHOLE: tl.constexpr, UNITS: tl.constexpr, CAPACITY: tl.constexpr,
    COPY: tl.constexpr,
):  # fmt: skip
    """``out`` becomes ``x`` of rank ``source`` of the team, which writes its own only with COPY; the rest as in ``low_latency_kernel``.

    All others store the first unit of each piece, with no data, to every peer, and all wait for it at the end of the piece: whoever is the
    source of the next but one knows then that what it stores over has been read.
    """
    program = tl.program_id(0)
    place = tl.arange(0, UNITS)
    apart = place * zero
    units = count if WHOLE else tl.cdiv(count, EACH)
    unit = program * UNITS + place.to(tl.int64)
    sends = index == source
    given = tl.where(sends, count, 0)
    mine = _load_units(x, unit, given, EACH, INTEGER, WHOLE)
    now = tl.load(epochs + program + apart)
    peers = _words_of_peers(peer_words, index, apart, SIZE)
    for first in range(program * UNITS, units, tl.num_programs(0) * UNITS):
        inside = unit < units
        now += 1
        flag = now.to(tl.int32)
        slot = _slot_of(program, now, CAPACITY, SIZE)
        there = slot + index * (CAPACITY * 2)
        for step in tl.static_range(SIZE - 1):
            push_flagged(peers[step] + (there + place * 2), mine, flag, inside & (sends | (place == 0)))
        came = take_flagged(words + (slot + source * (CAPACITY * 2) + place * 2), CAPACITY * 16, flag, 1, inside & (index != source), 1)
        _store_units(out, unit, tl.where(sends, mine, came[0]), count, inside & ((index != source) | COPY), EACH, INTEGER, WHOLE)
        take_flagged(words + (slot + place * 2), CAPACITY * 16, flag, index, place == 0, SIZE)
        _renew(peers, there, place, mine, now, tl.where(sends, units - first, 1), CAPACITY, UNITS, SIZE)
        unit += tl.num_programs(0) * UNITS
        mine = _load_units(x, unit, given, EACH, INTEGER, WHOLE)
        tl.debug_barrier()  # as above
    tl.store(epochs + program + apart, now, mask=place == 0)


@dataclass
class LowLatencySpace:
    """The memory of one team and stream; see the kernel. programs: for how many there is room."""

    words: torch.Tensor
    peer_words: torch.Tensor
    epochs: torch.Tensor
    programs: int


def most_programs(size: int) -> int:
    """Programs that a team of ``size`` ranks has room for."""
    return max(1, min(MAX_PROGRAMS, _MOST_SPACE // (_SLOTS * size * CAPACITY * 16)))


def _space_of(what: str, team: Team, group: object, device: torch.device) -> LowLatencySpace:
    def make() -> LowLatencySpace:
        programs = most_programs(team.size)
        # Zeros, on all ranks before any goes on: a flag that is left over would be taken for one of a call.
        words = symm_zeros((programs, _SLOTS, team.size, CAPACITY, 2), torch.int64, name="flagged words", group=group)
        return LowLatencySpace(words, peer_addresses(words, team), torch.zeros(programs, dtype=torch.int64, device=device), programs)

    return workspace(f"{what} ll", team.ranks, make)


def reducing_launch(
    what: str, x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str, plan: Plan
) -> Launch:
    """What ``all_reduce`` and ``reduce_scatter`` launch for "ll"; for contiguous tensors with at least one element, checked before.

    what: the operator. accumulator: the type of the sums. All ranks of the team call it with the same sizes and ``plan``.
    """
    width, nbytes = x.element_size(), out.numel() * x.element_size()
    word = torch.int64 if word_of(nbytes, x, out)[0] == UNIT_BYTES else x.dtype
    return _launch(what, low_latency_kernel, x, out, team, group, plan, nbytes, word)(
        ELEMENT=TRITON_DTYPES[x.dtype], EACH=UNIT_BYTES // width, INTEGER=_INTEGERS[width], PARTS=what == "reduce_scatter",
        SUM=accumulator, OP=op,
    )  # fmt: skip


def moving_launch(what: str, x: torch.Tensor, out: torch.Tensor, team: Team, group: object, plan: Plan) -> Launch:
    """What ``all_gather`` and ``all_to_all`` of equal parts launch for "ll"; as ``reducing_launch``."""
    nbytes = out.numel() * out.element_size() // team.size
    width, word = word_of(nbytes, x, out)
    return _launch(what, low_latency_kernel, x, out, team, group, plan, nbytes, word)(
        ELEMENT=_INTEGERS[width], EACH=UNIT_BYTES // width, INTEGER=_INTEGERS[width], PARTS=what == "all_to_all", SUM=None, OP=None
    )


def broadcasting_launch(x: torch.Tensor, out: torch.Tensor, source: int, team: Team, group: object, plan: Plan) -> Launch:
    """What ``broadcast`` launches for "ll"; as ``reducing_launch``. source: its place in the team."""
    nbytes = x.numel() * x.element_size()
    width, word = word_of(nbytes, x, out)
    return _launch("broadcast", low_latency_broadcast_kernel, x, out, team, group, plan, nbytes, word, source)(
        EACH=UNIT_BYTES // width, INTEGER=_INTEGERS[width], COPY=x.data_ptr() != out.data_ptr()
    )


def _launch(
    what: str, kernel: Any, x: torch.Tensor, out: torch.Tensor, team: Team, group: object, plan: Plan, nbytes: int, word: torch.dtype,
    *more: int,
) -> Callable[..., Launch]:  # fmt: skip
    """The launch of a kernel, but for constants of its own. nbytes: of what goes from one rank to another. more: arguments behind index."""
    space = _space_of(what, team, group, x.device)
    warps = min(plan.warps, CAPACITY // 32) or warps_for(nbytes, space.programs)
    units = 32 * warps
    pieces = triton.cdiv(nbytes, UNIT_BYTES * units)
    given = tuple(tensor.view(-1).view(word) for tensor in (x, out))

    def launch(**constants: Any) -> Launch:
        return Launch.of(kernel, min(pieces, plan.programs or space.programs, space.programs))(
            *given, space.words.view(-1), space.peer_words, space.epochs, team.index, *more, nbytes // word.itemsize, 0,
            SIZE=team.size, WHOLE=word == torch.int64, UNITS=units, CAPACITY=CAPACITY, num_warps=warps, **constants,
        )  # fmt: skip

    return launch


def pays(wire_bytes: int, most: int, size: int) -> bool:
    """Whether "ll" is the method for what a rank sends to its peers, ``wire_bytes`` with the flags, where ``most`` is worth it."""
    return 1 < size <= _MOST_RANKS and wire_bytes <= most


def warps_for(nbytes: int, programs: int) -> int:
    """Warps of a program, a thread a unit: as few as move all in one piece each, from 4 on, up to what a place holds."""
    needed = triton.next_power_of_2(triton.cdiv(triton.cdiv(nbytes, UNIT_BYTES * 32), programs))
    return max(_FEWEST_WARPS, min(needed, CAPACITY // 32))
