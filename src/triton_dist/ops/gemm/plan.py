"""How an all-gather + GEMM is done: which method, and how the product is cut into tiles and the shards into signalled blocks.

A small cost model with the rates of one GPU and its links. It depends on shapes only, so that every rank chooses the same.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import triton

from ...errors import InvalidArgumentError

OWN_METHODS = ("fused", "fused_kernel", "pipelined", "split")
METHODS = (*OWN_METHODS, "nccl", "torch")
PRODUCER_PROGRAMS = 8
"""Programs, and so SMs, of the kernel that pushes the shard in "fused_kernel"."""


@dataclass(frozen=True)
class Tiles:
    """How the fused methods cut a product. The same on every rank.

    m, n, k: an output tile and a step along K, powers of 2 from 16 on. blocks: pieces of a shard that are signalled one by one.
    blocks_per_wait: pieces that the GEMM waits for before it goes on; None is all that come from peers.
    group: rows of tiles that are walked together, for reuse in L2. warps, stages: of the GEMM. programs: of its grid; None is one an SM.
    split_tail: multiply tiles of the grid's last, partly filled turn in parts. tma: use tensor descriptors where operands allow it.
    """

    m: int = 128
    n: int = 256
    k: int = 64
    blocks: int = 1
    blocks_per_wait: int | None = None
    group: int = 8
    warps: int = 8
    stages: int = 3
    programs: int | None = None
    split_tail: bool = True
    tma: bool = True


@dataclass(frozen=True)
class Plan:
    """A method, and the tiles that it uses if it is a fused one."""

    method: str
    tiles: Tiles


@dataclass(frozen=True)
class Rates:
    """What one GPU does, as far as a choice depends on it. Units: microseconds, and flops and bytes a microsecond.

    flops: of a library's products with operands of 2 bytes; half the bytes, twice the rate. tile_flops, tile: of full turns of the fused
    product, and what each tile takes besides. memory: of weights that are read once. library: before a library's product is under way.
    gather, gather_start: of ``all_gather``'s kernel. link, copy_start: of the copy engine, one copy to each peer after the other; the
    start is that of each copy with its signal. start: from the call to the first tile, and to the first copy. turn: between two groups of
    blocks of the fused product. call: between two products of a library on streams that take turns. arrival: from a signal to the
    product that waited for it. pipeline: what the streams spend on each peer's signals before the first of these products.
    """

    sms: int = 132
    flops: float = 761e6
    tile_flops: float = 773e6
    tile: float = 1.5
    memory: float = 2.7e6
    library: float = 4.1
    gather: float = 0.304e6
    gather_start: float = 7.0
    link: float = 0.324e6
    copy_start: float = 6.4
    start: float = 5.2
    turn: float = 2.1
    call: float = 1.1
    arrival: float = 17.7
    pipeline: float = 6.1


H100 = Rates()
"""Fitted to times of the single methods on four H100 (NVLink, 18 links each)."""


def check_tiles(tiles: Tiles, max_blocks: int, itemsize: int) -> None:
    """Raises InvalidArgumentError. itemsize: bytes of an operand's element."""
    if tiles.k * itemsize < 32:
        raise InvalidArgumentError(f"ag_gemm: {tiles}: k has to be at least {32 // itemsize} for operands of {itemsize} bytes")
    if any(size < 16 or size & (size - 1) for size in (tiles.m, tiles.n, tiles.k)):
        raise InvalidArgumentError(f"ag_gemm: {tiles}: m, n and k have to be powers of 2 from 16 on")
    if not 1 <= tiles.blocks <= max_blocks:
        raise InvalidArgumentError(f"ag_gemm: {tiles}: blocks has to be between 1 and {max_blocks}")
    if any(number is not None and number < 1 for number in (tiles.blocks_per_wait, tiles.programs, tiles.group)):
        raise InvalidArgumentError(f"ag_gemm: {tiles}: blocks_per_wait, programs and group have to be at least 1")


@functools.lru_cache(maxsize=4096)
def choose_plan(method: str, size: int, rows: int, columns: int, depth: int, itemsize: int, device_type: str, rates: Rates = H100) -> Plan:
    """The plan for shards of ``rows`` x ``depth`` on ``size`` ranks and ``columns`` of B. On the simulator "auto" is "fused"."""
    shape = (size, rows, columns, depth, itemsize)
    tiles, fused = choose_tiles(*shape, rates)
    if method != "auto":
        return Plan(method, tiles)
    if device_type != "cuda" or itemsize == 4:
        return Plan("fused", tiles)
    times = {"fused": fused, "pipelined": pipelined_time(*shape, rates), "split": split_time(*shape, rates)}
    return Plan(min(times, key=lambda name: times[name]), tiles)


def choose_tiles(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> tuple[Tiles, float]:
    """The best tiles for the fused methods, and the microseconds that they should take (infinite if they are not worth it)."""
    if rows < 128 or columns < 256 or depth < 64 or itemsize == 4:
        m = min(128, max(16, triton.next_power_of_2(rows)))
        n = min(128, max(16, triton.next_power_of_2(max(columns, 1))))
        k = min(128 // itemsize, max(16, 32 // itemsize, triton.next_power_of_2(depth)))
        return Tiles(m, n, k, blocks=min(4, triton.cdiv(rows, m)), blocks_per_wait=1, tma=False), math.inf
    candidates = [Tiles(k=128 // itemsize, blocks_per_wait=blocks) for blocks in (None, 1)]
    times = [fused_time(tiles, size, rows, columns, depth, itemsize, rates) for tiles in candidates]
    best = times.index(min(times))
    return candidates[best], times[best]


def fused_time(tiles: Tiles, size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of the fused method, one block a shard: each program takes its tiles in turn, those of a group once it has arrived."""
    tile_time = rates.tile + 2 * tiles.m * tiles.n * depth / (rates.tile_flops * 2 / itemsize / rates.sms)
    tiles_per_shard = triton.cdiv(rows, tiles.m) * triton.cdiv(columns, tiles.n)
    total = size * tiles_per_shard
    arrivals = [0.0, *_arrivals(size, rows, depth, itemsize, rates)]
    per_wait = tiles.blocks_per_wait or max(1, size - 1)
    # The group that a shard belongs to, and the arrival of the last shard of that group.
    groups = [0, *[1 + (place - 1) // per_wait for place in range(1, size)]]
    ready = [max(arrival for arrival, other in zip(arrivals, groups, strict=True) if other == group) for group in groups]
    finished = rates.start
    for turn in range(triton.cdiv(total, rates.sms)):
        last = min((turn + 1) * rates.sms, total) - 1
        left = last + 1 - turn * rates.sms
        share = 1.0 if left == rates.sms else tail_share(left, rates.sms, tiles.n)
        finished = max(finished, ready[last // tiles_per_shard]) + share * tile_time
    passes = groups[-1] + 1
    # Weights that are read again for each group don't overlap as well.
    weights = passes * columns * depth * itemsize / rates.memory * (1.0 if passes == 1 else 1.25)
    return max(finished, rates.start + weights) + passes * rates.turn


def tail_parts(left: int, programs: int, width: int) -> int:
    """In how many parts to multiply the ``left`` tiles of the last turn of a grid of ``programs``, so that more of them have work."""
    return next((parts for parts in (4, 2) if left * parts <= programs and width // parts >= 64), 1)


def tail_share(left: int, programs: int, width: int) -> float:
    """Time of the last turn next to a full one; narrow parts are less efficient."""
    parts = tail_parts(left, programs, width)
    return 1.0 if parts == 1 else 1.2 / parts


def pipelined_time(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of copies with a product by cuBLAS for each shard that has arrived."""
    product = library_time(rows, columns, depth, itemsize, rates)
    finished = rates.start + rates.pipeline * (size - 1) + product
    for arrival in _arrivals(size, rows, depth, itemsize, rates):
        finished = (finished + rates.call if finished >= arrival else arrival + rates.arrival) + product
    return finished


def split_time(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of an all-gather by one kernel followed by cuBLAS."""
    gather = rates.gather_start + (size - 1) * rows * depth * itemsize / rates.gather
    return gather + library_time(size * rows, columns, depth, itemsize, rates)


def library_time(rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of a product by cuBLAS."""
    flops = 2 * rows * columns * depth / (rates.flops * 2 / itemsize)
    return rates.library + max(flops, (columns * depth + rows * depth) * itemsize / rates.memory)


def _arrivals(size: int, rows: int, depth: int, itemsize: int, rates: Rates) -> list[float]:
    """When the copy engines have brought the first, second, ... shard of the peers."""
    copy = rates.copy_start + rows * depth * itemsize / rates.link
    return [rates.start + place * copy for place in range(1, size)]
