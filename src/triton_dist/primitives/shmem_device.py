"""The SHMEM functions over direct pointers, as jit functions in portable Triton; ``shmem.py`` has what differs between GPUs.

One loop copies for puts, gets and collectives, whoever takes part: a thread, a warp or a block. A copy is ordinary loads and stores; what
orders it is the release of the signal, fence or barrier that follows. All words of a barrier lie in one place of the symmetric heap and
hold epochs, which only grow: nothing is reset and nothing comes from the host, so a replayed CUDA graph is right.
"""

from __future__ import annotations

import triton
import triton.language as tl

from triton_dist.primitives import shmem
from triton_dist.primitives.functions import atomic_add, ld, poll, st, symm_at
from triton_dist.runtime import context_layout
from triton_dist.runtime.address_map import FIRST_SLOT, MAX_WORLD_SIZE, STRIDE_BITS

_TEAM_TABLE = tl.constexpr(context_layout.word_address(context_layout.TEAM_TABLE))
_TEAM_RECORD_BYTES = tl.constexpr(context_layout.TEAM_RECORD_BYTES)
_TEAM_MEMBERS = tl.constexpr(context_layout.word_address(context_layout.TEAM_MEMBERS))
_MEMBERS_PER_TEAM = tl.constexpr(context_layout.MEMBERS_PER_TEAM)
_PEER_MASK = tl.constexpr(context_layout.word_address(context_layout.PEER_MASK))
_SHMEM_WORDS = tl.constexpr(context_layout.word_address(context_layout.SHMEM_WORDS))
_EPOCHS = tl.constexpr(context_layout.SHMEM_EPOCHS)
_STRIDE_BITS = tl.constexpr(STRIDE_BITS)
_FIRST_HEAP_SLOT = tl.constexpr(FIRST_SLOT + 1)
_MOST_RANKS = tl.constexpr(MAX_WORLD_SIZE)
_PLACE_BITS = tl.constexpr(shmem.PLACE_BITS)
_INDEX_MASK = tl.constexpr((1 << shmem.PLACE_BITS) - 1)


# ---------------------------------------------------------------------- addresses and teams


@triton.jit
def remote_ptr(ptr, pe):
    """``symm_at``, or NULL if the rank's heap is not mapped here or the pointer is not symmetric."""
    slot = (ptr.to(tl.int64) >> _STRIDE_BITS) - _FIRST_HEAP_SLOT
    known = (pe >= 0) & (pe < _MOST_RANKS) & (slot >= 0) & (slot < _MOST_RANKS)
    word = tl.where(known, pe >> 6, 0).to(tl.int64)
    mapped = tl.load((_PEER_MASK + word * 8).to(tl.pointer_type(tl.int64)))
    reachable = known & (((mapped >> (pe & 63).to(tl.int64)) & 1) == 1)
    # The hint, which is true of 0, keeps what Triton knows of the pointer's alignment.
    null = tl.multiple_of(tl.full((), 0, tl.int64).to(ptr.dtype), 1 << 20)
    return tl.where(reachable, symm_at(ptr, pe), null)


@triton.jit
def remote_mc_ptr(ptr, team):
    """NULL: this heap has no multicast mapping."""
    return tl.full((), 0, tl.int64).to(ptr.dtype)


@triton.jit
def _team_word(team, WORD: tl.constexpr):
    return tl.load((_TEAM_TABLE + team.to(tl.int64) * _TEAM_RECORD_BYTES + WORD * 4).to(tl.pointer_type(tl.int32)))


@triton.jit
def _member(team, index):
    """World rank of a place in a team."""
    return tl.load((_TEAM_MEMBERS + team.to(tl.int64) * _MEMBERS_PER_TEAM + index).to(tl.pointer_type(tl.uint8))).to(tl.int32)


@triton.jit
def team_n_pes(team):
    """Size from the context page; a record that no team has says 0 there."""
    size = _team_word(team, 2)
    return tl.where(size > 0, size, -1)


@triton.jit
def team_my_pe(team):
    """Place from the context page."""
    return tl.where(_team_word(team, 2) > 0, _team_word(team, 3), -1)


@triton.jit
def team_translate_pe(src_team, pe_in_src_team, dest_team):
    """Looks the world rank up among the other team's members."""
    found = tl.full((), -1, tl.int32)
    if (pe_in_src_team >= 0) & (pe_in_src_team < _team_word(src_team, 2)):
        wanted = _member(src_team, pe_in_src_team)
        for index in range(_team_word(dest_team, 2)):
            found = tl.where(_member(dest_team, index) == wanted, index, found)
    return found


# ---------------------------------------------------------------------- the copy


@triton.jit
def _copy_piece(to, start, position, wanted, is_leader, WIDTH: tl.constexpr):
    """The leader copies WIDTH bytes if they are ``wanted``; returns the position behind them."""
    if wanted:
        if is_leader:
            shmem.copy_units(to + position, start + position, 0, WIDTH, 1)
        position += WIDTH
    return position


@triton.jit
def _copy_body(to, start, nbytes, first, step, WIDTH: tl.constexpr):
    """Whole units of WIDTH bytes, shared out over the threads; several a round for units of 16 bytes, so that more are in flight."""
    to += first * WIDTH
    start += first * WIDTH
    left = nbytes // WIDTH - first
    stride = step * WIDTH
    if WIDTH == 16:
        while left > 3 * step:
            shmem.copy_units(to, start, stride, WIDTH, 4)
            to += 4 * stride
            start += 4 * stride
            left -= 4 * step
    while left > 0:
        shmem.copy_units(to, start, 0, WIDTH, 1)
        to += stride
        start += stride
        left -= step


@triton.jit
def copy_bytes(to, start, nbytes, place):
    """Copies ``nbytes`` from address ``start`` to address ``to``, by the threads of a group; ``place`` is from ``group_place``.

    In units as wide as both addresses allow together, 16 bytes at most: a few narrower pieces up to the first address that is a multiple
    of the unit, units, and narrower pieces for the rest. So an aligned copy of 1, 2, 4 or 8 bytes is one store.
    """
    first = (place & _INDEX_MASK).to(tl.int64)
    step = (place >> _PLACE_BITS).to(tl.int64)
    is_leader = first == 0
    apart = (to ^ start) | 16
    width = apart & -apart
    position = nbytes * 0
    for bits in tl.static_range(4):
        needed = (width > (1 << bits)) & (((to + position) & (1 << bits)) != 0) & (nbytes - position >= (1 << bits))
        position = _copy_piece(to, start, position, needed, is_leader, 1 << bits)
    body = nbytes - position
    if width == 16:
        _copy_body(to + position, start + position, body, first, step, 16)
    elif width == 8:
        _copy_body(to + position, start + position, body, first, step, 8)
    elif width == 4:
        _copy_body(to + position, start + position, body, first, step, 4)
    elif width == 2:
        _copy_body(to + position, start + position, body, first, step, 2)
    else:
        _copy_body(to + position, start + position, body, first, step, 1)
    position += body & -width
    for bits in tl.static_range(4):
        needed = (width > (8 >> bits)) & (nbytes - position >= (8 >> bits))
        position = _copy_piece(to, start, position, needed, is_leader, 8 >> bits)


@triton.jit
def put(dest, source, nbytes, pe, LEVEL: tl.constexpr):
    """The group copies; afterwards any thread of it may fence or signal for all."""
    shmem.enter_group(LEVEL)
    copy_bytes(symm_at(dest, pe).to(tl.int64), source.to(tl.int64), nbytes, shmem.group_place(LEVEL))
    shmem.leave_group(LEVEL, False)


@triton.jit
def get(dest, source, nbytes, pe, LEVEL: tl.constexpr):
    """The group copies; afterwards any thread of it may read all."""
    shmem.enter_group(LEVEL)
    copy_bytes(dest.to(tl.int64), symm_at(source, pe).to(tl.int64), nbytes, shmem.group_place(LEVEL))
    shmem.leave_group(LEVEL, True)


@triton.jit
def put_signal(dest, source, nbytes, sig_addr, value, pe, LEVEL: tl.constexpr, OPERATION: tl.constexpr):
    """A put; then one thread of the group releases the signal, behind what all of them stored."""
    shmem.enter_group(LEVEL)
    place = shmem.group_place(LEVEL)
    copy_bytes(symm_at(dest, pe).to(tl.int64), source.to(tl.int64), nbytes, place)
    shmem.leave_group(LEVEL, False)
    if (place & _INDEX_MASK) == 0:
        signal(sig_addr, value, pe, OPERATION)


# ---------------------------------------------------------------------- single words


@triton.jit
def signal(sig_addr, value, pe, OPERATION: tl.constexpr):
    """One thread's release of a signal word of another rank."""
    if OPERATION == "set":
        st(symm_at(sig_addr, pe), value, "sys", "release")
    else:
        atomic_add(symm_at(sig_addr, pe), value, "sys", "release")


@triton.jit
def store_scalar(dest, value, pe):
    """One thread's store to another rank."""
    st(symm_at(dest, pe), value, "sys", "relaxed")


@triton.jit
def load_scalar(source, pe):
    """One thread's load from another rank."""
    return ld(symm_at(source, pe), "sys", "relaxed")


# ---------------------------------------------------------------------- barriers and collectives


@triton.jit
def barrier(team, LEVEL: tl.constexpr):
    """Each rank of the team writes the epoch into its own word on every rank, and waits until all words here have come to it.

    The epoch of a team is a word of this rank that only these calls change. Words are compared by the sign of the difference, so
    the epoch may wrap around. The words' writers are at most one barrier ahead, so no rank is passed over.
    """
    shmem.enter_group(LEVEL)
    place = shmem.group_place(LEVEL)
    first = place & _INDEX_MASK
    step = place >> _PLACE_BITS
    words = tl.load(tl.full((), _SHMEM_WORDS, tl.int64).to(tl.pointer_type(tl.int64)))
    arrived = (words + team.to(tl.int64) * (_MEMBERS_PER_TEAM * 4)).to(tl.pointer_type(tl.int32))
    last_epoch = (words + _EPOCHS + team.to(tl.int64) * 4).to(tl.pointer_type(tl.int32))
    size = team_n_pes(team)
    mine = team_my_pe(team)
    epoch = ld(last_epoch, "gpu", "relaxed") + 1
    for index in range(first, size, step):
        st(symm_at(arrived + mine, _member(team, index)), epoch, "sys", "release")
    for index in range(first, size, step):
        poll(arrived + index, epoch, "ge")
    shmem.leave_group(LEVEL, True)
    if first == 0:
        st(last_epoch, epoch, "gpu", "relaxed")


@triton.jit
def broadcast(team, dest, source, nbytes, root, LEVEL: tl.constexpr):
    """The root puts to every rank, itself too; all meet behind it."""
    shmem.enter_group(LEVEL)
    place = shmem.group_place(LEVEL)
    if team_my_pe(team) == root:
        size = team_n_pes(team)
        for number in range(size):
            peer = _member(team, (root + number) % size)
            copy_bytes(symm_at(dest, peer).to(tl.int64), source.to(tl.int64), nbytes, place)
    barrier(team, LEVEL)


@triton.jit
def fcollect(team, dest, source, nbytes, LEVEL: tl.constexpr):
    """Each rank puts its part to every rank, beginning with itself; all meet behind it."""
    shmem.enter_group(LEVEL)
    place = shmem.group_place(LEVEL)
    size = team_n_pes(team)
    mine = team_my_pe(team)
    for number in range(size):
        peer = _member(team, (mine + number) % size)
        copy_bytes(symm_at(dest, peer).to(tl.int64) + mine * nbytes, source.to(tl.int64), nbytes, place)
    barrier(team, LEVEL)
