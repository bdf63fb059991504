"""All-gather by one kernel, in two forms, and by the library.

``ll``: every rank sends its part to all others with a flag in each word: no signal and no barrier; see low_latency.py.
``one_shot``: every rank puts its part where peers can read it, says so, and reads the others' parts: one signal's latency. Between two
ranks it wins over NCCL at every size. Parts alternate between two staging buffers; who writes and resets what: see staging.py.
"""

from __future__ import annotations

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
from .arguments import METHODS, check_apart, check_device, check_method, library_can, made, process_group_of
from .low_latency import moving_launch, pays
from .plans import Plan, chosen
from .staging import LINE, begin_call, end_call, meet, peer_pointers, staging_of
from .words import MOST_BYTES_AT_A_TIME, dense, division, round_up, word_of

_LOW_LATENCY_WIRE_BYTES = 1 << 20
"""What "ll" sends from a rank at most, twice its part to every peer."""


@triton_dist.jit(do_not_specialize=["index"])
def all_gather_kernel(
    part, out, staging, peer_staging, arrived, peer_arrived, epochs, index, size, count, padded, capacity,
    SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``out[s] = part of rank s`` for all ranks of the team; ``count`` words each. Program ``p`` moves piece ``p`` of every part.

    peer_staging, peer_arrived: int64 addresses of every rank's ``staging`` and ``arrived``. SIZE: size, up to a power of 2, so that the
    loads from all ranks are under way together. padded: count up to whole lines, so that what goes over the links goes 16 bytes at a time
    whatever the count. capacity: words of a slot.
    """
    now = begin_call(epochs)
    slot = now % 2 * capacity
    piece = tl.cdiv(tl.cdiv(padded, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0).to(tl.int64) * piece
    end = tl.minimum(begin + piece, padded)
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        tl.store(staging + slot + offset, tl.load(part + offset, mask=offset < count, other=0), mask=offset < end)
    peers = dl.consume_token(peer_staging, meet(arrived, peer_arrived, index, size, now, SIZE))
    peer = tl.arange(0, SIZE)
    sources = peer_pointers(peers, peer, size, staging.dtype.element_ty) + slot
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside = (peer[:, None] < size) & (offset[None, :] < end)
        theirs = tl.load(sources[:, None] + offset[None, :], mask=inside)
        tl.store(out + peer[:, None].to(tl.int64) * count + offset[None, :], theirs, mask=inside & (offset[None, :] < count))
    end_call(epochs, now)


def all_gather(
    x: torch.Tensor, *, out: torch.Tensor | None = None, group: object = None, method: str = "auto", exact: bool = False
) -> torch.Tensor:
    """The ranks' ``x`` one below the other, in group order, on every rank of ``group``; in stream order of the current stream.

    All ranks of the group call it with the same shape and dtype. x: any shape (M, ...) and dtype, contiguous or not.
    out: (size * M, ...), contiguous, same dtype; may have ``x`` where it goes; allocated if None.
    group: a ``torch.distributed`` group whose ranks reach each other by direct pointers; None is all ranks.
    method: "ll", "one_shot" (see the module), "library" (``torch.distributed``), or "auto", which goes by the number of bytes and this
    machine's table, if there is one (docs/collectives_tuning.md). The bits are the same. exact: "auto" keeps to the kernels.
    Returns ``out``. The first call on a stream allocates, so make it before a CUDA graph is captured there.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError, CaptureError,
    TuningTableError.
    """
    team = find_team(group, "all_gather")
    check_tensor("all_gather", "x", x)
    if x.dim() == 0:
        raise InvalidArgumentError(f"all_gather: x has to be a tensor with at least one dimension, got {x!r}")
    shape = (team.size * x.shape[0], *x.shape[1:])
    out = made(shape, x) if out is None else out
    if again("all_gather", team, (method, exact, group), x, out):
        return out
    check_method("all_gather", method, exact, group, METHODS)
    check_device("all_gather", x, method)
    check_output("all_gather", out, shape, x)
    nbytes = x.numel() * x.element_size()
    if nbytes:
        part, target = dense(x), out
        check_apart("all_gather", part, target, same_at=-nbytes * team.index)

        def make() -> Launch | None:
            own = exact or not library_can(group, x.device)
            plan = chosen("all_gather", nbytes, team, own, METHODS, choose_method) if method == "auto" else Plan(method)
            if plan.method == "library":
                gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name from torch 2.13 on, and before
                whole, sent = (tensor.view(-1).view(torch.uint8) for tensor in (target, part))
                gather(whole, sent, group=process_group_of(group))
                return None
            if plan.method == "ll":
                return moving_launch("all_gather", part, target, team, group, plan)
            return gather_launch(part, target, team, group)

        repeated("all_gather", team, (method, exact, group), (part, target), make)
    return out


def choose_method(nbytes: int, size: int, exact: bool = False) -> str:
    """The method for parts of so many bytes on so many ranks. Never the library, with or without ``exact``."""
    return "ll" if pays(2 * nbytes * (size - 1), _LOW_LATENCY_WIRE_BYTES, size) else "one_shot"


def gather_launch(part: torch.Tensor, out: torch.Tensor, team: Team, group: object) -> Launch:
    """What ``all_gather`` launches for "one_shot"; for contiguous tensors with at least one element, checked before."""
    nbytes = part.numel() * part.element_size()
    padded, ranks = round_up(nbytes, LINE), triton.next_power_of_2(team.size)
    programs, block = division(nbytes, MOST_BYTES_AT_A_TIME // ranks)
    space = staging_of("all_gather", team, group, part.device)
    staging = space.two_slots(padded)
    width, word = word_of(nbytes, part, out)
    return Launch.of(all_gather_kernel, programs)(
        part.view(-1).view(word), out.view(-1).view(word), staging.view(word), space.buffer.peer_addresses(team), space.arrived,
        space.peer_arrived, space.epochs, team.index, team.size, nbytes // width, padded // width,
        staging.numel() // width // 2, SIZE=ranks, BLOCK=block // width, num_warps=8,
    )  # fmt: skip
