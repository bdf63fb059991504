"""Launches of the kernels that few rows take: they push partial results to the ranks that need them, meet, and add; for both operators."""

from __future__ import annotations

import torch
import triton

from ...errors import InvalidArgumentError
from ...runtime.preload import Launch
from ..collectives.staging import MAX_PROGRAMS, Staging, staging_of
from ..team import Team
from .epilogues import epilogue_options
from .gemm_rs_kernels import push_and_add_kernel, small_product_kernel, two_shot_sum_kernel
from .operands import FP8, Operands

MOST_SMALL_ROWS = 128
"""Rows of A that one tile of ``small_product_kernel`` holds."""
_LEAST_ELEMENTS, _MOST_ELEMENTS = 2048, 8192
"""Of a tile that is moved and added up: one word of 16 bytes for each thread, and as many as its registers hold
of up to 8 ranks."""


def suits_small(what: str, operands: Operands) -> None:
    """Raises InvalidArgumentError for more rows than a tile holds."""
    rows = operands.a.shape[0]
    if rows > MOST_SMALL_ROWS:
        raise InvalidArgumentError(f"{what}: method='small' takes up to {MOST_SMALL_ROWS} rows, not {rows}; use another method")


def push_and_add_launch(what: str, partial: torch.Tensor, out: torch.Tensor, operands: Operands, team: Team, group: object) -> Launch:
    """``push_and_add_kernel`` for a contiguous partial result: of all rows of ``out``, or of this rank's if ``out`` has fewer.

    operands: whose bias and epilogue the sum gets.
    """
    rows, columns = out.shape
    space, arguments, step = _staged(f"{what} split", out, team, group)
    tile_m, tile_n = _tile_of(rows, columns, 1, team.size)
    tiles = triton.cdiv(rows, tile_m) * triton.cdiv(columns, tile_n)
    return Launch.of(push_and_add_kernel, min(tiles, MAX_PROGRAMS))(
        partial, out, out if operands.bias is None else operands.bias, *arguments, team.index, rows, columns, step, _capacity(space, out),
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), SCATTER=partial.shape[0] != rows, BIASED=operands.bias is not None,
        **epilogue_options(operands.epilogue), TILE_M=tile_m, TILE_N=tile_n, num_warps=8,
    )  # fmt: skip


def two_shot_launch(partial: torch.Tensor, out: torch.Tensor, operands: Operands, team: Team, group: object) -> Launch:
    """``two_shot_sum_kernel`` for a contiguous partial result of ``out``'s shape, which may be ``out``; else as above."""
    rows, columns = out.shape
    tile_m, tile_n = _tile_of(rows, columns, team.size, team.size)
    part = triton.cdiv(triton.cdiv(rows, tile_m) * triton.cdiv(columns, tile_n), team.size)
    space = staging_of("gemm_ar two_shot", team, group, out.device)
    staging = space.two_slots(team.size * part * tile_m * tile_n * out.element_size()).view(out.dtype)
    words = (space.arrived, space.peer_arrived, space.epochs)
    return Launch.of(two_shot_sum_kernel, min(part, MAX_PROGRAMS))(
        partial, out, out if operands.bias is None else operands.bias, staging, space.buffer.peer_addresses(team), *words,
        team.index, rows, columns, part, staging.numel() // 2,
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), BIASED=operands.bias is not None,
        **epilogue_options(operands.epilogue), TILE_M=tile_m, TILE_N=tile_n, num_warps=8,
    )  # fmt: skip


def _tile_of(rows: int, columns: int, parts: int, size: int) -> tuple[int, int]:
    """Rows and columns of the tiles that a sum is moved in, so that a program has one of each part to move, if that is not too large.

    A program loads a tile before it stores it, and so has to wait for the memory once a tile. It has tiles for all of ``size`` ranks.
    """
    elements = triton.next_power_of_2(triton.cdiv(rows * columns, parts * MAX_PROGRAMS))
    most = _MOST_ELEMENTS * 8 // triton.next_power_of_2(max(8, size))
    elements = max(_LEAST_ELEMENTS, min(most, elements))
    tile_n = min(1024, elements, max(16, triton.next_power_of_2(columns)))
    return elements // tile_n, tile_n


def small_launch(what: str, operands: Operands, out: torch.Tensor, team: Team, group: object, *, scatter: bool) -> Launch:
    """``small_product_kernel`` for checked operands with at most ``MOST_SMALL_ROWS`` rows."""
    rows, columns = out.shape
    a, b, bias, depth = operands.a, operands.b, operands.bias, operands.depth
    space, arguments, step = _staged(f"{what} small", out, team, group)
    tile_m = max(16, triton.next_power_of_2(a.shape[0]))
    tile_n = small_tile_columns(columns)
    tile_k = small_tile_depth(depth, a.element_size())
    scale_a, scale_b = operands.scales or (space.epochs, space.epochs)
    return Launch.of(small_product_kernel, min(MAX_PROGRAMS, triton.cdiv(columns, tile_n)))(
        a, b, out, out if bias is None else bias, scale_a, scale_b, *arguments,
        team.index, rows, columns, depth, a.stride(0), a.stride(1), b.stride(0), b.stride(1), step, _capacity(space, out),
        SIZE=team.size, WORDS=triton.next_power_of_2(team.size), SCATTER=scatter, BIASED=bias is not None,
        **epilogue_options(operands.epilogue),
        SCALED=operands.scales is not None, EVEN=depth % tile_k == 0, PRECISION="ieee",
        TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, num_warps=4, num_stages=4 if a.dtype not in FP8 or tile_m < 128 else 3,
    )  # fmt: skip


def small_tile_columns(columns: int) -> int:
    """Columns of a tile: so that a grid of ``MAX_PROGRAMS`` programs has the fewest columns to go through one after the other."""
    if columns < 32:
        return 16

    def in_a_row(width: int) -> int:
        return triton.cdiv(triton.cdiv(columns, width), MAX_PROGRAMS) * width

    return min((64, 32), key=in_a_row)


def small_tile_depth(depth: int, itemsize: int) -> int:
    """How far a step along K goes: 256 bytes of a row, less where K is short."""
    return min(256 // itemsize, max(32 if itemsize == 1 else 16, triton.next_power_of_2(depth)))


def _staged(what: str, out: torch.Tensor, team: Team, group: object) -> tuple[Staging, tuple, int]:
    """Staging memory for a block like ``out`` from each rank; the kernels' arguments for it; elements from one block to the next."""
    step = triton.cdiv(out.numel(), 64) * 64  # whole cache lines
    space = staging_of(what, team, group, out.device)
    staging = space.buffer.at_least(2 * team.size * step * out.element_size()).view(out.dtype)
    peers = space.buffer.peer_addresses(team)
    return space, (staging, peers, space.arrived, space.peer_arrived, space.epochs), step


def _capacity(space: Staging, out: torch.Tensor) -> int:
    """Elements of the half of the staging memory that one call uses."""
    return space.buffer.at_least(0).numel() // out.element_size() // 2
