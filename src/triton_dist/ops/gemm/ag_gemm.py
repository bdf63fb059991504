"""All-gather + GEMM: every rank gets ``concat(a_shards) @ b`` and computes while the shards of A still arrive.

Each rank pushes its rows of A to every peer, by the copy engine or by a few programs of a kernel, block of rows by block of
rows, and sets a signal behind each block. The GEMM starts with its own rows, goes on in the order in which the others arrive,
and waits once per output tile. It wins where the product takes about as long as the gathering or longer; for a few rows
(decoding) the gathering's latency is all there is, and a plain all-gather followed by a matrix product is as good.

Who writes, resets and waits for each signal: ``flags[s, b]`` of a rank is set to 1 by rank ``s`` when block ``b`` of its rows
has arrived, waited for by every tile in these rows, and reset to 0 by the rank itself when its GEMM is done. A barrier of the
team ends the call: after it every rank has read its rows and reset its flags, so the next call may push at once. Nothing is
counted on the host.
The method is that of tile-centric overlapping (arXiv 2503.20313, 2504.19442).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ...errors import InvalidArgumentError
from ...runtime.streams import Event, Stream, copy_async, current_stream, stream, write_value
from ...runtime.symmetric import symm_empty, symm_peer, symm_zeros
from ..collectives.barrier import team_barrier
from ..team import Team, find_team, workspace, world_ranks_tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
PRODUCERS = ("copy_engine", "kernel")
PRODUCER_PROGRAMS = 8


@triton_dist.jit(do_not_specialize=["index"])
def push_shard_kernel(
    shard,
    gathered,
    flags,
    world_ranks,
    index,
    size,
    rows,
    columns,
    blocks,
    ROWS_PER_SIGNAL: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Copy this rank's rows to every rank of the team, nearest first, and signal each block; programs share the (peer, block) pairs."""
    for item in range(tl.program_id(0), size * blocks, tl.num_programs(0)):
        peer = tl.load(world_ranks + (index + item // blocks) % size)
        block = item % blocks
        target = dl.symm_at(gathered, peer)
        end = tl.minimum((block + 1) * ROWS_PER_SIGNAL, rows)
        for first in range(block * ROWS_PER_SIGNAL, end, TILE_M):
            row = first + tl.arange(0, TILE_M)
            for begin in range(0, columns, TILE_K):
                column = begin + tl.arange(0, TILE_K)
                mask = (row[:, None] < end) & (column[None, :] < columns)
                offset = row[:, None].to(tl.int64) * columns + column[None, :]
                tile = tl.load(shard + offset, mask=mask)
                tl.store(target + index.to(tl.int64) * rows * columns + offset, tile, mask=mask)
        # notify orders every store of the block before the signal.
        dl.notify(flags + index * blocks + block, peer, signal=1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit(do_not_specialize=["index"])
def consumer_gemm_kernel(
    gathered, flags, b, out, index, size, rows, columns_out, depth, stride_bk, stride_bn, stride_om, blocks,
    ROWS_PER_SIGNAL: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``gathered @ b``, tile by tile in the order in which the rows arrive: this rank's own first, then those of the ranks before it."""
    tiles_m = tl.cdiv(rows, TILE_M)
    tiles_n = tl.cdiv(columns_out, TILE_N)
    tiles_per_shard = tiles_m * tiles_n
    for tile in range(tl.program_id(0), tiles_per_shard * size, tl.num_programs(0)):
        shard = (index + size - tile // tiles_per_shard) % size
        first_row = tile % tiles_per_shard // tiles_n * TILE_M
        first_column = tile % tiles_n * TILE_N
        token = dl.wait(flags + shard * blocks + first_row // ROWS_PER_SIGNAL, 1, "sys", "acquire", waitValue=1)
        source = dl.consume_token(gathered, token)

        row = first_row + tl.arange(0, TILE_M)
        column = first_column + tl.arange(0, TILE_N)
        k = tl.arange(0, TILE_K)
        global_row = shard.to(tl.int64) * rows + row
        a_pointers = source + global_row[:, None] * depth + k[None, :]
        b_pointers = b + k[:, None].to(tl.int64) * stride_bk + column[None, :].to(tl.int64) * stride_bn
        accumulator = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(0, tl.cdiv(depth, TILE_K)):
            inside = k < depth - step * TILE_K
            a_tile = tl.load(a_pointers, mask=(row[:, None] < rows) & inside[None, :], other=0.0)
            b_tile = tl.load(b_pointers, mask=inside[:, None] & (column[None, :] < columns_out), other=0.0)
            accumulator = tl.dot(a_tile, b_tile, accumulator, input_precision=PRECISION)
            a_pointers += TILE_K
            b_pointers += TILE_K * tl.cast(stride_bk, tl.int64)  # a stride of 1 is a constant and has no .to
        result = accumulator.to(out.dtype.element_ty)
        out_pointers = out + global_row[:, None] * stride_om + column[None, :]
        tl.store(out_pointers, result, mask=(row[:, None] < rows) & (column[None, :] < columns_out))


@triton_dist.jit(do_not_specialize=["index"])
def finish_kernel(flags, arrived, epoch, world_ranks, index, size, num_flags, BLOCK: tl.constexpr):
    """Reset this rank's flags, then meet the team: one program. After it, everyone's buffers are free for the next call."""
    for begin in range(0, num_flags, BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        tl.store(flags + offset, tl.zeros((BLOCK,), tl.int32), mask=offset < num_flags)
    team_barrier(arrived, epoch, world_ranks, index, size)


@dataclass(frozen=True)
class Tiles:
    """Sizes of an output tile and of a step along K; rows behind one signal, a multiple of ``m``."""

    m: int
    n: int
    k: int
    rows_per_signal: int


@dataclass
class _Workspace:
    """Memory of one (team, shape, stream): gathered (size * rows, K) and flags (size, blocks) and arrived (size,) are symmetric."""

    gathered: torch.Tensor
    flags: torch.Tensor
    arrived: torch.Tensor
    epoch: torch.Tensor
    world_ranks: torch.Tensor
    side_stream: Stream


def ag_gemm(
    a_shard: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    group: object = None,
    producer: str = "copy_engine",
    tiles: Tiles | None = None,
    num_programs: int | None = None,
) -> torch.Tensor:
    """``concat(a_shard of every rank) @ b`` on every rank of ``group``, in stream order of the current stream.

    All ranks of the group call it, with the same ``a_shard`` shape and dtype and the same options; ``b`` may differ.

    a_shard: (M_local, K), this rank's rows of A; fp32, fp16 or bf16. b: (K, N), any strides, of the same dtype.
    out: (size * M_local, N), last dimension contiguous; allocated if None. Products are summed in fp32 and rounded once.
    group: a ``torch.distributed`` group whose ranks reach each other by direct pointers; None is all ranks.
    producer: "copy_engine", or "kernel" for a copy by a few programs (``PRODUCER_PROGRAMS``).
    tiles: sizes to use instead of those chosen by shape. num_programs: of the GEMM; by default one an SM, less the producer's.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError.
    """
    team = find_team(group, "ag_gemm")
    _check(a_shard, b, out, team, producer, num_programs)
    rows, depth = a_shard.shape
    columns = b.shape[1]
    if out is None:
        out = torch.empty((team.size * rows, columns), dtype=a_shard.dtype, device=a_shard.device)
    if rows == 0:
        return out
    if depth == 0:
        return out.zero_()
    tiles = tiles or choose_tiles(rows, columns, depth, a_shard.element_size())
    _check_tiles(tiles)
    blocks = triton.cdiv(rows, tiles.rows_per_signal)
    key = (team.ranks, rows, depth, a_shard.dtype, blocks)
    space: _Workspace = workspace("ag_gemm", key, lambda: _make_workspace(a_shard, team, blocks, group))

    shard = a_shard.contiguous()
    main = current_stream()
    space.side_stream.wait_event(main.record_event())  # the shard is ready, and the barrier of the call before has passed
    if producer == "kernel":
        _push_by_kernel(shard, space, team, tiles, blocks)
    else:
        _push_by_copy_engine(shard, space, team, tiles.rows_per_signal, blocks)
    pushed: Event = space.side_stream.record_event()

    _multiply(space, b, out, team, tiles, num_programs or _sm_count() - (PRODUCER_PROGRAMS if producer == "kernel" else 0))
    main.wait_event(pushed)
    finish_kernel[(1,)](
        space.flags, space.arrived, space.epoch, space.world_ranks, team.index, team.size, space.flags.numel(), BLOCK=256, num_warps=4
    )
    return out


def choose_tiles(rows: int, columns: int, depth: int, itemsize: int) -> Tiles:
    """Tile sizes for a shard of ``rows`` x ``depth`` elements of ``itemsize`` bytes; about four signals a shard."""
    m = min(128, max(16, triton.next_power_of_2(rows)))
    n = min(128, max(16, triton.next_power_of_2(max(columns, 1))))
    k = min(128 // itemsize, max(16, triton.next_power_of_2(depth)))
    return Tiles(m, n, k, m * max(1, triton.cdiv(rows, 4 * m)))


def _check(a_shard: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, team: Team, producer: str, num_programs: int | None) -> None:
    for name, tensor in (("a_shard", a_shard), ("b", b)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2:
            seen = f"shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else repr(type(tensor))
            raise InvalidArgumentError(f"ag_gemm: {name} has to be a matrix, got {seen}")
    if a_shard.dtype not in DTYPES or b.dtype != a_shard.dtype:
        raise InvalidArgumentError(f"ag_gemm: a_shard is {a_shard.dtype} and b {b.dtype}; both have to be one of {DTYPES}")
    if a_shard.shape[1] != b.shape[0]:
        raise InvalidArgumentError(f"ag_gemm: a_shard is {tuple(a_shard.shape)} and b {tuple(b.shape)}; the inner sizes have to be equal")
    if producer not in PRODUCERS:
        raise InvalidArgumentError(f"ag_gemm: producer={producer!r} is not known; use one of {PRODUCERS}")
    if num_programs is not None and num_programs < 1:
        raise InvalidArgumentError(f"ag_gemm: num_programs={num_programs}; it has to be at least 1, or None for one program an SM")
    if out is not None:
        wanted = (team.size * a_shard.shape[0], b.shape[1])
        if tuple(out.shape) != wanted or out.dtype != a_shard.dtype or (out.numel() and out.stride(1) != 1):
            raise InvalidArgumentError(
                f"ag_gemm: out is {tuple(out.shape)} {out.dtype} with strides {out.stride()}; "
                f"it has to be {wanted} {a_shard.dtype} with last stride 1"
            )


def _check_tiles(tiles: Tiles) -> None:
    sizes = (tiles.m, tiles.n, tiles.k)
    if any(size < 16 or size & (size - 1) for size in sizes) or tiles.rows_per_signal <= 0 or tiles.rows_per_signal % tiles.m:
        raise InvalidArgumentError(f"ag_gemm: {tiles}: m, n and k have to be powers of 2 from 16 on, and rows_per_signal a multiple of m")


def _make_workspace(a_shard: torch.Tensor, team: Team, blocks: int, group: object) -> _Workspace:
    rows, depth = a_shard.shape
    device = a_shard.device
    return _Workspace(
        gathered=symm_empty((team.size * rows, depth), a_shard.dtype, name="gathered", group=group),
        flags=symm_zeros((team.size, blocks), torch.int32, name="flags", group=group),
        arrived=symm_zeros((team.size,), torch.int32, name="arrived", group=group),
        epoch=torch.zeros(1, dtype=torch.int32, device=device),
        world_ranks=world_ranks_tensor(team, device),
        side_stream=Stream(),
    )


def _push_by_copy_engine(shard: torch.Tensor, space: _Workspace, team: Team, rows_per_signal: int, blocks: int) -> None:
    """Own rows first, then the next rank's, and so on: every rank sends to another one at any time."""
    rows = shard.shape[0]
    begin = team.index * rows
    for distance in range(team.size):
        peer = team.ranks[(team.index + distance) % team.size]
        gathered, flags = symm_peer(space.gathered, peer), symm_peer(space.flags, peer)
        for block in range(blocks):
            first, last = block * rows_per_signal, min((block + 1) * rows_per_signal, rows)
            copy_async(gathered[begin + first : begin + last], shard[first:last], space.side_stream)
            # The stream orders the signal behind the copy.
            write_value(flags[team.index, block], 1, space.side_stream)


def _push_by_kernel(shard: torch.Tensor, space: _Workspace, team: Team, tiles: Tiles, blocks: int) -> None:
    rows, depth = shard.shape
    programs = min(PRODUCER_PROGRAMS, team.size * blocks)
    with stream(space.side_stream):
        push_shard_kernel[(programs,)](
            shard, space.gathered, space.flags, space.world_ranks, team.index, team.size, rows, depth, blocks,
            ROWS_PER_SIGNAL=tiles.rows_per_signal, TILE_M=min(tiles.m, 32), TILE_K=min(256, triton.next_power_of_2(depth)),
        )  # fmt: skip


def _multiply(space: _Workspace, b: torch.Tensor, out: torch.Tensor, team: Team, tiles: Tiles, most_programs: int) -> None:
    depth, columns = b.shape
    rows = out.shape[0] // team.size
    num_tiles = team.size * triton.cdiv(rows, tiles.m) * triton.cdiv(columns, tiles.n)
    if not num_tiles:
        return
    consumer_gemm_kernel[(max(1, min(num_tiles, most_programs)),)](
        space.gathered, space.flags, b, out, team.index, team.size, rows, columns, depth,
        b.stride(0), b.stride(1), out.stride(0), space.flags.shape[1],
        ROWS_PER_SIGNAL=tiles.rows_per_signal, TILE_M=tiles.m, TILE_N=tiles.n, TILE_K=tiles.k,
        PRECISION="ieee", num_warps=8 if tiles.m * tiles.n >= 128 * 128 else 4,
    )  # fmt: skip


def _sm_count() -> int:
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"]
