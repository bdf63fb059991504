"""Meetings at which ranks tell each other where their data are, so that what lies in symmetric memory is read and written in place.

A rank may stage what it brings, as in staging.py, or leave it where it is, if that is in its part of the symmetric heap; its word says
which: how far from its staging memory it is. So nothing has to be agreed on: each rank may pass memory of another kind, at another offset.

Program ``p`` of a rank meets programs ``p`` of the others twice a call. Words of ``places`` carry the number of the meeting and a place;
they are stored once a call, before the first meeting, and peers have read them before the second, whose words are ``done``. Each program
counts its own calls in ``epochs[p]``. So a word of ``places`` is at most one call behind the program that waits for it, and the bits that a
place leaves for the number, 28, are enough though they come round: a wait looks at the sign of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import triton_dist.language as dl

from ...runtime.address_map import STRIDE_BITS, rank_of
from ...runtime.symmetric import symm_zeros
from ...runtime.world import require_world
from ..team import GrowingBuffer, Team, peer_addresses, workspace
from .staging import MAX_PROGRAMS

ALIGNED = 16
"""Bytes that places are multiples of, and elements that a tensor has to have a multiple of: peers move whole words of 16 bytes there."""

_PLACE_BITS = tl.constexpr(STRIDE_BITS - 3)
"""Of a distance within a heap in units of 16 bytes, and its sign."""


@triton.jit
def place_of(pointer, staging):
    """Where ``pointer`` is, for a word: its distance from ``staging`` in units of 16 bytes, made positive."""
    return ((pointer.to(tl.int64) - staging.to(tl.int64)) >> 4) + (1 << (_PLACE_BITS - 1))


@triton.jit
def place_words(peer_places, index, size, SIZE: tl.constexpr):
    """Pointers to this rank's two words at each peer, one behind the other; loaded ahead of the meeting. See ``meet_at_places``."""
    lane = tl.arange(0, 2 * SIZE)
    base = tl.load(peer_places + lane % SIZE, mask=lane % SIZE < size, other=0).to(tl.pointer_type(tl.int64))
    return base + (tl.program_id(0) * 2 + lane // SIZE) * size + index


@triton.jit
def meet_at_places(places, words, now, source, target, size, SIZE: tl.constexpr):
    """Tell programs of this number on all ranks where to read and where to write, and wait for theirs. Returns a token.

    Whatever this block or an earlier kernel has stored there is seen by them. places: symmetric int64 (MAX_PROGRAMS, 2, size); of program
    ``p``: where to read on each rank, then where to write. words: of ``place_words``. source, target: of ``place_of``.
    """
    tl.debug_barrier()  # so that each release below covers the stores of the whole block
    lane = tl.arange(0, 2 * SIZE)
    word = (now << _PLACE_BITS) + tl.where(lane < SIZE, source, target)
    tl.atomic_xchg(words, word, mask=lane % SIZE < size, sem="release", scope="sys")
    return dl.wait(places + tl.program_id(0) * 2 * size, 2 * size, "sys", "acquire", waitValue=now << _PLACE_BITS, cmp="ge")


@triton.jit
def pointer_at(peer_staging, places, rank, ELEMENT: tl.constexpr):
    """What a rank has told. places: this program's, of the kind that is asked for."""
    place = tl.load(places + rank) & ((1 << _PLACE_BITS) - 1)
    pointer = tl.load(peer_staging + rank).to(tl.pointer_type(tl.int8)) + ((place - (1 << (_PLACE_BITS - 1))) << 4)
    # The alignment is of the last pointer: of what it was made from it would be forgotten.
    return tl.multiple_of(pointer.to(tl.pointer_type(ELEMENT), bitcast=True), 16)


@triton.jit
def pointers_at(peer_staging, places, ELEMENT: tl.constexpr, SIZE: tl.constexpr):
    """What all ranks have told, a tuple."""
    pointers = ()
    for rank in tl.static_range(SIZE):
        pointers = pointers + (pointer_at(peer_staging, places, rank, ELEMENT),)  # type: ignore[assignment]
    return pointers


@triton.jit
def done_words(peer_done, index, size, SIZE: tl.constexpr):
    """Pointers to this rank's word at each peer; loaded ahead of the meeting. See ``meet_again``."""
    peer = tl.arange(0, SIZE)
    base = tl.load(peer_done + peer, mask=peer < size, other=0).to(tl.pointer_type(tl.int64))
    return base + tl.program_id(0) * size + index


@triton.jit
def meet_again(done, words, now, size, SIZE: tl.constexpr):
    """The second meeting of a call: all ranks have read and written what they had to. done: symmetric int64 (MAX_PROGRAMS, size)."""
    tl.debug_barrier()  # as above; and all threads have read what peers may write now
    tl.atomic_xchg(words, now, mask=tl.arange(0, SIZE) < size, sem="release", scope="sys")
    return dl.wait(done + tl.program_id(0) * size, size, "sys", "acquire", waitValue=now, cmp="ge")


@dataclass
class PlacedSpace:
    """Memory of one collective, team and stream: staging memory, the words above, and ``epochs``, (MAX_PROGRAMS,), this rank's own."""

    buffer: GrowingBuffer
    places: torch.Tensor
    peer_places: torch.Tensor
    done: torch.Tensor
    peer_done: torch.Tensor
    epochs: torch.Tensor


def placed_space_of(what: str, team: Team, group: object, device: torch.device) -> PlacedSpace:
    """The memory of collective ``what``; made, by all ranks of the team together, at the first call on a stream."""

    def make() -> PlacedSpace:
        places = symm_zeros((MAX_PROGRAMS, 2, team.size), torch.int64, name="places", group=group)
        done = symm_zeros((MAX_PROGRAMS, team.size), torch.int64, name="done", group=group)
        return PlacedSpace(
            buffer=GrowingBuffer.symmetric(what, "staging", group),
            places=places,
            peer_places=peer_addresses(places, team),
            done=done,
            peer_done=peer_addresses(done, team),
            epochs=torch.zeros(MAX_PROGRAMS, dtype=torch.int64, device=device),
        )

    return workspace(what, team.ranks, make)


def in_place(tensor: torch.Tensor, team: Team) -> bool:
    """Whether peers of ``team`` can read and write a contiguous tensor where it is.

    It lies in this rank's part of symmetric memory that all ranks of the team have (``symm_empty``, ``symm_adopt``), begins at a multiple
    of 16 bytes and has a multiple of 16 elements. Costs a comparison for memory that is not symmetric.
    """
    address = tensor.data_ptr()
    owner = rank_of(address)
    if owner is None:  # nearly every tensor, so the rest need not be fast
        return False
    world = require_world("a collective")
    if owner != world.rank or address % ALIGNED or tensor.numel() % ALIGNED or not tensor.is_contiguous():
        return False
    block = world.heap.lookup(address)
    return block is not None and not block.freed and not getattr(block, "foreign", "") and set(team.ranks) <= set(block.ranks)
