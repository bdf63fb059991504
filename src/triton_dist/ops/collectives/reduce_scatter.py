"""Reduce-scatter by one kernel, in two forms, and by the library.

``ll``: every rank sends each its part with a flag in each word, and adds up what comes: no signal and no barrier; see low_latency.py.
``one_shot``: every rank stages its tensor, and rank ``r`` adds up part ``r`` of everyone's. One signal's latency, and no more goes over the
links than has to, so it wins over the library where latency counts; staging is a copy of the whole tensor in local memory, which the
library, that keeps the links just as busy, does without. Who writes and resets what: see staging.py.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...runtime.preload import Launch
from ..repeat import again, repeated
from ..team import Team, find_team
from ..tensors import check_output, check_tensor
from .arguments import (
    LIBRARY_OPERATIONS,
    METHODS,
    check_apart,
    check_device,
    check_method,
    library_reduces,
    made,
    process_group_of,
    rows_of_ranks,
)
from .low_latency import pays, reducing_launch
from .plans import Plan, chosen
from .reduction import UNROLLED, accumulator_of, reduce_staged, rounded
from .staging import begin_call, copy_parts, end_call, meet, programs_for, staging_of
from .words import dense, round_up

_PAIR_BYTES, _ONE_SHOT_BYTES = 64 << 20, 16 << 20
"""Bytes of x up to which the kernel is chosen: between two ranks, where it took 0.85 of the library's time at so many, and beyond two."""
_LOW_LATENCY_WIRE_BYTES = 1 << 20
"""What "ll" sends from a rank at most, twice the parts for every peer."""
_MOST_PROGRAM_BYTES = 16 << 10
"""What a program loads from one rank at a time."""


@triton_dist.jit(do_not_specialize=["index"])
def reduce_scatter_kernel(
    x, out, staging, peer_staging, arrived, peer_arrived, epochs, index, count, padded, capacity,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """``out`` becomes part ``index`` of all ranks' ``x``, reduced. Program ``p`` moves piece ``p`` of every part.

    count: elements of a part. padded: that up to a multiple of 16, the distance of the staged parts. capacity: elements of a slot of
    ``staging``. SIZE: ranks of the team. WORDS: that, up to a power of 2. SUM: type of the sums. OP: see reduction.py.
    """
    now = begin_call(epochs)
    slot = now % 2 * capacity
    piece = tl.cdiv(tl.cdiv(padded, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0).to(tl.int64) * piece
    end = tl.minimum(begin + piece, padded)
    whole, staged = tl.cast(count, tl.int64) * SIZE, tl.cast(padded, tl.int64) * SIZE
    copy_parts(x, staging + slot, begin, end, count, count, padded, whole, staged, SIZE, BLOCK, SIZE <= UNROLLED)
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS))
    mine = slot + index.to(tl.int64) * padded
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        total = reduce_staged(peers, mine + offset, offset < end, staging.dtype.element_ty, SUM, OP, SIZE)
        tl.store(out + offset, rounded(total, out.dtype.element_ty), mask=(offset < end) & (offset < count))
    end_call(epochs, now)


def reduce_scatter(
    x: torch.Tensor,
    *,
    op: str = "sum",
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    exact: bool = False,
) -> torch.Tensor:
    """The sum of part ``r`` of all ranks' ``x`` on rank ``r`` of ``group``; in stream order of the current stream.

    As ``torch.distributed.reduce_scatter_tensor``. All ranks of the group call it with the same shape, dtype and arguments.
    x: (size * M, ...), contiguous or not, of a dtype that ``all_reduce`` takes; part ``r`` is rows ``[r * M, (r + 1) * M)``.
    op: "sum", "avg", "max" or "min"; a NaN in ``x`` is one in the result. out: (M, ...), contiguous, of x's dtype; may be this rank's part
    of ``x``; allocated if None. group: a ``torch.distributed`` group whose ranks reach each other by direct pointers (or what else
    ``find_team`` takes); None is all ranks.
    method: "ll", "one_shot" (see the module), "library" (``torch.distributed``), or "auto", which goes by the number of bytes and this
    machine's table, if there is one (docs/collectives_tuning.md). The two of this package add up in float32 (float64, integers: in their
    own width, at least 32 bits) from the group's first rank to its last and round once: all runs have the same bits, those of
    ``all_reduce``. exact: "auto" never takes the library, whose order is its own.
    Returns ``out``. The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError,
    TuningTableError.
    """
    team = find_team(group, "reduce_scatter")
    check_tensor("reduce_scatter", "x", x)
    shape = (rows_of_ranks("reduce_scatter", x, team.size), *x.shape[1:])
    out = made(shape, x) if out is None else out
    constants = method, exact, group, op
    if again("reduce_scatter", team, constants, x, out):
        return out
    check_method("reduce_scatter", method, exact, group, METHODS)
    check_device("reduce_scatter", x, method)
    accumulator = accumulator_of("reduce_scatter", x.dtype, op)
    check_output("reduce_scatter", out, shape, x)
    nbytes = x.numel() * x.element_size()
    if nbytes == 0:
        return out
    x = dense(x)
    check_apart("reduce_scatter", x, out, same_at=nbytes // team.size * team.index)

    def make() -> Launch | None:
        own = exact or not library_reduces(group, x, op)
        plan = chosen("reduce_scatter", nbytes, team, own, METHODS, choose_method) if method == "auto" else Plan(method)
        if plan.method == "library":
            scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # its name from torch 2.13 on, and before
            scatter(out, x, op=LIBRARY_OPERATIONS[op], group=process_group_of(group))
            return None
        if plan.method == "ll":
            return reducing_launch("reduce_scatter", x, out, team, group, accumulator, op, plan)
        return reduce_scatter_launch(x, out, team, group, accumulator, op)

    repeated("reduce_scatter", team, constants, (x, out), make)
    return out


def choose_method(nbytes: int, size: int, exact: bool = False) -> str:
    """The method for so many bytes of x on so many ranks. exact: not the library."""
    if pays(2 * nbytes // size * (size - 1), _LOW_LATENCY_WIRE_BYTES, size):
        return "ll"
    most = _PAIR_BYTES if size == 2 else _ONE_SHOT_BYTES
    return "one_shot" if exact or size == 1 or nbytes <= most else "library"


def reduce_scatter_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str) -> Launch:
    """What ``reduce_scatter`` launches for "one_shot"; for contiguous tensors with at least one element, checked before."""
    count, width = out.numel(), x.element_size()
    padded = round_up(count, 16)
    space = staging_of("reduce_scatter", team, group, x.device)
    staging = space.two_slots(team.size * padded * width)
    programs = programs_for(count * width)
    block = min(_MOST_PROGRAM_BYTES // width, max(16, triton.next_power_of_2(triton.cdiv(padded, programs))))
    return Launch.of(reduce_scatter_kernel, programs)(
        x.view(-1), out.view(-1), staging.view(x.dtype), space.buffer.peer_addresses(team), space.arrived, space.peer_arrived,
        space.epochs, team.index, count, padded, staging.numel() // width // 2,
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), BLOCK=block, SUM=accumulator, OP=op, num_warps=8,
    )  # fmt: skip
