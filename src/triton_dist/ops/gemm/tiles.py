"""How the tiles of a matrix product are shared out to the programs of a persistent grid, and the product of one tile by TMA."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_position(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of tile number ``tile``: down ``GROUP`` rows of tiles, then the next column, so that neighbours share operands."""
    per_group = GROUP * tiles_n
    first_row = tile // per_group * GROUP
    rows = tl.minimum(tiles_m - first_row, GROUP)
    inside = tile % per_group
    return first_row + inside % rows, inside // rows


@triton.jit
def first_tile_from(tile):
    """The first of this program's tiles (its own number, and then every ``num_programs``-th) that is not before ``tile``."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    return program + tl.cdiv(tl.maximum(tile - program, 0), programs) * programs


@triton.jit
def tma_product(
    a_desc, b_desc, a_block, row, column, depth,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, B_BY_COLUMNS: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """``A[a_block, row : row + TILE_M] @ B[:, column : column + TILE_N]`` in fp32.

    a_desc: (blocks, rows, depth), in boxes (1, TILE_M, TILE_K). b_desc: (columns, depth) if ``B_BY_COLUMNS``, else (depth, columns).
    IMPRECISE: fp8 products that the matrix unit may add up before they go into the fp32 sum; None leaves it to Triton.
    """
    accumulator = tl.zeros((TILE_M, TILE_N), tl.float32)
    for step in range(0, tl.cdiv(depth, TILE_K)):
        a_tile = a_desc.load([a_block, row, step * TILE_K]).reshape(TILE_M, TILE_K)
        b_tile = b_desc.load([column, step * TILE_K]).T if B_BY_COLUMNS else b_desc.load([step * TILE_K, column])
        accumulator = tl.dot(a_tile, b_tile, accumulator, max_num_imprecise_acc=IMPRECISE)
    return accumulator
