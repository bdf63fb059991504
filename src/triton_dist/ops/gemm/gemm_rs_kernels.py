"""Kernels of the products whose partial results are added up over the ranks: what pushes them to the ranks that need them, what adds.

Partial results are staged in the output's dtype and added up in fp32 from the team's first rank to its last, then rounded once: the same
bits on every rank and in every run. Who writes, resets and waits for which signal is told in ``gemm_rs`` and, for the kernels that
meet, in ``collectives.staging``.
"""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ..collectives.reduction import staging_at
from ..collectives.staging import begin_call, end_call, meet
from .ag_gemm_kernels import announce
from .epilogues import apply_epilogue
from .tiles import first_tile_from, tile_position, tma_product


@triton.jit
def add_slots(slots, offset, mask, step, SIZE: tl.constexpr):
    """The elements at ``offset`` of ``SIZE`` slots, ``step`` elements apart, added up in fp32 from the first to the last."""
    total = tl.load(slots + offset, mask=mask, other=0.0).to(tl.float32)
    for source in tl.static_range(1, SIZE):
        total += tl.load(slots + tl.cast(step, tl.int64) * source + offset, mask=mask, other=0.0).to(tl.float32)
    return total


@triton.jit
def elements_of(tile, rows, columns, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Rows, columns and offsets of tile number ``tile`` of a contiguous (rows, columns), and which of its elements are inside."""
    tiles_n = tl.cdiv(columns, TILE_N)
    row = (tile // tiles_n * TILE_M + tl.arange(0, TILE_M))[:, None]
    column = (tile % tiles_n * TILE_N + tl.arange(0, TILE_N))[None, :]
    return row, column, row.to(tl.int64) * columns + column, (row < rows) & (column < columns)


@triton.jit
def add_own_and_slots(own, slots, index, offset, mask, slot_offset, step, SIZE: tl.constexpr):
    """As ``add_slots``, at ``slot_offset``; but what this rank has brought itself, number ``index``, lies at ``own + offset``."""
    total = 0.0
    for source in tl.static_range(SIZE):
        pointers = slots + tl.cast(step, tl.int64) * source + slot_offset
        if source == index:
            pointers = own + offset
        value = tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
        total = value if source == 0 else total + value
    return total


@triton.jit
def result_of(
    total, bias, row, column, mask, columns, epilogue_row, epilogue_args,
    OUT: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """A tile of a sum with bias and epilogue, rounded."""
    if BIASED:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    return apply_epilogue(total, row, column, mask, epilogue_row, epilogue_args, EPILOGUE, PLACED).to(OUT)


@triton_dist.jit(do_not_specialize=["index", "expected", "epilogue_row"])
def add_arrived_kernel(
    staging, out, bias, flags, finished, index, expected, rows, columns, step, epilogue_row, epilogue_args,
    SIZE: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
    CAPACITY: tl.constexpr,
):  # fmt: skip
    """``out = sum of the slots + bias``, (rows, columns), once every peer has signalled ``expected`` times that its slot is filled.

    staging: SIZE slots, ``step`` elements apart; slot ``s`` holds what rank ``s`` of the team has computed for this rank. The last
    program resets the signals. CAPACITY: SIZE, up to a power of 2.
    """
    for distance in range(1, SIZE):
        dl.wait(flags + (index + distance) % SIZE, 1, "sys", "acquire", waitValue=expected, cmp="ge")
    for tile in range(tl.program_id(0), tl.cdiv(rows, TILE_M) * tl.cdiv(columns, TILE_N), tl.num_programs(0)):
        row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
        total = add_slots(staging, offset, mask, step, SIZE)
        result = result_of(
            total, bias, row, column, mask, columns, epilogue_row, epilogue_args, out.dtype.element_ty, BIASED, EPILOGUE, PLACED
        )
        tl.store(out + offset, result, mask=mask)
    # The counter orders the waits of all programs before the reset.
    if tl.atomic_add(finished, 1, sem="acq_rel", scope="gpu") == tl.num_programs(0) - 1:
        word = tl.arange(0, CAPACITY)
        tl.store(flags + word, tl.zeros((CAPACITY,), tl.int32), mask=word < SIZE)
        tl.store(finished, 0)


@triton_dist.jit(do_not_specialize=["index", "epilogue_row"])
def push_and_add_kernel(
    partial, out, bias, staging, peer_staging, arrived, peer_arrived, epochs, index, rows, columns, step, capacity,
    epilogue_row, epilogue_args,
    SIZE: tl.constexpr, WORDS: tl.constexpr, SCATTER: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """``out = sum over the ranks of partial + bias``: of this rank's ``rows`` if ``SCATTER``, else of all ``rows``.

    partial: (SIZE * rows, columns) if ``SCATTER``, else (rows, columns), and may be ``out`` then. Each rank stores what the others need
    straight into their staging memory; program ``p`` moves tiles ``p``, ``p + programs``, ... of every part, so it meets programs ``p`` of
    the peers only. step: elements from one source's slot to the next; capacity: from one call's slots to the next call's.
    """
    now = begin_call(epochs)
    begin = now % 2 * capacity
    tiles = tl.cdiv(rows, TILE_M) * tl.cdiv(columns, TILE_N)
    part = tl.cast(rows, tl.int64) * columns if SCATTER else 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
        # All that is loaded before all that is stored: else each load waits for the stores before it.
        values = ()
        for distance in tl.static_range(1, SIZE if SCATTER else 2):
            values = values + (tl.load(partial + part * ((index + distance) % SIZE) + offset, mask=mask),)  # type: ignore[assignment]
        for distance in tl.static_range(1, SIZE):
            target = staging_at(peer_staging, (index + distance) % SIZE, staging.dtype.element_ty)
            slot = target + begin + tl.cast(step, tl.int64) * index
            tl.store(slot + offset, values[distance - 1 if SCATTER else 0], mask=mask)
    slots = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS)) + begin
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
        total = add_own_and_slots(partial + part * index, slots, index, offset, mask, offset, step, SIZE)
        result = result_of(
            total, bias, row, column, mask, columns, epilogue_row, epilogue_args, out.dtype.element_ty, BIASED, EPILOGUE, PLACED
        )
        tl.store(out + offset, result, mask=mask)
    end_call(epochs, now)


@triton_dist.jit(do_not_specialize=["index", "epilogue_row"])
def two_shot_sum_kernel(
    partial, out, bias, staging, peer_staging, arrived, peer_arrived, epochs, index, rows, columns, part, capacity,
    epilogue_row, epilogue_args,
    SIZE: tl.constexpr, WORDS: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """``out = sum over the ranks of partial + bias``, (rows, columns); each rank adds up ``part`` tiles and stores them to all others.

    partial: may be ``out``. Program ``p`` moves tiles ``p``, ``p + programs``, ... of every part. staging: ``capacity`` elements, in whole
    tiles one behind the other, for what the ranks bring, and as many for results: one slot each, as in ``all_reduce``'s two-shot form: a
    rank that has met its peers the second time knows that they have read what it brought, and they store results only once they have met it
    the first time in the call, behind its reading those of the call before.
    """
    before = begin_call(epochs) - 1
    TILE: tl.constexpr = TILE_M * TILE_N
    inner = (tl.arange(0, TILE_M)[:, None] * TILE_N + tl.arange(0, TILE_N)[None, :]).to(tl.int64)
    for place in range(tl.program_id(0), part, tl.num_programs(0)):
        # All that is loaded before all that is stored, here and below: else each load waits for the stores before it.
        values = ()
        for distance in tl.static_range(1, SIZE):
            tile = (index + distance) % SIZE * part + place
            row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
            values = values + (tl.load(partial + offset, mask=mask),)  # type: ignore[assignment]
        for distance in tl.static_range(1, SIZE):
            owner = (index + distance) % SIZE
            row, column, offset, mask = elements_of(owner * part + place, rows, columns, TILE_M, TILE_N)
            slot = staging_at(peer_staging, owner, staging.dtype.element_ty) + tl.cast(index * part + place, tl.int64) * TILE
            tl.store(slot + inner, values[distance - 1], mask=mask)
    brought = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, before + 1, WORDS))
    for place in range(tl.program_id(0), part, tl.num_programs(0)):
        tile = index * part + place
        row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
        slot_offset = inner + tl.cast(place, tl.int64) * TILE
        total = add_own_and_slots(partial, brought, index, offset, mask, slot_offset, tl.cast(part, tl.int64) * TILE, SIZE)
        result = result_of(
            total, bias, row, column, mask, columns, epilogue_row, epilogue_args, out.dtype.element_ty, BIASED, EPILOGUE, PLACED
        )
        for distance in tl.static_range(1, SIZE):
            target = staging_at(peer_staging, (index + distance) % SIZE, staging.dtype.element_ty) + capacity
            tl.store(target + tl.cast(tile, tl.int64) * TILE + inner, result, mask=mask)
        tl.store(out + offset, result, mask=mask)
    results = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, before + 2, WORDS)) + capacity
    for place in range(tl.program_id(0), part, tl.num_programs(0)):
        values = ()
        for distance in tl.static_range(1, SIZE):
            tile = (index + distance) % SIZE * part + place
            row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
            values = values + (tl.load(results + tl.cast(tile, tl.int64) * TILE + inner, mask=mask),)  # type: ignore[assignment]
        for distance in tl.static_range(1, SIZE):
            tile = (index + distance) % SIZE * part + place
            row, column, offset, mask = elements_of(tile, rows, columns, TILE_M, TILE_N)
            tl.store(out + offset, values[distance - 1], mask=mask)
    end_call(epochs, before + 2)


@triton_dist.jit(do_not_specialize=["index", "epilogue_row"])
def small_product_kernel(
    a, b, out, bias, scale_a, scale_b, staging, peer_staging, arrived, peer_arrived, epochs,
    index, rows, columns, depth, stride_am, stride_ak, stride_bk, stride_bn, step, capacity, epilogue_row, epilogue_args,
    SIZE: tl.constexpr, WORDS: tl.constexpr, SCATTER: tl.constexpr, BIASED: tl.constexpr, EPILOGUE: tl.constexpr, PLACED: tl.constexpr,
    SCALED: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """``out = sum over the ranks of a @ b + bias`` in one kernel, for few rows: each program multiplies all rows by some columns of B.

    a: (SIZE * rows, depth) if ``SCATTER``, and ``out`` is this rank's (rows, columns); else both have ``rows``. TILE_M: at least the rows
    of ``a``. A tile goes from the registers straight into the staging memory of the ranks that need it; then as ``push_and_add_kernel``.
    EVEN: ``TILE_K`` divides ``depth``.
    """
    now = begin_call(epochs)
    begin = now % 2 * capacity + tl.cast(step, tl.int64) * index
    scale = tl.load(scale_a) * tl.load(scale_b) if SCALED else 1.0
    tiles = tl.cdiv(columns, TILE_N)
    row = tl.arange(0, TILE_M)
    k = tl.arange(0, TILE_K)
    total_rows = rows * SIZE if SCATTER else rows
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        column = tile * TILE_N + tl.arange(0, TILE_N)
        a_pointers = a + row[:, None].to(tl.int64) * stride_am + k[None, :].to(tl.int64) * stride_ak
        b_pointers = b + k[:, None].to(tl.int64) * stride_bk + column[None, :].to(tl.int64) * stride_bn
        accumulator = tl.zeros((TILE_M, TILE_N), tl.float32)
        for first in range(0, depth, TILE_K):
            if EVEN:
                a_tile = tl.load(a_pointers, mask=row[:, None] < total_rows, other=0.0)
                b_tile = tl.load(b_pointers, mask=column[None, :] < columns, other=0.0)
            else:
                inside = k < depth - first
                a_tile = tl.load(a_pointers, mask=(row[:, None] < total_rows) & inside[None, :], other=0.0)
                b_tile = tl.load(b_pointers, mask=inside[:, None] & (column[None, :] < columns), other=0.0)
            accumulator = tl.dot(a_tile, b_tile, accumulator, input_precision=PRECISION)
            a_pointers += TILE_K * tl.cast(stride_ak, tl.int64)
            b_pointers += TILE_K * tl.cast(stride_bk, tl.int64)
        product = (accumulator * scale).to(staging.dtype.element_ty)
        mask = (row[:, None] < total_rows) & (column[None, :] < columns)
        if SCATTER:
            # Row r belongs to rank r // rows.
            addresses = tl.load(peer_staging + row // rows, mask=row < total_rows, other=0)
            owners = tl.multiple_of(addresses.to(tl.pointer_type(staging.dtype.element_ty)), 16)
            offset = begin + (row % rows).to(tl.int64)[:, None] * columns + column[None, :]
            tl.store(owners[:, None] + offset, product, mask=mask)
        else:
            offset = begin + row[:, None].to(tl.int64) * columns + column[None, :]
            for distance in tl.static_range(SIZE):
                target = staging_at(peer_staging, (index + 1 + distance) % SIZE, staging.dtype.element_ty)
                tl.store(target + offset, product, mask=mask)
    slots = dl.consume_token(staging, meet(arrived, peer_arrived, index, SIZE, now, WORDS)) + now % 2 * capacity
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        column = tile * TILE_N + tl.arange(0, TILE_N)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        offset = row[:, None].to(tl.int64) * columns + column[None, :]
        total = add_slots(slots, offset, mask, step, SIZE)
        result = result_of(
            total, bias, row[:, None], column[None, :], mask, columns, epilogue_row, epilogue_args,
            out.dtype.element_ty, BIASED, EPILOGUE, PLACED,
        )  # fmt: skip
        tl.store(out + offset, result, mask=mask)
    end_call(epochs, now)


@triton.jit
def multiply_for_owner(
    a_desc, b_desc, slots_desc, scale, first, last, base, owner, place, tiles_m, tiles_n, depth,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr,
    B_BY_COLUMNS: tl.constexpr, IMPRECISE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """This program's tiles from ``first`` to ``last`` of the rows of one owner, stored into its memory.

    base: number of the first of the owner's tiles. place: the owner's place in ``slots_desc``. PARTS: each tile is multiplied in so many
    parts of TILE_N / PARTS columns, which count as tiles of their own.
    """
    WIDTH: tl.constexpr = TILE_N // PARTS
    for number in tl.range(first, last, tl.num_programs(0), flatten=True):
        tile_row, tile_column = tile_position(number // PARTS - base, tiles_m, tiles_n, GROUP)
        row = tile_row * TILE_M
        column = tile_column * TILE_N + number % PARTS * WIDTH
        product = tma_product(a_desc, b_desc, owner, row, column, depth, TILE_M, WIDTH, TILE_K, B_BY_COLUMNS, IMPRECISE)
        slots_desc.store([place, row, column], (product * scale).to(OUT).reshape(1, TILE_M, WIDTH))


@triton_dist.jit(do_not_specialize=["index", "size"])
def scattering_gemm_kernel(
    a_desc, b_desc, slots_desc, b_part_desc, slots_part_desc, ready, flags, world_ranks, scale_a, scale_b,
    index, size, first_rank, tiles_m, tiles_n, depth,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr, TAIL_PARTS: tl.constexpr,
    SCALED: tl.constexpr, B_BY_COLUMNS: tl.constexpr, IMPRECISE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """``a @ b`` by TMA, on a persistent grid; tiles go straight into the slots of the ranks that own their rows, this rank's own last.

    slots_desc: (ranks, rows, columns) over the slots of this rank in the memory of all ranks from ``first_rank`` on, which lie one slot of
    the address map apart. One loop over tiles for each owner, since a wait or a signal in a flattened loop would take its software
    pipeline apart. A program tells an owner by how many tiles it has brought, behind the last of them. The tiles that don't fill the
    grid's last turn, of this rank's own rows, are multiplied in ``TAIL_PARTS`` parts, by more programs.
    """
    tiles = tiles_m * tiles_n
    announce(ready, world_ranks, index, size, tiles)
    scale = tl.load(scale_a) * tl.load(scale_b) if SCALED else 1.0
    total = size * tiles
    whole = total
    if TAIL_PARTS > 1:
        whole = total // tl.num_programs(0) * tl.num_programs(0)
    for distance in range(1, size):
        owner = (index + distance) % size
        peer = tl.load(world_ranks + owner)
        base = (distance - 1) * tiles
        first = first_tile_from(base)
        mine = tl.cdiv(tl.maximum(base + tiles - first, 0), tl.num_programs(0))
        if mine > 0:
            dl.wait(ready + owner, 1, "sys", "acquire", waitValue=1, cmp="ge")
            # One for each tile is taken: the word is 0 again before the owner can have all tiles, and so before it sets the word anew.
            # Relaxed: the wait has acquired, and the signal below releases.
            tl.atomic_add(ready + owner, -mine, sem="relaxed", scope="sys")
        multiply_for_owner(
            a_desc, b_desc, slots_desc, scale, first, base + tiles, base, owner, peer - first_rank, tiles_m, tiles_n, depth,
            TILE_M, TILE_N, TILE_K, 1, GROUP, B_BY_COLUMNS, IMPRECISE, OUT,
        )  # fmt: skip
        if mine > 0:
            dl.notify(flags + index, peer, signal=mine, sig_op="add", comm_scope="intra_node")
    base = (size - 1) * tiles
    place = tl.load(world_ranks + index) - first_rank
    multiply_for_owner(
        a_desc, b_desc, slots_desc, scale, first_tile_from(base), whole, base, index, place, tiles_m, tiles_n, depth,
        TILE_M, TILE_N, TILE_K, 1, GROUP, B_BY_COLUMNS, IMPRECISE, OUT,
    )  # fmt: skip
    if TAIL_PARTS > 1:
        multiply_for_owner(
            a_desc, b_part_desc, slots_part_desc, scale, whole * TAIL_PARTS + tl.program_id(0), total * TAIL_PARTS, base, index, place,
            tiles_m, tiles_n, depth, TILE_M, TILE_N, TILE_K, TAIL_PARTS, GROUP, B_BY_COLUMNS, IMPRECISE, OUT,
        )  # fmt: skip
