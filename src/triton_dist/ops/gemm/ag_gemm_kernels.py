"""Kernels of the fused all-gather + GEMM: the producer that pushes a shard to the peers, and the products that consume what arrives.

Who writes, resets and waits for which signal is told in ``ag_gemm``.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from .epilogues import apply_epilogue
from .tiles import first_tile_from, tile_position, tma_product


@triton.jit
def announce(ready, world_ranks, index, size, blocks):
    """Tell every peer that this rank's gathered rows may be overwritten; the first programs tell one peer each."""
    for distance in range(1 + tl.program_id(0), size, tl.num_programs(0)):
        peer = tl.load(world_ranks + (index + distance) % size)
        dl.notify(ready + index, peer, signal=blocks, sig_op="set", comm_scope="intra_node")


@triton.jit
def leave(flags, finished, index, size, blocks, MAX: tl.constexpr, CAPACITY: tl.constexpr, WAITED: tl.constexpr):
    """The last program resets the flags, once all of them have been ``WAITED`` for.

    The counter orders the waits before the reset. It announces no tile: those are complete at the kernel's end.
    """
    if tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:  # td: ignore[TD202]
        if not WAITED:
            for distance in range(1, size):
                dl.wait(flags + (index + distance) % size * MAX, blocks, "sys", "acquire", waitValue=1)
        offset = tl.arange(0, CAPACITY)
        tl.store(flags + offset, tl.zeros((CAPACITY,), tl.int32), mask=offset < size * MAX)
        tl.store(finished, 0)


@triton_dist.jit(do_not_specialize=["index"])
def push_shard_kernel(
    shard, gathered, ready, flags, world_ranks, index, size, rows, columns, blocks,
    ROWS_PER_SIGNAL: tl.constexpr, MAX: tl.constexpr, TILE_M: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """Copy this rank's rows to its peers, the first to need them first, and signal each block; programs share the (peer, block) pairs."""
    for item in range(tl.program_id(0), (size - 1) * blocks, tl.num_programs(0)):
        receiver = (index + 1 + item // blocks) % size
        peer = tl.load(world_ranks + receiver)
        block = item % blocks
        token = dl.wait(ready + receiver, 1, "sys", "acquire", waitValue=1, cmp="ge")
        target = dl.consume_token(dl.symm_at(gathered, peer), token)
        # One taken for each block: the word is 0 again before the peer can have all its blocks, and so before it sets the word anew.
        tl.atomic_add(ready + receiver, -1, sem="acq_rel", scope="sys")
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
        dl.notify(flags + index * MAX + block, peer, signal=1, sig_op="set", comm_scope="intra_node")


@triton.jit
def multiply_blocks(
    a_desc, b_desc, out_desc, scale, first, last, base, order, count, index, size, blocks, tiles_m, tiles_n, depth,
    epilogue_row, epilogue_args,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr,
    OWN: tl.constexpr, B_BY_COLUMNS: tl.constexpr, IMPRECISE: tl.constexpr, OUT: tl.constexpr,
    EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """This program's tiles from ``first`` to ``last`` of ``count`` blocks: those from number ``order`` on in the order of arrival.

    base: number of the first tile of these blocks. PARTS: each tile is multiplied in so many parts of TILE_N / PARTS columns, which
    count as tiles of their own from ``first`` on.
    """
    WIDTH: tl.constexpr = TILE_N // PARTS
    # What an epilogue loads by place would be staged for several steps ahead in the flattened loop, and not fit into shared memory.
    for number in tl.range(first, last, tl.num_programs(0), flatten=not PLACED):
        tile_row, tile_column = tile_position(number // PARTS - base, count * tiles_m, tiles_n, GROUP)
        place = order + tile_row // tiles_m
        block = (index + size - place // blocks) % size * blocks + place % blocks
        row = tile_row % tiles_m * TILE_M
        column = tile_column * TILE_N + number % PARTS * WIDTH
        a_block = place if OWN else block
        product = tma_product(a_desc, b_desc, a_block, row, column, depth, TILE_M, WIDTH, TILE_K, B_BY_COLUMNS, IMPRECISE)
        product *= scale
        if EPILOGUE is not None:
            inner, columns = (row + tl.arange(0, TILE_M))[:, None], (column + tl.arange(0, WIDTH))[None, :]
            inside = (inner < out_desc.shape[1]) & (columns < out_desc.shape[2])
            rows = block * out_desc.shape[1] + inner
            product = apply_epilogue(product, rows, columns, inside, epilogue_row, epilogue_args, EPILOGUE, PLACED)
        out_desc.store([block, row, column], product.to(OUT).reshape(1, TILE_M, WIDTH))


@triton_dist.jit(do_not_specialize=["index", "size", "blocks", "blocks_per_wait", "epilogue_row"])
def gathered_gemm_kernel(
    shard_desc, gathered_desc, b_desc, out_desc, b_part_desc, out_part_desc, ready, flags, finished, world_ranks, scale_a, scale_b,
    index, size, blocks, blocks_per_wait, tiles_m, tiles_n, depth, epilogue_row, epilogue_args,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr, TAIL_PARTS: tl.constexpr,
    MAX: tl.constexpr, CAPACITY: tl.constexpr, SCALED: tl.constexpr, B_BY_COLUMNS: tl.constexpr, IMPRECISE: tl.constexpr,
    OUT: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """``gathered @ b`` by TMA, on a persistent grid: own rows first, straight from the shard, then groups of blocks as they arrive.

    A wait in a flattened loop, or one for each tile, would take its software pipeline apart, so the loop over tiles stands inside the
    loop over groups. The tiles that don't fill the grid's last turn are multiplied in ``TAIL_PARTS`` parts, by more programs.
    """
    announce(ready, world_ranks, index, size, blocks)
    scale = tl.load(scale_a) * tl.load(scale_b) if SCALED else 1.0
    tiles_per_block = tiles_m * tiles_n
    total = size * blocks * tiles_per_block
    whole = total
    if TAIL_PARTS > 1:
        whole = total // tl.num_programs(0) * tl.num_programs(0)
    multiply_blocks(
        shard_desc, b_desc, out_desc, scale, tl.program_id(0), tl.minimum(blocks * tiles_per_block, whole), 0, 0, blocks,
        index, size, blocks, tiles_m, tiles_n, depth, epilogue_row, epilogue_args,
        TILE_M, TILE_N, TILE_K, 1, GROUP, True, B_BY_COLUMNS, IMPRECISE, OUT, EPILOGUE, PLACED,
    )  # fmt: skip
    last_order = blocks
    last_count = blocks
    for order in range(blocks, size * blocks, blocks_per_wait):
        count = tl.minimum(blocks_per_wait, size * blocks - order)
        for place in range(order, order + count):
            dl.wait(flags + (index + size - place // blocks) % size * MAX + place % blocks, 1, "sys", "acquire", waitValue=1)
        base = order * tiles_per_block
        multiply_blocks(
            gathered_desc, b_desc, out_desc, scale, first_tile_from(base), tl.minimum(base + count * tiles_per_block, whole),
            base, order, count, index, size, blocks, tiles_m, tiles_n, depth, epilogue_row, epilogue_args,
            TILE_M, TILE_N, TILE_K, 1, GROUP, False, B_BY_COLUMNS, IMPRECISE, OUT, EPILOGUE, PLACED,
        )  # fmt: skip
        last_order = order
        last_count = count
    if TAIL_PARTS > 1:
        multiply_blocks(
            gathered_desc, b_part_desc, out_part_desc, scale, whole * TAIL_PARTS + tl.program_id(0), total * TAIL_PARTS,
            last_order * tiles_per_block, last_order, last_count, index, size, blocks, tiles_m, tiles_n, depth,
            epilogue_row, epilogue_args,
            TILE_M, TILE_N, TILE_K, TAIL_PARTS, GROUP, False, B_BY_COLUMNS, IMPRECISE, OUT, EPILOGUE, PLACED,
        )  # fmt: skip
    leave(flags, finished, index, size, blocks, MAX, CAPACITY, True)


@triton_dist.jit(do_not_specialize=["index", "epilogue_row"])
def any_gemm_kernel(
    shard, gathered, ready, flags, finished, world_ranks, b, out, scale_a, scale_b, index, size, rows, columns_out, depth,
    stride_bk, stride_bn, stride_om, blocks, epilogue_row, epilogue_args,
    ROWS_PER_SIGNAL: tl.constexpr, MAX: tl.constexpr, CAPACITY: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
    TILE_K: tl.constexpr, PRECISION: tl.constexpr, SCALED: tl.constexpr, WAITED: tl.constexpr,
    EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """The same for every size, stride and dtype, by plain loads, waiting once for each tile."""
    announce(ready, world_ranks, index, size, blocks)
    scale = tl.load(scale_a) * tl.load(scale_b) if SCALED else 1.0
    tiles_m = tl.cdiv(rows, TILE_M)
    tiles_n = tl.cdiv(columns_out, TILE_N)
    tiles_per_shard = tiles_m * tiles_n
    for tile in range(tl.program_id(0), tiles_per_shard * size, tl.num_programs(0)):
        source_index = (index + size - tile // tiles_per_shard) % size
        first_row = tile % tiles_per_shard // tiles_n * TILE_M
        first_column = tile % tiles_n * TILE_N
        source = shard
        if source_index != index:
            token = 0
            last_row = tl.minimum(first_row + TILE_M, rows) - 1
            for block in range(first_row // ROWS_PER_SIGNAL, last_row // ROWS_PER_SIGNAL + 1):
                token = dl.wait(flags + source_index * MAX + block, 1, "sys", "acquire", waitValue=1)
            source = dl.consume_token(gathered, token) + source_index.to(tl.int64) * rows * depth

        row = first_row + tl.arange(0, TILE_M)
        column = first_column + tl.arange(0, TILE_N)
        k = tl.arange(0, TILE_K)
        a_pointers = source + row[:, None].to(tl.int64) * depth + k[None, :]
        b_pointers = b + k[:, None].to(tl.int64) * stride_bk + column[None, :].to(tl.int64) * stride_bn
        accumulator = tl.zeros((TILE_M, TILE_N), tl.float32)
        for step in range(0, tl.cdiv(depth, TILE_K)):
            inside = k < depth - step * TILE_K
            a_tile = tl.load(a_pointers, mask=(row[:, None] < rows) & inside[None, :], other=0.0)
            b_tile = tl.load(b_pointers, mask=inside[:, None] & (column[None, :] < columns_out), other=0.0)
            accumulator = tl.dot(a_tile, b_tile, accumulator, input_precision=PRECISION)
            a_pointers += TILE_K
            b_pointers += TILE_K * tl.cast(stride_bk, tl.int64)  # a stride of 1 is a constant and has no .to
        inside = (row[:, None] < rows) & (column[None, :] < columns_out)
        out_row = source_index.to(tl.int64) * rows + row[:, None]
        result = apply_epilogue(accumulator * scale, out_row, column[None, :], inside, epilogue_row, epilogue_args, EPILOGUE, PLACED)
        tl.store(out + out_row * stride_om + column[None, :], result.to(out.dtype.element_ty), mask=inside)
    leave(flags, finished, index, size, blocks, MAX, CAPACITY, WAITED)
