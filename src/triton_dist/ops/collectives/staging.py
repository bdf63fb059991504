"""What the collectives of one kernel share: parts that are staged in symmetric memory, words that say so, and epochs that tell calls apart.

Program ``p`` of every rank moves pieces ``p`` only, so that it has to meet nobody but programs ``p`` of the other ranks. Nothing is counted
on the host and nothing is reset: staging has two slots that calls take in turn by an epoch in device memory, words only grow, and a rank
that has seen a peer's word of one call knows that the peer has finished the call before. Words have 64 bits: 32 are counted up in hours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import triton_dist.language as dl

from ...runtime.symmetric import symm_zeros
from ..team import GrowingBuffer, Team, peer_addresses, workspace

MAX_PROGRAMS = 128
_MAX_PROGRAMS = tl.constexpr(MAX_PROGRAMS)
BYTES_A_PROGRAM = 8 << 10
LINE = 128
"""Bytes: 16 elements of any dtype, which Triton has to know of an offset to load whole words of 16 bytes behind it."""


@triton.jit
def meet(arrived, peer_arrived, index, size, now, SIZE: tl.constexpr):
    """Tell programs of this number on all ranks of a team that what this one has stored is there, and wait for theirs. Returns a token.

    arrived: symmetric int64 words (MAX_PROGRAMS, size); word ``[p, s]`` is set to the epoch by program ``p`` of rank ``s`` of the team.
    peer_arrived: int64 addresses of it on every rank. index: this rank's place in the team. now: the epoch. SIZE: at least ``size``, a
    power of 2.
    """
    program = tl.program_id(0)
    tl.debug_barrier()  # so that each release below covers the stores of the whole block
    peer = tl.arange(0, SIZE)
    words = tl.load(peer_arrived + peer, mask=peer < size, other=0).to(tl.pointer_type(tl.int64)) + (program * size + index)
    tl.atomic_xchg(words, now, mask=peer < size, sem="release", scope="sys")
    return dl.wait(arrived + program * size, size, "sys", "acquire", waitValue=now, cmp="ge")


@triton.jit
def peer_pointers(peer_staging, peer, size, ELEMENT: tl.constexpr):
    """Pointers to the staging memory of the ranks ``peer``, a tensor, from the addresses of all; null from ``size`` on."""
    # The alignment is of the pointers: of the integers that they are made from it would be forgotten.
    return tl.multiple_of(tl.load(peer_staging + peer, mask=peer < size, other=0).to(tl.pointer_type(ELEMENT)), 16)


@triton.jit
def copy_parts(
    source, target, begin, end, source_end, source_part, target_part, readable, writable, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    UNROLLED: tl.constexpr,
):  # fmt: skip
    """Elements ``[begin, end)`` of each of ``SIZE`` parts of ``source`` become those of ``target``; those that are not there become 0.

    source_end: elements of a part of ``source``; those behind them are not read, another program may write them. source_part, target_part:
    from one part to the next. readable, writable: elements of all parts, in source and target. UNROLLED: the loads of all parts are under
    way together; else each has to wait for the store before it.
    """
    read = tl.minimum(end, source_end)
    if UNROLLED:
        for first in range(begin, end, BLOCK):
            inner = first + tl.arange(0, BLOCK)
            values = ()
            for part in tl.static_range(SIZE):
                offset = tl.cast(source_part, tl.int64) * part + inner
                values = values + (tl.load(source + offset, mask=(inner < read) & (offset < readable), other=0.0),)  # type: ignore[assignment]
            for part in tl.static_range(SIZE):
                offset = tl.cast(target_part, tl.int64) * part + inner
                tl.store(target + offset, values[part], mask=(inner < end) & (offset < writable))
    else:
        for part in range(SIZE):
            for first in range(begin, end, BLOCK):
                inner = first + tl.arange(0, BLOCK)
                offset = tl.cast(source_part, tl.int64) * part + inner
                value = tl.load(source + offset, mask=(inner < read) & (offset < readable), other=0.0)
                offset = tl.cast(target_part, tl.int64) * part + inner
                tl.store(target + offset, value, mask=(inner < end) & (offset < writable))


@triton.jit
def begin_call(epochs):
    """The epoch of this call. epochs: (MAX_PROGRAMS,) int64 words of this rank's own, all of the same value between calls."""
    return tl.load(epochs + tl.program_id(0)) + 1


@triton.jit
def end_call(epochs, now):
    """Make ``now`` the epoch: each program for itself, and for its share of the programs that this grid does not have.

    No program has to know which is the last: nobody reads a word that another program of the same call stores.
    """
    program = tl.arange(0, _MAX_PROGRAMS)
    tl.store(epochs + program, now, mask=program % tl.num_programs(0) == tl.program_id(0))


@dataclass
class Staging:
    """Memory of one collective, team and stream. arrived: (MAX_PROGRAMS, size), symmetric; epochs: see ``begin_call``."""

    buffer: GrowingBuffer
    arrived: torch.Tensor
    peer_arrived: torch.Tensor
    epochs: torch.Tensor

    def two_slots(self, nbytes: int) -> torch.Tensor:
        """The staging memory, uint8; each half of it is a slot of at least ``nbytes`` bytes.

        Slots are whole lines. Calls may see the memory as elements of different width: where the second slot began at another byte for
        each of them, a call could stage what peers still read of the call before.
        """
        return self.buffer.at_least(2 * triton.cdiv(nbytes, LINE) * LINE)


def new_staging(what: str, team: Team, group: object, device: torch.device) -> Staging:
    """Staging memory of its own, made by all ranks of the team together. what: the operator."""
    arrived = symm_zeros((MAX_PROGRAMS, team.size), torch.int64, name="arrived", group=group)
    return Staging(
        buffer=GrowingBuffer.symmetric(what, "staging", group),
        arrived=arrived,
        peer_arrived=peer_addresses(arrived, team),
        epochs=torch.zeros(MAX_PROGRAMS, dtype=torch.int64, device=device),
    )


def staging_of(what: str, team: Team, group: object, device: torch.device) -> Staging:
    """The staging memory of collective ``what``; made, by all ranks of the team together, at the first call on a stream."""
    return workspace(what, team.ranks, lambda: new_staging(what, team, group, device))


def programs_for(nbytes: int) -> int:
    """How many programs move a piece each of ``nbytes`` bytes."""
    return max(1, min(MAX_PROGRAMS, triton.cdiv(nbytes, BYTES_A_PROGRAM)))
