"""Broadcast by one kernel, in two forms, and by the library.

``ll``: the source sends its tensor with a flag in each word: no signal and no barrier; see low_latency.py.
``one_shot``: the source stages its tensor, and the others read it there: one signal's latency. Who writes and resets what: see staging.py.
In both all that the peers get leaves by the source's links: so beyond some megabytes the library wins, which passes pieces on from rank to
rank.
"""

from __future__ import annotations

import operator

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import InvalidArgumentError
from ...runtime.preload import Launch
from ..repeat import again, repeated
from ..team import Team, find_team
from ..tensors import check_output, check_tensor
from .arguments import METHODS, check_apart, check_device, check_method, library_can, process_group_of
from .low_latency import broadcasting_launch, pays
from .plans import Plan, chosen
from .reduction import staging_at
from .staging import LINE, begin_call, end_call, meet, staging_of
from .words import MOST_BYTES_AT_A_TIME, dense, division, round_up, word_of

_PAIR_BYTES, _ONE_SHOT_BYTES = 64 << 20, 8 << 20
"""Bytes that may leave the source up to which the kernel is chosen: between two ranks (measured), and with more."""
_LOW_LATENCY_WIRE_BYTES = 2 << 20
"""What "ll" sends from the source at most, twice the data to every peer."""


@triton_dist.jit(do_not_specialize=["index", "source"])
def broadcast_kernel(
    x, out, staging, peer_staging, arrived, peer_arrived, epochs, index, source, size, count, padded, capacity,
    WORDS: tl.constexpr, BLOCK: tl.constexpr, COPY: tl.constexpr,
):  # fmt: skip
    """``out`` becomes ``x`` of rank ``source`` of the team; ``count`` words. Program ``p`` moves piece ``p``.

    padded: count up to whole lines. capacity: words of a slot of ``staging``. WORDS: size, up to a power of 2. COPY: the source writes its
    ``out``, too; else that is ``x``.
    """
    now = begin_call(epochs)
    slot = now % 2 * capacity
    piece = tl.cdiv(tl.cdiv(padded, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0).to(tl.int64) * piece
    end = tl.minimum(begin + piece, padded)
    if index == source:
        for first in range(begin, end, BLOCK):
            offset = first + tl.arange(0, BLOCK)
            value = tl.load(x + offset, mask=offset < count, other=0)
            tl.store(staging + slot + offset, value, mask=offset < end)
            if COPY:
                tl.store(out + offset, value, mask=offset < tl.minimum(end, count))
    # The source waits for the others, too: their words of this call tell it that they have read what it staged in the call before.
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, size, now, WORDS))
    if index != source:
        staged = staging_at(peers, source, staging.dtype.element_ty) + slot
        for first in range(begin, end, BLOCK):
            offset = first + tl.arange(0, BLOCK)
            tl.store(out + offset, tl.load(staged + offset, mask=offset < end), mask=offset < tl.minimum(end, count))
    end_call(epochs, now)


def broadcast(
    x: torch.Tensor,
    src: int = 0,
    *,
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    exact: bool = False,
) -> torch.Tensor:
    """Rank ``src``'s ``x`` on every rank of ``group``, in ``x`` itself or in ``out``; in stream order of the current stream.

    As ``torch.distributed.broadcast``. All ranks of the group call it with the same shape, dtype and arguments.
    x: any shape and dtype, contiguous or not; read on ``src`` only; without ``out`` written on all other ranks.
    src: a rank of the world, as ``torch.distributed`` has it: not its place in the group, in which it has to be.
    out: of x's shape and dtype, contiguous; written on every rank, on ``src``, too; may be ``x``.
    group: a ``torch.distributed`` group whose ranks reach each other by direct pointers (or what else ``find_team`` takes); None is all.
    method: "ll", "one_shot" (see the module), "library" (``torch.distributed``), or "auto", which goes by the number of bytes and this
    machine's table, if there is one (docs/collectives_tuning.md). The bits are the same. exact: "auto" keeps to the kernels.
    Returns ``out``, or ``x`` if that is None. The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError,
    TuningTableError.
    """
    team = find_team(group, "broadcast")
    check_tensor("broadcast", "x", x)
    source = _place_of(src, team)
    constants = method, exact, group, source
    written = x if out is None else out
    if again("broadcast", team, constants, x, written):
        return written
    check_method("broadcast", method, exact, group, METHODS)
    check_device("broadcast", x, method)
    if out is not None:
        check_output("broadcast", out, x.shape, x)
    nbytes = x.numel() * x.element_size()
    if nbytes == 0:
        return written
    if out is None and torch._debug_has_internal_overlap(x) == 1:
        raise InvalidArgumentError(
            f"broadcast: x, {tuple(x.shape)} with strides {x.stride()}, is written, but its elements share memory; pass out="
        )
    given = dense(x)
    target = given if out is None else out
    check_apart("broadcast", given, target, same_at=0)

    def make() -> Launch | None:
        own = exact or not library_can(group, x.device)
        plan = chosen("broadcast", nbytes, team, own, METHODS, choose_method) if method == "auto" else Plan(method)
        if plan.method == "library":
            if team.index == source and target.data_ptr() != given.data_ptr():
                with torch.no_grad():
                    target.copy_(given)
            dist.broadcast(target.view(-1).view(torch.uint8), src=team.ranks[source], group=process_group_of(group))
            return None
        if plan.method == "ll":
            return broadcasting_launch(given, target, source, team, group, plan)
        return broadcast_launch(given, target, source, team, group)

    repeated("broadcast", team, constants, (given, target), make)
    if out is None and given.data_ptr() != x.data_ptr() and team.index != source:
        with torch.no_grad():  # the kernels write to a parameter, too
            x.copy_(given)
    return written


def choose_method(nbytes: int, size: int, exact: bool = False) -> str:
    """The method for so many bytes on so many ranks. exact: not the library."""
    if pays(2 * nbytes * (size - 1), _LOW_LATENCY_WIRE_BYTES, size):
        return "ll"
    most = _PAIR_BYTES if size == 2 else _ONE_SHOT_BYTES
    return "one_shot" if exact or size == 1 or nbytes * (size - 1) <= most else "library"


def broadcast_launch(x: torch.Tensor, out: torch.Tensor, source: int, team: Team, group: object) -> Launch:
    """What ``broadcast`` launches for "one_shot"; for contiguous tensors with at least one element. source: its place in the team."""
    nbytes = x.numel() * x.element_size()
    padded = round_up(nbytes, LINE)
    programs, block = division(nbytes, MOST_BYTES_AT_A_TIME // 2)
    space = staging_of("broadcast", team, group, x.device)
    staging = space.two_slots(padded)
    width, word = word_of(nbytes, x, out)
    return Launch.of(broadcast_kernel, programs)(
        x.view(-1).view(word), out.view(-1).view(word), staging.view(word), space.buffer.peer_addresses(team), space.arrived,
        space.peer_arrived, space.epochs, team.index, source, team.size, nbytes // width, padded // width,
        staging.numel() // width // 2, WORDS=triton.next_power_of_2(team.size), BLOCK=block // width,
        COPY=out.data_ptr() != x.data_ptr(), num_warps=8,
    )  # fmt: skip


def _place_of(src: object, team: Team) -> int:
    """Where in the team the world's rank ``src`` is."""
    try:
        rank = operator.index(src)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"broadcast: src={src!r} has to be a rank of the world, an integer") from None
    if rank not in team.ranks:
        raise InvalidArgumentError(
            f"broadcast: src={rank} is not in the group of ranks {list(team.ranks)}; src is a rank of the world, not a place in the group"
        )
    return team.ranks.index(rank)
