"""All-reduce in two shots: rank ``r`` adds up part ``r`` of everyone's tensor and stores the result to everyone.

Two signals' latency, two parts to and from each peer. What lies in symmetric memory is read, and written, where it is; the rest is staged,
which costs two copies in local memory (places.py). Only rank ``r`` reads part ``r`` of any rank, before it stores the result there: so
input and output may be one tensor. One slot of staging memory is enough: a rank that has met its peers the second time knows that they have
read what it staged, and they store results only once they have met it the first time in the call, behind its reading those of the call
before.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import NotSymmetricError
from ...runtime.preload import Launch
from ..team import Team
from .places import (
    ALIGNED,
    done_words,
    in_place,
    meet_again,
    meet_at_places,
    place_of,
    place_words,
    placed_space_of,
    pointer_at,
    pointers_at,
)
from .plans import Plan
from .reduction import UNROLLED, accumulator_of, averaged, combine, reduce_at, rounded
from .staging import LINE, MAX_PROGRAMS, copy_parts, programs_for
from .words import round_up

MOST_PROGRAM_BYTES = 16 << 10
"""What a program loads from one rank at a time."""


@triton.jit
def _reduce_to_all(
    peer_staging, places, begin, end, first_element, size, ELEMENT: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr, SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Elements ``[begin, end)`` behind ``first_element`` of all ranks, reduced and stored to all. places: this program's."""
    if SIZE <= UNROLLED:  # all loads are under way together, and the addresses are known
        sources = pointers_at(peer_staging, places, ELEMENT, SIZE)
        targets = pointers_at(peer_staging, places + size, ELEMENT, SIZE)
        for first in range(begin, end, BLOCK):
            inner = first + tl.arange(0, BLOCK)
            total = rounded(reduce_at(sources, first_element + inner, inner < end, SUM, OP, SIZE), ELEMENT)
            for rank in tl.static_range(SIZE):
                tl.store(targets[rank] + (first_element + inner), total, mask=inner < end)
    else:
        for first in range(begin, end, BLOCK):
            inner = first + tl.arange(0, BLOCK)
            offset, inside = first_element + inner, inner < end
            total = tl.load(pointer_at(peer_staging, places, 0, ELEMENT) + offset, mask=inside).to(SUM)
            for rank in range(1, SIZE):
                total = combine(total, tl.load(pointer_at(peer_staging, places, rank, ELEMENT) + offset, mask=inside).to(SUM), OP)
            total = rounded(averaged(total, OP, SIZE), ELEMENT)
            for rank in range(SIZE):
                tl.store(pointer_at(peer_staging, places + size, rank, ELEMENT) + offset, total, mask=inside)


@triton_dist.jit(do_not_specialize=["index"])
def two_shot_kernel(
    x, out, staging, peer_staging, places, peer_places, done, peer_done, epochs, index, count, padded, part, capacity,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr, READ: tl.constexpr,
    WRITTEN: tl.constexpr,
):  # fmt: skip
    """``out`` becomes all ranks' ``x``, reduced. Program ``p`` moves piece ``p`` of every part; rank ``r`` reduces part ``r``, of ``part``
    elements.

    READ: peers read ``x`` where it is; WRITTEN: they write ``out`` where it is; both only of this rank. Else they use ``staging``:
    ``capacity`` elements for what the rank brings, as many for results. count: elements. padded: that up to a multiple of 16, so that what
    goes over the links goes in whole words whatever the count. SIZE: ranks of the team. WORDS: that, up to a power of 2. SUM: type of the
    sums. OP: see reduction.py. The words: see places.py.
    """
    program = tl.program_id(0)
    now = tl.load(epochs + program) + 1
    telling, ending = place_words(peer_places, index, SIZE, WORDS), done_words(peer_done, index, SIZE, WORDS)
    piece = tl.cdiv(tl.cdiv(part, tl.num_programs(0)), BLOCK) * BLOCK
    begin = program.to(tl.int64) * piece
    end = tl.minimum(begin + piece, part)
    results = staging + capacity
    if not READ:
        copy_parts(x, staging, begin, end, part, part, part, count, padded, SIZE, BLOCK, SIZE <= UNROLLED)
    source, target = place_of(x if READ else staging, staging), place_of(out if WRITTEN else results, staging)
    told = dl.consume_token(places, meet_at_places(places, telling, now, source, target, SIZE, WORDS)) + program * 2 * SIZE
    mine = index.to(tl.int64) * part
    _reduce_to_all(peer_staging, told, begin, tl.minimum(end, padded - mine), mine, SIZE, staging.dtype.element_ty, SUM, OP, SIZE, BLOCK)
    results = dl.consume_token(results, meet_again(done, ending, now, SIZE, WORDS))
    if not WRITTEN:
        copy_parts(results, out, begin, end, part, part, part, count, count, SIZE, BLOCK, SIZE <= UNROLLED)
    tl.store(epochs + program, now)


def two_shot_launch(
    x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str, plan: Plan, staged: bool = True
) -> Launch:
    """What ``all_reduce`` launches for "two_shot"; for contiguous tensors with at least one element, checked before.

    All ranks of the team call it with the same number of elements, dtype and ``plan``; where their tensors lie is each rank's own affair.
    staged: the same on all ranks; False saves the staging memory where every rank's tensors can be read and written in place.
    """
    count, width = x.numel(), x.element_size()
    part = round_up(triton.cdiv(count, team.size), 16)
    space = placed_space_of("all_reduce two_shot", team, group, x.device)
    # All ranks ask for the same, also those that stage nothing.
    staging = space.buffer.at_least(2 * round_up(team.size * part * width if staged else 1, LINE)).view(x.dtype)
    programs = min(plan.programs, MAX_PROGRAMS) or programs_for(part * width)
    block = min((plan.load_bytes or MOST_PROGRAM_BYTES) // width, max(16, triton.next_power_of_2(triton.cdiv(part, programs))))
    return Launch.of(two_shot_kernel, programs)(
        x.view(-1), out.view(-1), staging, space.buffer.peer_addresses(team), space.places, space.peer_places, space.done, space.peer_done,
        space.epochs, team.index, count, round_up(count, 16), part, staging.numel() // 2,
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), BLOCK=block, SUM=accumulator, OP=op, READ=in_place(x, team),
        WRITTEN=in_place(out, team), num_warps=plan.warps or 8,
    )  # fmt: skip


def reduce_in_place(x: torch.Tensor, team: Team, group: object, op: str = "sum", plan: Plan | None = None) -> Launch:
    """The launch that all-reduces a contiguous tensor of symmetric memory where it is; for operators that have written it there.

    All ranks of the team call it with the same number of elements, dtype, ``op`` and ``plan``. What was queued before on each rank's stream
    is reduced; behind it, on this rank's stream, the memory is this rank's own again. Sums as ``all_reduce``'s: float32, in rank order.
    Raises NotSymmetricError for memory that peers can't read in place (see ``places.in_place``).
    """
    if not in_place(x, team):
        raise NotSymmetricError(
            f"a tensor of {x.numel()} elements at {x.data_ptr():#x} can't be reduced in place: it has to lie in this rank's symmetric "
            f"memory, allocated by all ranks {list(team.ranks)}, at a multiple of {ALIGNED} bytes, contiguous, with a multiple of "
            f"{ALIGNED} elements"
        )
    return two_shot_launch(x, x, team, group, accumulator_of("reduce_in_place", x.dtype, op), op, plan or Plan("two_shot"), staged=False)
