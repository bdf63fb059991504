"""All-reduce by one kernel, in three forms, and by the library where that is faster.

``ll``: every rank sends its tensor to all others with a flag in each word: no signal and no barrier; see low_latency.py.
``one_shot``: every rank stages its tensor and adds up everyone's: one signal's latency, but all of it is read from every other rank.
``two_shot``: rank ``r`` adds up part ``r`` only and stores the result to everyone: two signals' latency, two parts to and from each peer.
Who writes and resets what: see staging.py. The results of a rank are written by all ranks, each its part. ``two_shot`` needs one slot only:
a rank that has met its peers the second time knows that they have read what it staged, and they store results only once they have met it
the first time in the call, behind its reading those of the call before.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import TuningTableError
from ...runtime.preload import Launch
from ..repeat import repeated
from ..team import Team, find_team
from .arguments import LIBRARY_OPERATIONS, check_method, check_tensor, library_reduces, made_or_checked, process_group_of
from .low_latency import low_latency_launch
from .plans import Plan, planned
from .reduction import accumulator_of, reduce_staged, staging_at
from .staging import MAX_PROGRAMS, Staging, end_call, meet, programs_for, staging_of
from .words import round_up

METHODS = ("auto", "ll", "one_shot", "two_shot", "library")
_LOW_LATENCY_WIRE_BYTES = 2 << 20
"""What "ll" sends from a rank at most, twice the data to every peer: beyond, a signal costs less than its flags."""
_LOW_LATENCY_RANKS = 8
_PAIR_ONE_SHOT_BYTES = 32 << 20
"""Between two ranks adding up everything moves no more over the link than adding up a part; beyond, the library is as fast."""
_ONE_SHOT_BYTES = 256 << 10
_TWO_SHOT_BYTES = 8 << 20
_MOST_PROGRAM_BYTES = 16 << 10
"""What a program loads from one rank at a time."""


@triton_dist.jit(do_not_specialize=["index"])
def one_shot_kernel(
    x, out, staging, peer_staging, arrived, peer_arrived, epoch, finished, index, count, padded, capacity,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """``out`` becomes all ranks' ``x``, reduced; ``count`` elements. Program ``p`` stages and reduces piece ``p``.

    padded: count up to a multiple of 16, so that what goes over the links goes in whole words whatever the count. capacity: elements of a
    slot of ``staging``. SIZE: ranks of the team. WORDS: that, up to a power of 2.
    SUM: type of the sums. OP: see reduction.py.
    """
    now = tl.load(epoch) + 1
    slot = now % 2 * capacity
    piece = tl.cdiv(tl.cdiv(padded, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0).to(tl.int64) * piece
    end = tl.minimum(begin + piece, padded)
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        tl.store(staging + slot + offset, tl.load(x + offset, mask=offset < count, other=0.0), mask=offset < end)
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS))
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        total = reduce_staged(peers, slot + offset, offset < end, staging.dtype.element_ty, SUM, OP, SIZE)
        tl.store(out + offset, total.to(out.dtype.element_ty), mask=(offset < end) & (offset < count))
    end_call(epoch, finished, now)


@triton_dist.jit(do_not_specialize=["index"])
def two_shot_kernel(
    x, out, staging, peer_staging, arrived, peer_arrived, epoch, finished, index, count, padded, part, capacity,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """As ``one_shot_kernel``. Program ``p`` moves piece ``p`` of every part; rank ``r`` reduces part ``r``, of ``part`` elements.

    staging: ``capacity`` elements for what the ranks bring, as many for results.
    """
    before = tl.load(epoch)
    results = staging + capacity
    piece = tl.cdiv(tl.cdiv(part, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0).to(tl.int64) * piece
    end = tl.minimum(begin + piece, part)
    for rank in range(SIZE):
        for first in range(begin, end, BLOCK):
            inner = first + tl.arange(0, BLOCK)
            offset = rank * part + inner
            inside = (inner < end) & (offset < padded)
            tl.store(staging + offset, tl.load(x + offset, mask=inside & (offset < count), other=0.0), mask=inside)
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, SIZE, before + 1, WORDS))
    for first in range(begin, end, BLOCK):
        inner = first + tl.arange(0, BLOCK)
        offset = index * part + inner
        inside = (inner < end) & (offset < padded)
        total = reduce_staged(peers, offset, inside, staging.dtype.element_ty, SUM, OP, SIZE).to(staging.dtype.element_ty)
        for rank in range(SIZE):
            tl.store(staging_at(peers, rank, staging.dtype.element_ty) + capacity + offset, total, mask=inside)
    results = dl.consume_token(results, meet(arrived, peer_arrived, index, SIZE, before + 2, WORDS))
    for rank in range(SIZE):
        for first in range(begin, end, BLOCK):
            inner = first + tl.arange(0, BLOCK)
            offset = rank * part + inner
            inside = (inner < end) & (offset < count)
            tl.store(out + offset, tl.load(results + offset, mask=inside), mask=inside)
    end_call(epoch, finished, before + 2)


def all_reduce(
    x: torch.Tensor,
    *,
    op: str = "sum",
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    exact: bool = False,
) -> torch.Tensor:
    """The sum of all ranks' ``x`` on every rank of ``group``; in stream order of the current stream.

    All ranks of the group call it with the same shape, dtype and arguments. x: any shape, contiguous or not, of float64, float32, float16,
    bfloat16, float8_e4m3fn, float8_e5m2, int64, int32, int16, int8 or uint8.
    op: "sum", "avg", "max" or "min"; a NaN in ``x`` is one in the result. out: of x's shape and dtype, contiguous; may be ``x``; allocated
    if None. group: a ``torch.distributed`` group whose ranks reach each other by direct pointers; None is all ranks.
    method: "ll", "one_shot", "two_shot" (see the module), "library" (``torch.distributed``), or "auto", which goes by the number of bytes
    and this machine's table, if ``triton-dist tune`` has written one (docs/collectives_tuning.md).
    The three of this package add up in float32 (float64, integers: in their own width, at least 32 bits) from the group's first rank to its
    last and round once: all ranks and all runs have the same bits. exact: "auto" never takes the library, whose order is its own.
    Returns ``out``. The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError,
    TuningTableError.
    """
    team = find_team(group, "all_reduce")
    check_tensor("all_reduce", x)
    check_method("all_reduce", method, exact, group, METHODS)
    accumulator = accumulator_of("all_reduce", x.dtype, op)
    out = made_or_checked("all_reduce", out, x.shape, x)
    nbytes = x.numel() * x.element_size()

    def make() -> Launch | None:
        own = exact or not library_reduces(group, x, op)
        plan = plan_for(nbytes, team, own) if method == "auto" else Plan(method)
        return planned_launch(plan, x, out, team, group, accumulator, op)

    repeated("all_reduce", team, (method, exact, op), (x, out), make)
    return out


def choose_method(nbytes: int, size: int, exact: bool = False) -> str:
    """The method for so many bytes on so many ranks of a machine that was not tuned."""
    if 1 < size <= _LOW_LATENCY_RANKS and 2 * nbytes * (size - 1) <= _LOW_LATENCY_WIRE_BYTES:
        return "ll"
    if size == 2:
        return "one_shot" if exact or nbytes <= _PAIR_ONE_SHOT_BYTES else "library"
    if nbytes <= _ONE_SHOT_BYTES or size == 1:
        return "one_shot"
    return "two_shot" if exact or nbytes <= _TWO_SHOT_BYTES else "library"


def plan_for(nbytes: int, team: Team, exact: bool) -> Plan:
    """What "auto" does for so many bytes. Every rank of the team calls it."""
    plan = planned("all_reduce", nbytes, team, exact)
    if plan is not None and plan.method not in METHODS[1:]:
        raise TuningTableError(
            f"all_reduce: the tuned method {plan.method!r} is not one of {METHODS[1:]}: the table is of another version, tune again"
        )
    return plan or Plan(choose_method(nbytes, team.size, exact))


def run_plan(plan: Plan, x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str) -> None:
    """Do a checked call as ``plan`` says."""
    launch = planned_launch(plan, x, out, team, group, accumulator, op)
    if launch is not None:
        launch.run()


def planned_launch(
    plan: Plan, x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str
) -> Launch | None:
    """What a checked call launches by ``plan``; None where the library has done it, or there is nothing to do."""
    if plan.method == "library":
        _by_library(x, out, op, group)
        return None
    if not x.numel():
        return None
    launch = {"ll": low_latency_launch, "one_shot": one_shot_launch, "two_shot": two_shot_launch}[plan.method]
    return launch(x.contiguous(), out, team, group, accumulator, op, plan)


def one_shot_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str, plan: Plan) -> Launch:
    """What ``all_reduce`` launches for "one_shot"; for contiguous tensors with at least one element, checked before."""
    count, width = x.numel(), x.element_size()
    space = staging_of("all_reduce one_shot", team, group, x.device)
    staging = space.two_slots(round_up(count, 16) * width)
    programs = min(plan.programs, MAX_PROGRAMS) or programs_for(count * width)
    return Launch.of(one_shot_kernel, programs)(
        x.view(-1), out.view(-1), *_shared(space, staging, x.dtype, team), count, round_up(count, 16), staging.numel() // width // 2,
        **_constants(team, triton.cdiv(count, programs), width, accumulator, op, plan),
    )  # fmt: skip


def two_shot_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str, plan: Plan) -> Launch:
    """What ``all_reduce`` launches for "two_shot"; for contiguous tensors with at least one element, checked before."""
    count, width = x.numel(), x.element_size()
    part = round_up(triton.cdiv(count, team.size), 16)
    space = staging_of("all_reduce two_shot", team, group, x.device)
    staging = space.two_slots(team.size * part * width)
    programs = min(plan.programs, MAX_PROGRAMS) or programs_for(part * width)
    return Launch.of(two_shot_kernel, programs)(
        x.view(-1), out.view(-1), *_shared(space, staging, x.dtype, team), count, round_up(count, 16), part, staging.numel() // width // 2,
        **_constants(team, triton.cdiv(part, programs), width, accumulator, op, plan),
    )  # fmt: skip


def _shared(space: Staging, staging: torch.Tensor, dtype: torch.dtype, team: Team) -> tuple:
    """The arguments that both kernels take in the same place."""
    peers = space.buffer.peer_addresses(team)
    return staging.view(dtype), peers, space.arrived, space.peer_arrived, space.epoch, space.finished, team.index


def _constants(team: Team, most: int, width: int, accumulator: tl.dtype, op: str, plan: Plan) -> dict[str, object]:
    """Compile-time arguments of both kernels. most: elements of a piece. width: bytes of one."""
    block = min((plan.load_bytes or _MOST_PROGRAM_BYTES) // width, max(16, triton.next_power_of_2(most)))
    words = triton.next_power_of_2(team.size)
    return {"SIZE": team.size, "WORDS": words, "BLOCK": block, "SUM": accumulator, "OP": op, "num_warps": plan.warps or 8}


def _by_library(x: torch.Tensor, out: torch.Tensor, op: str, group: object) -> None:
    if out.data_ptr() != x.data_ptr() or not x.is_contiguous():
        out.copy_(x)
    dist.all_reduce(out, op=LIBRARY_OPERATIONS[op], group=process_group_of(group))
