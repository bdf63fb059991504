"""All-reduce by one kernel, in three forms, and by the library where that is faster.

``ll``: every rank sends its tensor to all others with a flag in each word: no signal and no barrier; see low_latency.py.
``one_shot``: every rank stages its tensor and adds up everyone's: one signal's latency, but all of it is read from every other rank. Who
writes and resets what: see staging.py.
``two_shot``: rank ``r`` adds up part ``r`` only and stores the result to everyone, without a copy where tensors lie in symmetric memory:
two signals' latency, two parts to and from each peer; see two_shot.py.
"""

from __future__ import annotations

import functools

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
    check_apart,
    check_device,
    check_method,
    library_reduces,
    made,
    process_group_of,
)
from .low_latency import pays, reducing_launch
from .places import in_place
from .plans import Plan, chosen
from .reduction import accumulator_of, reduce_staged, rounded
from .staging import MAX_PROGRAMS, begin_call, end_call, meet, programs_for, staging_of
from .two_shot import MOST_PROGRAM_BYTES, two_shot_launch
from .words import dense, round_up

METHODS = ("auto", "ll", "one_shot", "two_shot", "library")
PLACED = "all_reduce in symmetric memory"
"""What a table calls all-reduces whose input and output lie in symmetric memory."""
_LOW_LATENCY_WIRE_BYTES = 2 << 20
"""What "ll" sends from a rank at most, twice the data to every peer: beyond, a signal costs less than its flags."""
_PAIR_ONE_SHOT_BYTES = 32 << 20
"""Between two ranks adding up everything moves no more over the link than adding up a part; beyond, the library is as fast."""
_ONE_SHOT_BYTES = 256 << 10
_TWO_SHOT_BYTES = 8 << 20


@triton_dist.jit(do_not_specialize=["index"])
def one_shot_kernel(
    x, out, staging, peer_staging, arrived, peer_arrived, epochs, index, count, padded, capacity,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr, OP: tl.constexpr,
):  # fmt: skip
    """``out`` becomes all ranks' ``x``, reduced; ``count`` elements. Program ``p`` stages and reduces piece ``p``.

    padded: count up to a multiple of 16, so that what goes over the links goes in whole words whatever the count. capacity: elements of a
    slot of ``staging``. SIZE: ranks of the team. WORDS: that, up to a power of 2.
    SUM: type of the sums. OP: see reduction.py.
    """
    now = begin_call(epochs)
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
        tl.store(out + offset, rounded(total, out.dtype.element_ty), mask=(offset < end) & (offset < count))
    end_call(epochs, now)


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
    "two_shot" reads ``x``, and writes ``out``, in place where they lie in symmetric memory of all ranks of the group, at a multiple of 16
    bytes and with a multiple of 16 elements; each rank's may lie elsewhere, or be ordinary memory. "auto" takes it for such tensors
    beyond what "ll" is for; then they have to be such on all ranks, or on none.
    The three of this package add up in float32 (float64, integers: in their own width, at least 32 bits) from the group's first rank to its
    last and round once: all ranks and all runs have the same bits. exact: "auto" never takes the library, whose order is its own.
    Returns ``out``. The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError,
    TuningTableError.
    """
    team = find_team(group, "all_reduce")
    check_tensor("all_reduce", "x", x)
    if out is None:
        out = made(x.shape, x)
    else:
        check_tensor("all_reduce", "out", out)
    placed = in_place(x, team), in_place(out, team)
    constants = method, exact, group, op, placed
    if again("all_reduce", team, constants, x, out):
        return out
    check_method("all_reduce", method, exact, group, METHODS)
    check_device("all_reduce", x, method)
    accumulator = accumulator_of("all_reduce", x.dtype, op)
    check_output("all_reduce", out, x.shape, x)
    if x.is_contiguous():
        check_apart("all_reduce", x, out, same_at=0)

    def make() -> Launch | None:
        if method != "auto":
            return planned_launch(Plan(method), x, out, team, group, accumulator, op)
        launch = auto_launch(x, out, team, group, op, exact)
        if launch is None and x.numel():
            _by_library(x, out, op, group)
        return launch

    repeated("all_reduce", team, constants, (x, out), make)
    return out


def choose_method(nbytes: int, size: int, exact: bool = False, placed: bool = False) -> str:
    """The method for so many bytes on so many ranks of a machine that was not tuned. placed: no copy is needed, see ``plan_for``."""
    if pays(2 * nbytes * (size - 1), _LOW_LATENCY_WIRE_BYTES, size):
        return "ll"
    if placed and size > 1:
        return "two_shot"
    if size == 2:
        return "one_shot" if exact or nbytes <= _PAIR_ONE_SHOT_BYTES else "library"
    if nbytes <= _ONE_SHOT_BYTES or size == 1:
        return "one_shot"
    return "two_shot" if exact or nbytes <= _TWO_SHOT_BYTES else "library"


def plan_for(nbytes: int, team: Team, exact: bool, placed: bool = False) -> Plan:
    """What "auto" does for so many bytes. Every rank of the team calls it. placed: input and output are read and written in place."""
    operator = PLACED if placed else "all_reduce"
    return chosen(operator, nbytes, team, exact, METHODS, functools.partial(choose_method, placed=placed))


def auto_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object, op: str = "sum", exact: bool = False) -> Launch | None:
    """What a checked call by "auto" launches; None where the library is to do it, or there is nothing to do. Every rank calls it."""
    if not x.numel():
        return None
    placed = in_place(x, team) and in_place(out, team)
    plan = plan_for(x.numel() * x.element_size(), team, exact or not library_reduces(group, x, op), placed)
    if plan.method == "library":
        return None
    accumulator = accumulator_of("all_reduce", x.dtype, op)
    if plan.method == "two_shot" and placed:
        return two_shot_launch(x, out, team, group, accumulator, op, plan, staged=False)
    return planned_launch(plan, x, out, team, group, accumulator, op)


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
    if plan.method == "ll":
        return reducing_launch("all_reduce", dense(x), out, team, group, accumulator, op, plan)
    launch = {"one_shot": one_shot_launch, "two_shot": two_shot_launch}[plan.method]
    return launch(dense(x), out, team, group, accumulator, op, plan)


def one_shot_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object, accumulator: tl.dtype, op: str, plan: Plan) -> Launch:
    """What ``all_reduce`` launches for "one_shot"; for contiguous tensors with at least one element, checked before."""
    count, width = x.numel(), x.element_size()
    space = staging_of("all_reduce one_shot", team, group, x.device)
    staging = space.two_slots(round_up(count, 16) * width).view(x.dtype)
    programs = min(plan.programs, MAX_PROGRAMS) or programs_for(count * width)
    block = min((plan.load_bytes or MOST_PROGRAM_BYTES) // width, max(16, triton.next_power_of_2(triton.cdiv(count, programs))))
    return Launch.of(one_shot_kernel, programs)(
        x.view(-1), out.view(-1), staging, space.buffer.peer_addresses(team), space.arrived, space.peer_arrived, space.epochs,
        team.index, count, round_up(count, 16), staging.numel() // 2,
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), BLOCK=block, SUM=accumulator, OP=op, num_warps=plan.warps or 8,
    )  # fmt: skip


def _by_library(x: torch.Tensor, out: torch.Tensor, op: str, group: object) -> None:
    if out.data_ptr() != x.data_ptr() or not x.is_contiguous():
        with torch.no_grad():  # as by the kernels, there is no gradient
            out.copy_(dense(x))  # which may lie in out in another order
    dist.all_reduce(out, op=LIBRARY_OPERATIONS[op], group=process_group_of(group))
