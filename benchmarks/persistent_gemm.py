"""A persistent matrix product by tensor descriptors, and an all-gather + GEMM of it: what calibration and prediction measure with.

The kernel is the plain form of its kind: one program an SM, 128 x 256 tiles in groups of rows, fp32 sums. It can wait once for each
shard of A, own shard first, so that the same code is the product alone and the consumer of an all-gather.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl
from triton_dist.runtime.streams import Stream, copy_async, current_stream, write_value
from triton_dist.runtime.symmetric import symm_empty, symm_peer, symm_zeros

TILE_M, TILE_N, GROUP_M = 128, 256, 8
TILE_K_BYTES = 128
"""Bytes of a row of a step along K: 64 elements of 16 bits."""


@triton_dist.jit(do_not_specialize=["index"])
def persistent_gemm_kernel(
    a, b, c, flags, rows, columns, depth, index, size,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr, WAITS: tl.constexpr,
):  # fmt: skip
    """``c = a @ b.T`` for a (size * rows, depth) and b (columns, depth). With WAITS a tile waits for ``flags[its shard]`` to be 1."""
    tiles_m = tl.cdiv(rows, TILE_M) * size
    tiles_n = tl.cdiv(columns, TILE_N)
    tiles_per_shard = tl.cdiv(rows, TILE_M)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        group = tile // (GROUP_M * tiles_n)
        group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
        within = tile % (GROUP_M * tiles_n)
        tile_m = (group * GROUP_M + within % group_rows + index * tiles_per_shard) % tiles_m
        tile_n = within // group_rows
        first_row = tile_m // tiles_per_shard * rows + tile_m % tiles_per_shard * TILE_M
        if WAITS:
            token = dl.wait(flags + tile_m // tiles_per_shard, 1, "sys", "acquire", waitValue=1)
            first_row = dl.consume_token(first_row, token)
        accumulator = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(0, tl.cdiv(depth, TILE_K)):
            a_tile = a.load([first_row, step * TILE_K])
            b_tile = b.load([tile_n * TILE_N, step * TILE_K])
            accumulator = tl.dot(a_tile, b_tile.T, accumulator)
        c.store([first_row, tile_n * TILE_N], accumulator.to(c.dtype))


def sm_count() -> int:
    """Streaming multiprocessors of the current GPU, real or pretended."""
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"]


def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, flags: torch.Tensor | None = None, index: int = 0, size: int = 1) -> None:
    """``c = a @ b.T`` in stream order; a (M, K), b (N, K), c (M, N).

    flags: as of the kernel, one for each of ``size`` shards of the rows; shard ``index`` comes first. None: nothing is waited for.
    """
    rows, depth = a.shape[0] // size, a.shape[1]
    columns = b.shape[0]
    tile_k = TILE_K_BYTES // a.element_size()
    if rows % TILE_M and size > 1:
        raise ValueError(f"{rows} rows a shard; this kernel takes multiples of {TILE_M}")
    tiles = triton.cdiv(rows, TILE_M) * size * triton.cdiv(columns, TILE_N)
    persistent_gemm_kernel[(min(tiles, sm_count()),)](
        TensorDescriptor.from_tensor(a, [TILE_M, tile_k]),
        TensorDescriptor.from_tensor(b, [TILE_N, tile_k]),
        TensorDescriptor.from_tensor(c, [TILE_M, TILE_N]),
        flags, rows, columns, depth, index, size,
        TILE_M=TILE_M, TILE_N=TILE_N, TILE_K=tile_k, GROUP_M=GROUP_M, WAITS=flags is not None, num_warps=8, num_stages=3,
    )  # fmt: skip


@triton_dist.jit(do_not_specialize=["rank"])
def meet_kernel(arrived, rank, size, value):
    """Every rank tells every other one that it is there, and waits for them: one program."""
    for peer in range(size):
        dl.notify(arrived + rank, peer, signal=value, sig_op="set", comm_scope="intra_node")
    for peer in range(size):
        dl.wait(arrived + peer, 1, "sys", "acquire", waitValue=value)


class OverlappedAllGatherGemm:
    """All-gather + GEMM: the copy engine pulls the shards of A from the peers on a side stream while the product runs.

    Every rank makes one, with equal shapes, and calls it. rows: of each rank's shard of A.
    """

    def __init__(self, rank: int, size: int, rows: int, depth: int, dtype: torch.dtype, device: torch.device) -> None:
        self.rank, self.size, self.rows = rank, size, rows
        self.gathered = symm_empty((size * rows, depth), dtype, name="gathered")
        self.arrived = symm_zeros((size,), torch.int32, name="arrived")
        self.flags = torch.zeros(size, dtype=torch.int32, device=device)
        self.side = Stream()
        self.calls = 0

    def __call__(self, shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """``out = concat(shards) @ b.T`` in stream order."""
        self.calls += 1
        main, rows = current_stream(), self.rows
        self.flags.zero_()
        copy_async(self.gathered[self.rank * rows : (self.rank + 1) * rows], shard)
        write_value(self.flags[self.rank], 1)
        meet_kernel[(1,)](self.arrived, self.rank, self.size, self.calls, num_warps=1)
        self.side.wait_stream(main)
        for distance in range(1, self.size):
            peer = (self.rank + distance) % self.size
            piece = slice(peer * rows, (peer + 1) * rows)
            copy_async(self.gathered[piece], symm_peer(self.gathered, peer)[piece], self.side)
            write_value(self.flags[peer], 1, self.side)
        multiply(self.gathered, b, out, self.flags, self.rank, self.size)
        main.wait_stream(self.side)
