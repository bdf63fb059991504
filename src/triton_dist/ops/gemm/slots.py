"""Where the blocks of a GEMM + reduce-scatter meet: a slot for each rank in symmetric memory, its signals, and what adds the slots up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from ...runtime.preload import Launch
from ...runtime.streams import Stream, own_stream
from ...runtime.symmetric import symm_peer, symm_zeros
from ..team import GrowingBuffer, Team, workspace, world_ranks_tensor
from .epilogues import epilogue_options
from .gemm_rs_kernels import add_arrived_kernel
from .operands import Operands
from .scatter_plan import MAX_PIECES

_PROGRAMS = 1056
"""Eight for each SM of an H100: additions wait for memory."""


@dataclass
class Slots:
    """Memory of one (team, stream). ready, (size,), and flags, (MAX_PIECES, size), are symmetric; finished: one word a piece.

    staging: symmetric bytes, for one block of rows from each rank. products: blocks that are on their way to the peers.
    side_stream sends, second_stream multiplies, third_stream adds, beside the stream of the call.
    """

    staging: GrowingBuffer
    products: GrowingBuffer
    ready: torch.Tensor
    flags: torch.Tensor
    peer_ready: list[torch.Tensor]
    peer_flags: list[torch.Tensor]
    finished: torch.Tensor
    world_ranks: torch.Tensor
    side_stream: Stream
    second_stream: Stream
    third_stream: Stream

    def own_products(self, blocks: torch.Tensor) -> torch.Tensor:
        """(size - 1, rows, columns), for what goes to the peers."""
        count, rows, columns = blocks.shape
        nbytes = max(1, count - 1) * rows * columns * blocks.element_size()
        return self.products.at_least(nbytes)[:nbytes].view(blocks.dtype).view(-1, rows, columns)


def blocks_in(buffer: GrowingBuffer, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of ``shape``, (size, rows, columns), in a buffer's memory: a block for each rank; they begin at whole cache lines."""
    size, rows, columns = shape
    step = triton.cdiv(rows * columns, 64) * 64
    nbytes = size * step * dtype.itemsize
    return buffer.at_least(nbytes)[:nbytes].view(dtype).as_strided((size, rows, columns), (step, columns, 1))


def slots_of(team: Team, group: object, device: torch.device) -> Slots:
    """The slots of a team on the current stream; made, by all its ranks together, at the first call there."""

    def make() -> Slots:
        ready = symm_zeros((team.size,), torch.int32, name="ready", group=group)
        flags = symm_zeros((MAX_PIECES, team.size), torch.int32, name="flags", group=group)
        return Slots(
            staging=GrowingBuffer.symmetric("gemm_rs", "staging", group),
            products=local_buffer("gemm_rs", device),
            ready=ready,
            flags=flags,
            peer_ready=[symm_peer(ready, rank) for rank in team.ranks],
            peer_flags=[symm_peer(flags, rank) for rank in team.ranks],
            finished=torch.zeros(MAX_PIECES, dtype=torch.int32, device=device),
            world_ranks=world_ranks_tensor(team, device),
            side_stream=own_stream(),
            second_stream=own_stream(),
            third_stream=own_stream(),
        )

    return workspace("gemm_rs", team.ranks, make)


def local_buffer(what: str, device: torch.device) -> GrowingBuffer:
    """One of this rank's own memory."""
    return GrowingBuffer(what, lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, device=device))


def addition_of(
    space: Slots,
    blocks: torch.Tensor,
    out: torch.Tensor,
    operands: Operands,
    index: int,
    *,
    expected: int = 1,
    piece: int = 0,
    programs: int = _PROGRAMS,
) -> Launch:
    """``add_arrived_kernel`` for ``out``, (rows, columns), once all peers have signalled ``expected`` times that a piece is there.

    blocks: (size, rows, columns), the part of the slots that is added up. operands: whose bias and epilogue it gets. index: this rank's
    place in the team.
    """
    size, rows, columns = blocks.shape
    bias = operands.bias
    tile_n = min(2048, max(16, triton.next_power_of_2(columns)))
    tile_m = 2048 // tile_n
    tiles = triton.cdiv(rows, tile_m) * triton.cdiv(columns, tile_n)
    return Launch.of(add_arrived_kernel, min(tiles, programs))(
        blocks, out, out if bias is None else bias, space.flags[piece], space.finished[piece:], index, expected, rows, columns,
        blocks.stride(0), SIZE=size, BIASED=bias is not None, TILE_M=tile_m, TILE_N=tile_n, CAPACITY=triton.next_power_of_2(size),
        **epilogue_options(operands.epilogue), num_warps=8,
    )  # fmt: skip
