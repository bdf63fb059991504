"""All-gather by one kernel: every rank puts its part where peers can read it, says so, and reads the others' parts.

One launch and one signal's latency, so it wins over NCCL up to some megabytes; above, copy engines and NCCL reach the link's rate
without using SMs. Nothing is counted on the host and no barrier is needed: parts alternate between two staging buffers by an epoch in
device memory, and a rank that has seen a peer's signal of one call knows that the peer has finished the call before.

Who writes and resets what: ``arrived[p, s]`` of a rank is set to the epoch by program ``p`` of rank ``s`` when its piece of the part is
staged, and waited for by program ``p``; it only grows. The last program of a call to finish advances ``epoch`` and resets ``finished``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import InvalidArgumentError
from ...runtime.preload import Launch
from ...runtime.symmetric import symm_zeros
from ..team import GrowingBuffer, Team, find_team, peer_addresses, workspace

MAX_PROGRAMS = 128
_BYTES_A_PROGRAM = 8 << 10
_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.int8))


@triton_dist.jit(do_not_specialize=["index"])
def all_gather_kernel(
    part, out, staging, peer_staging, peer_arrived, arrived, epoch, finished, index, size, count, capacity,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, ALIGNMENT: tl.constexpr,
):  # fmt: skip
    """``out[s] = part of rank s`` for all ranks of the team; ``count`` words each. Program ``p`` moves piece ``p`` of every part.

    peer_staging, peer_arrived: int64 addresses of every rank's ``staging`` and ``arrived``. SIZE: size, up to a power of 2, so that the
    loads from all ranks are under way together. ALIGNMENT: bytes that all addresses are multiples of.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    now = tl.load(epoch) + 1
    slot = (now % 2).to(tl.int64) * capacity
    piece = tl.cdiv(tl.cdiv(count, programs), BLOCK) * BLOCK
    begin, end = program.to(tl.int64) * piece, tl.minimum((program + 1).to(tl.int64) * piece, count)
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        tl.store(staging + slot + offset, tl.load(part + offset, mask=offset < end), mask=offset < end)
    tl.debug_barrier()  # so that each release below covers the stores of the whole block
    peer = tl.arange(0, SIZE)
    words = tl.load(peer_arrived + peer, mask=peer < size, other=0).to(tl.pointer_type(tl.int32)) + (program * size + index)
    tl.atomic_xchg(words, now, mask=peer < size, sem="release", scope="sys")
    token = dl.wait(arrived + program * size, size, "sys", "acquire", waitValue=now, cmp="ge")
    addresses = tl.load(dl.consume_token(peer_staging, token) + peer, mask=peer < size, other=0)
    sources = tl.multiple_of(addresses, ALIGNMENT).to(tl.pointer_type(staging.dtype.element_ty)) + slot
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside = (peer[:, None] < size) & (offset[None, :] < end)
        theirs = tl.load(sources[:, None] + offset[None, :], mask=inside)
        tl.store(out + peer[:, None].to(tl.int64) * count + offset[None, :], theirs, mask=inside)
    if tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.store(finished, 0)
        tl.store(epoch, now)


@dataclass
class _Workspace:
    """Memory of one (team, stream). arrived: (MAX_PROGRAMS, size), symmetric; epoch, finished: one word each."""

    staging: GrowingBuffer
    arrived: torch.Tensor
    peer_arrived: torch.Tensor
    epoch: torch.Tensor
    finished: torch.Tensor


def all_gather(x: torch.Tensor, *, out: torch.Tensor | None = None, group: object = None) -> torch.Tensor:
    """The ranks' ``x`` one below the other, in group order, on every rank of ``group``; in stream order of the current stream.

    All ranks of the group call it with the same shape and dtype. x: any shape (M, ...) and dtype, contiguous or not.
    out: (size * M, ...), contiguous, same dtype; allocated if None. group: a ``torch.distributed`` group whose ranks reach each other
    by direct pointers; None is all ranks. Returns ``out``.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError.
    """
    team = find_team(group, "all_gather")
    if not isinstance(x, torch.Tensor) or x.dim() == 0:
        raise InvalidArgumentError(f"all_gather: x has to be a tensor with at least one dimension, got {x!r}")
    shape = (team.size * x.shape[0], *x.shape[1:])
    if out is None:
        out = torch.empty(shape, dtype=x.dtype, device=x.device)
    elif tuple(out.shape) != shape or out.dtype != x.dtype or not out.is_contiguous():
        raise InvalidArgumentError(f"all_gather: out is {tuple(out.shape)} {out.dtype}; it has to be {shape} {x.dtype}, contiguous")
    nbytes = x.numel() * x.element_size()
    if nbytes:
        gather_launch(x.contiguous(), out, team, group).run()
    return out


def gather_launch(part: torch.Tensor, out: torch.Tensor, team: Team, group: object) -> Launch:
    """What ``all_gather`` launches; for contiguous tensors with at least one element, checked before."""
    nbytes = part.numel() * part.element_size()
    space: _Workspace = workspace("all_gather", team.ranks, lambda: _make_workspace(team, group, part.device))
    staging = space.staging.at_least(2 * -(-nbytes // 16) * 16)
    alignment = nbytes | part.data_ptr() | out.data_ptr()
    width, word = next((width, word) for width, word in _WORDS if alignment % width == 0)
    count = nbytes // width
    programs = max(1, min(MAX_PROGRAMS, triton.cdiv(nbytes, _BYTES_A_PROGRAM)))
    size = triton.next_power_of_2(team.size)
    # As many words at a time as keep some 128 bytes of each thread under way.
    most = max(16, (32 << 10) // width // size)
    block = min(most, max(16, triton.next_power_of_2(triton.cdiv(count, programs))))
    return Launch.of(all_gather_kernel, programs)(
        part.view(-1).view(word), out.view(-1).view(word), staging.view(word), space.staging.peer_addresses(team), space.peer_arrived,
        space.arrived, space.epoch, space.finished, team.index, team.size, count, staging.numel() // width // 2,
        SIZE=size, BLOCK=block, ALIGNMENT=16, num_warps=8,
    )  # fmt: skip


def _make_workspace(team: Team, group: object, device: torch.device) -> _Workspace:
    arrived = symm_zeros((MAX_PROGRAMS, team.size), torch.int32, name="arrived", group=group)
    return _Workspace(
        staging=GrowingBuffer.symmetric("all_gather", "staging", group),
        arrived=arrived,
        peer_arrived=peer_addresses(arrived, team),
        epoch=torch.zeros(1, dtype=torch.int32, device=device),
        finished=torch.zeros(1, dtype=torch.int32, device=device),
    )
