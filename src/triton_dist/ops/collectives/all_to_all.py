"""All-to-all by one kernel, with equal parts or with numbers of rows that stand in device memory: every rank stages all that it sends, with
the numbers, and reads its part of everyone's. Equal parts that are small go with a flag in each word (``ll``): see low_latency.py.

One launch and one signal's latency, no more over the links than has to, and nothing is read by the host: so a call with numbers on the
device can be captured in a CUDA graph, which ``torch.distributed``'s, that wants them on the host, can't. The kernel loses where a copy of
all that is sent in local memory counts. Who writes and resets what: see staging.py.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import CaptureError, InvalidArgumentError, ReceiveCapacityError
from ...runtime.preload import Launch
from ..repeat import again, repeated
from ..team import Team, find_team, in_capture
from ..tensors import check_output, check_tensor, overlap
from .arguments import (
    METHODS,
    check_apart,
    check_device,
    check_method,
    library_can,
    made,
    process_group_of,
    rows_of_ranks,
)
from .low_latency import moving_launch, pays
from .plans import Plan, chosen
from .staging import LINE, MAX_PROGRAMS, begin_call, end_call, meet, peer_pointers, staging_of
from .words import MOST_BYTES_AT_A_TIME, dense, division, round_up, word_of

_ONE_SHOT_BYTES = 16 << 20
"""Bytes of x up to which the kernel is chosen for equal parts. Measured between two ranks only."""
_LOW_LATENCY_WIRE_BYTES = 1 << 20
"""What "ll" sends from a rank at most, twice the parts for every peer."""


@triton.jit
def _begins(lengths, STEP: tl.constexpr):
    """Where pieces of these lengths, multiples of STEP, begin one behind the other."""
    return tl.multiple_of(tl.cumsum(lengths, 0) - lengths, STEP)


@triton.jit
def _lines(lengths, LINE_WORDS: tl.constexpr):
    """Lengths up to whole lines."""
    return tl.cdiv(lengths, LINE_WORDS) * LINE_WORDS


@triton_dist.jit(do_not_specialize=["index"])
def all_to_all_kernel(
    x, out, splits, received, staging, peer_staging, arrived, peer_arrived, epochs, index, size, row, rows, room, header, capacity,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, LINE_WORDS: tl.constexpr, STEP: tl.constexpr, COUNTED: tl.constexpr,
):  # fmt: skip
    """Rows for rank ``s`` of the team go behind each other into ``out`` there. Program ``p`` moves blocks ``p``, ``p + programs``, ... of
    what each rank sends to each.

    splits: rows that this rank sends to each, behind each other in ``x``. received: becomes the rows that each sends to this one. COUNTED:
    there are ``splits`` and ``received``; else one row, the whole part, goes to each rank. row: words of a row. rows: of ``x``. room: words
    of ``out``; what has no room is left out. A slot of ``staging`` has ``capacity`` words: ``header`` words for splits of each program,
    then what is sent to each rank, from a whole line on. SIZE: size, up to a power of 2. LINE_WORDS: words of a line. STEP: words that a
    row is a multiple of.
    """
    now = begin_call(epochs)
    slot = now % 2 * capacity
    program = tl.program_id(0)
    peer = tl.arange(0, SIZE)
    if COUNTED:
        sent = tl.load(splits + peer, mask=peer < size, other=0).to(tl.int64)
        possible = (tl.min(sent, 0) >= 0) & (tl.max(sent, 0) <= rows) & (tl.sum(sent, 0) <= rows)
        sent = tl.where(possible, sent, -1)
        # Each program tells its own peers.
        table = (staging + slot).to(tl.pointer_type(tl.int64)) + program * size
        tl.store(table + peer, sent, mask=peer < size)
        lengths = tl.multiple_of(tl.maximum(sent, 0) * row, STEP)
        longest = tl.max(lengths, 0)
        begins, places = _begins(lengths, STEP), _begins(_lines(lengths, LINE_WORDS), LINE_WORDS)
    else:
        longest = tl.cast(row, tl.int64)
        lengths = tl.multiple_of(tl.where(peer < size, longest, 0), STEP)
        begins, places = tl.multiple_of(peer * longest, STEP), peer * _lines(longest, LINE_WORDS)
    staged = _lines(lengths, LINE_WORDS)
    sources, targets = x + begins, staging + slot + header + places
    for block in range(program, tl.cdiv(longest, BLOCK), tl.num_programs(0)):
        offset = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(sources[:, None] + offset[None, :], mask=offset[None, :] < lengths[:, None], other=0)
        tl.store(targets[:, None] + offset[None, :], value, mask=offset[None, :] < staged[:, None])
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, size, now, SIZE))
    slots = peer_pointers(peers, peer, size, staging.dtype.element_ty) + slot
    if COUNTED:
        tables = slots.to(tl.pointer_type(tl.int64), bitcast=True) + program * size
        told = tl.load(tables[:, None] + peer[None, :], mask=(peer[:, None] < size) & (peer[None, :] < size), other=0)
        theirs = tl.sum(tl.where(peer[None, :] == index, told, 0), 1)
        if program == 0:
            tl.store(received + peer, theirs, mask=peer < size)
        place = tl.sum(tl.where(peer[None, :] < index, _lines(tl.maximum(told, 0) * row, LINE_WORDS), 0), 1)
        lengths = tl.multiple_of(tl.maximum(theirs, 0) * row, STEP)
        begins = _begins(lengths, STEP)
        staged = _lines(lengths, LINE_WORDS)
        lengths = tl.multiple_of(tl.minimum(lengths, tl.maximum(room - begins, 0)), STEP)
        longest = tl.max(lengths, 0)
    else:
        place = index * _lines(longest, LINE_WORDS)
    sources = tl.multiple_of(slots + header + place, 16)  # bytes; said of a sum itself it would be forgotten
    targets = out + begins
    for block in range(program, tl.cdiv(longest, BLOCK), tl.num_programs(0)):
        offset = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(sources[:, None] + offset[None, :], mask=offset[None, :] < staged[:, None])
        tl.store(targets[:, None] + offset[None, :], value, mask=offset[None, :] < lengths[:, None])
    end_call(epochs, now)


def all_to_all(
    x: torch.Tensor,
    splits: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    capacity: int | None = None,
    received: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    exact: bool = False,
    check: bool = False,
):
    """Rows from every rank to every rank of ``group``, each rank's behind those of the rank before; in stream order of the current stream.

    As ``torch.distributed.all_to_all_single``. All ranks of the group call it with x of the same shape and dtype and the same arguments.
    x: (rows, ...), contiguous or not, of any dtype. group: a ``torch.distributed`` group whose ranks reach each other by direct pointers
    (or what else ``find_team`` takes); None is all ranks.

    Without ``splits``, equal parts: rank ``s`` gets the s-th of ``size`` equal parts of x; returns ``out``, of x's shape. out: contiguous,
    of x's shape and dtype; may be ``x``; allocated if None. method: "ll", "one_shot" (see the module), "library"
    (``torch.distributed``), or "auto", which goes by the number of bytes and this machine's table, if there is one
    (docs/collectives_tuning.md). The bits are the same. exact: "auto" keeps to the kernels.

    With ``splits``, int32 or int64 (size,) on x's device: rank ``s`` gets ``splits[s]`` rows; those for rank 0 are the first
    ones of x, and rows beyond the sum are not read. The host reads nothing, so the number of rows of ``out`` is given, by ``out`` itself or
    by ``capacity``, which may differ from rank to rank. Returns ``(out, received)``; received: of splits' dtype, (size,), the rows that
    each rank sent to this one; allocated if None. ``out`` has the first ``received.sum()`` rows; what is behind them is as it was.
    More than ``out`` has room for: the rows that fit are there, the others are left out, and ``received`` says all the same how many were
    sent, so that ``received.sum() > out.shape[0]`` tells. Splits that are negative or more than x's rows: that rank sends nothing, and
    ``received`` has -1 for it on every rank. check: wait, look at ``received`` on the host, and raise ReceiveCapacityError or
    InvalidArgumentError for these two; on this rank, where the call is over by then.
    There is no library that does this.

    The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError.
    """
    team = find_team(group, "all_to_all")
    check_tensor("all_to_all", "x", x)
    check_method("all_to_all", method, exact, group, METHODS)
    if splits is None:
        if capacity is not None or received is not None or check:
            raise InvalidArgumentError("all_to_all: capacity, received and check are for calls with splits; equal parts always fit")
        return _equal(x, out, team, group, method, exact)
    check_device("all_to_all", x, method)
    if method in ("ll", "library"):
        raise InvalidArgumentError(f"all_to_all: method={method!r} takes no splits on the device; leave method out")
    if x.dim() == 0:
        raise InvalidArgumentError("all_to_all: x has to have at least one dimension, of rows")
    _check_splits("splits", splits, team, x)
    if received is None:
        received = torch.empty(team.size, dtype=splits.dtype, device=x.device)
    _check_splits("received", received, team, x)
    if received.dtype != splits.dtype or overlap(received, splits):
        raise InvalidArgumentError(f"all_to_all: received, {received.dtype}, has to be memory of its own of splits' dtype {splits.dtype}")
    shape = (_capacity(out, capacity), *x.shape[1:])
    out = made(shape, x) if out is None else out
    check_output("all_to_all", out, shape, x)
    given = dense(x)
    check_apart("all_to_all", given, out, same_at=None)
    if any(overlap(words, out) for words in (splits, received)) or overlap(received, given):
        raise InvalidArgumentError("all_to_all: splits and received share memory with out, or received with x; let each have its own")
    if check and in_capture("all_to_all"):
        raise CaptureError(
            "all_to_all: check=True reads received on the host, which a CUDA graph can't record; leave it out, and look at received "
            "behind a replay"
        )
    splits = splits.contiguous()
    tensors = (given, splits, out, received)
    repeated("all_to_all splits", team, None, tensors, lambda: splits_launch(given, splits, out, received, team, group))
    if check:
        _check_received(received, out.shape[0])
    return out, received


def choose_method(nbytes: int, size: int, exact: bool = False) -> str:
    """The method for equal parts of an x of so many bytes on so many ranks. exact: not the library."""
    if pays(2 * nbytes // size * (size - 1), _LOW_LATENCY_WIRE_BYTES, size):
        return "ll"
    return "one_shot" if exact or size == 1 or nbytes <= _ONE_SHOT_BYTES else "library"


def equal_launch(x: torch.Tensor, out: torch.Tensor, team: Team, group: object) -> Launch:
    """What ``all_to_all`` launches for equal parts by "one_shot"; for contiguous tensors with at least one element, checked before."""
    part = x.numel() * x.element_size() // team.size
    return _launch(x, out, None, None, part, team.size, team, group)


def splits_launch(x: torch.Tensor, splits: torch.Tensor, out: torch.Tensor, received: torch.Tensor, team: Team, group: object) -> Launch:
    """What ``all_to_all`` launches for ``splits``; for contiguous tensors, checked before."""
    return _launch(x, out, splits, received, math.prod(x.shape[1:]) * x.element_size(), x.shape[0], team, group)


def _launch(x, out, splits, received, row: int, rows: int, team: Team, group: object) -> Launch:
    """row: bytes of a row. rows: of x."""
    nbytes = x.numel() * x.element_size()
    ranks, counted = triton.next_power_of_2(team.size), splits is not None
    header = round_up(MAX_PROGRAMS * team.size * 8, LINE) if counted else 0
    space = staging_of("all_to_all", team, group, x.device)
    staging = space.two_slots(header + round_up(nbytes, LINE) + team.size * LINE)
    width, word = word_of(row, x, out)
    programs, block = division(triton.cdiv(nbytes, team.size), MOST_BYTES_AT_A_TIME // ranks)
    return Launch.of(all_to_all_kernel, programs)(
        x.view(-1).view(word), out.view(-1).view(word), splits, received, staging.view(word), space.buffer.peer_addresses(team),
        space.arrived, space.peer_arrived, space.epochs, team.index, team.size, row // width, rows,
        out.numel() * out.element_size() // width, header // width, staging.numel() // width // 2, SIZE=ranks, BLOCK=block // width,
        LINE_WORDS=LINE // width, STEP=math.gcd(row, 16) // width or 1, COUNTED=counted, num_warps=8,
    )  # fmt: skip


def _equal(x: torch.Tensor, out: torch.Tensor | None, team: Team, group: object, method: str, exact: bool) -> torch.Tensor:
    out = made(x.shape, x) if out is None else out
    if again("all_to_all", team, (method, exact, group), x, out):
        return out
    check_device("all_to_all", x, method)
    rows_of_ranks("all_to_all", x, team.size)
    check_output("all_to_all", out, x.shape, x)
    nbytes = x.numel() * x.element_size()
    if nbytes == 0:
        return out
    given = dense(x)
    check_apart("all_to_all", given, out, same_at=0)
    target = out

    def make() -> Launch | None:
        own = exact or not library_can(group, x.device)
        plan = chosen("all_to_all", nbytes, team, own, METHODS, choose_method) if method == "auto" else Plan(method)
        if plan.method == "library":
            sent = given.clone() if target.data_ptr() == given.data_ptr() else given
            whole, sent = (tensor.view(-1).view(torch.uint8) for tensor in (target, sent))
            dist.all_to_all_single(whole, sent, group=process_group_of(group))
            return None
        if plan.method == "ll":
            return moving_launch("all_to_all", given, target, team, group, plan)
        return equal_launch(given, target, team, group)

    repeated("all_to_all", team, (method, exact, group), (given, target), make)
    return out


def _check_splits(name: str, splits: object, team: Team, x: torch.Tensor) -> None:
    right = isinstance(splits, torch.Tensor) and splits.dtype in (torch.int32, torch.int64) and tuple(splits.shape) == (team.size,)
    if not right or splits.device != x.device or name == "received" and not splits.is_contiguous():  # type: ignore[attr-defined]
        seen = f"{tuple(splits.shape)} {splits.dtype} on {splits.device}" if isinstance(splits, torch.Tensor) else repr(splits)
        raise InvalidArgumentError(
            f"all_to_all: {name} is {seen}; it has to be an int32 or int64 tensor ({team.size},) on {x.device}, a number of rows for "
            "each rank of the group" + ", contiguous" * (name == "received")
        )


def _capacity(out: object, capacity: object) -> int:
    """Rows of ``out``."""
    if isinstance(out, torch.Tensor) and out.dim() and capacity in (None, out.shape[0]):
        return out.shape[0]
    if out is None and isinstance(capacity, int) and not isinstance(capacity, bool) and capacity >= 0:
        return capacity
    raise InvalidArgumentError(
        f"all_to_all: capacity={capacity!r} with out={'given' if out is not None else None}; with splits on the device the host does not "
        "know how many rows come: pass capacity, the most rows to receive, 0 or more, or out with so many rows"
    )


def _check_received(received: torch.Tensor, rows: int) -> None:
    sent = received.tolist()
    if min(sent) < 0:
        bad = [rank for rank, number in enumerate(sent) if number < 0]
        raise InvalidArgumentError(
            f"all_to_all: splits of the group's ranks {bad} have a negative number, or add up to more than the rows of their x; they sent "
            "nothing to any rank"
        )
    if sum(sent) > rows:
        raise ReceiveCapacityError(
            f"all_to_all: the ranks sent {sent}, {sum(sent)} rows in all, and out has room for {rows}; the rest was left out: pass "
            f"capacity={sum(sent)} or more, or send less"
        )
