"""What things cost on the simulated clock: rates and latencies of a GPU, and how long a matrix product of a library takes.

Every number has a name here. ``benchmarks/calibrate.py`` measures those of an H100 and writes its entry; the entries of the other GPUs
are made from data sheets. The clock of a run that computes (``simulate(execute="data")``) uses the rates of one SM; the clock of a run
for its time (``execute="timing"``) uses the shared ones, too: memory, links and caches that programs compete for.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..errors import InvalidArgumentError

FP64, FP32, TF32, HALF, BYTE = "fp64", "fp32", "tf32", "fp16", "fp8"
"""Kinds of matrix product: HALF is fp16 and bf16, BYTE fp8 and int8, FP32 a product that the matrix units can't do."""

_KIND_OF_SIZE = {8: FP64, 4: TF32, 2: HALF, 1: BYTE}


@dataclass(frozen=True)
class Costs:
    """Rates and latencies of one GPU model. Bandwidths are in bytes per nanosecond (GB/s), latencies in nanoseconds.

    matrix_flop_per_ns: floating-point operations of one SM's matrix unit by kind, as a long run of the whole GPU sustains them.
    lane_op_per_ns: elementwise operations of one SM.
    hbm: memory of the whole GPU. l2_per_sm: what one SM reads from the L2 cache at most. l2_bytes: size of that cache.
    link: all links of a GPU together, each direction. link_per_sm: what one SM moves over them at most.
    copy_engine: one copy between two GPUs. collective: bandwidth of the library's collectives over the links.
    local_ns, remote_ns: a scalar access that the program waits for, in its own memory or a peer's.
    tile_load_ns: from a program's first load of tiles to its first product. tile_store_ns: a tile store beyond its bytes.
    notify_ns: how long a program is busy with a signal to a peer. signal_ns: from then until a peer that waits has seen it.
    wait_ns: a wait that holds; what any wait takes before it looks for the first time.
    launch_ns: from the end of a stream's work to a kernel's first instruction. clock_read_ns: a read of the clock.
    copy_start_ns, stream_write_ns, stream_wait_ns, event_ns, torch_ns: start of a copy, signal written or awaited by a stream, wait for
    another stream's event, torch operator.
    collective_ns: start of a library's collective; collective_ramp_ns: what a large one (``COLLECTIVE_RAMP`` bytes or more) loses
    until all its links are busy, a smaller one in proportion.
    """

    matrix_flop_per_ns: Mapping[str, float]
    lane_op_per_ns: float
    hbm: float
    l2_per_sm: float
    l2_bytes: int
    link: float
    link_per_sm: float
    copy_engine: float
    collective: float
    local_ns: float = 300.0
    remote_ns: float = 1200.0
    tile_load_ns: float = 1000.0
    tile_store_ns: float = 1000.0
    notify_ns: float = 1100.0
    signal_ns: float = 2400.0
    wait_ns: float = 600.0
    launch_ns: float = 3000.0
    clock_read_ns: float = 1000.0
    copy_start_ns: float = 2000.0
    stream_write_ns: float = 1000.0
    stream_wait_ns: float = 1000.0
    event_ns: float = 1000.0
    torch_ns: float = 2000.0
    collective_ns: float = 13000.0
    collective_ramp_ns: float = 32000.0

    def __post_init__(self) -> None:
        """Raises InvalidArgumentError for a rate that is not positive, a negative latency or a missing kind of product."""
        for name, value in vars(self).items():
            if name == "matrix_flop_per_ns":
                missing = {FP64, FP32, TF32, HALF, BYTE} - set(value)
                if missing or any(rate <= 0 for rate in value.values()):
                    raise InvalidArgumentError(f"matrix_flop_per_ns={dict(value)}; it needs a positive rate for each of {sorted(missing)}")
                object.__setattr__(self, name, MappingProxyType(dict(value)))
            elif value < 0 or (value == 0 and not name.endswith("_ns")):
                raise InvalidArgumentError(f"{name}={value}; rates and sizes have to be positive, latencies not negative")

    def __hash__(self) -> int:
        return hash((self.hbm, self.link, self.copy_engine))

    def matrix_kind(self, itemsize: int, ieee: bool = False) -> str:
        """The kind of a product of operands of ``itemsize`` bytes. ieee: fp32 is not rounded to tf32."""
        return FP32 if ieee and itemsize == 4 else _KIND_OF_SIZE[itemsize]


# Sources. Measured: 4 H100 SXM, see docs/simulator.md. The rest: NVIDIA's data sheets and white papers.
H100 = Costs(
    matrix_flop_per_ns={"fp64": 450.0, "fp32": 450.0, "tf32": 2935.7, "fp16": 5546.4, "fp8": 11972.9},
    lane_op_per_ns=220.0,
    hbm=2922.3,
    l2_per_sm=123.0,
    l2_bytes=52428800,
    link=370.3,
    link_per_sm=42.6,
    copy_engine=370.3,
    collective=234.2,
    local_ns=143.3,
    remote_ns=813.6,
    tile_load_ns=544.6,
    tile_store_ns=544.6,
    notify_ns=2503.7,
    signal_ns=2749.2,
    wait_ns=494.5,
    launch_ns=1063.4,
    clock_read_ns=1000.0,
    copy_start_ns=4957.2,
    stream_write_ns=2623.4,
    stream_wait_ns=1000.0,
    event_ns=124.5,
    torch_ns=1428.8,
    collective_ns=23907.2,
    collective_ramp_ns=25893.3,
)

A100 = replace(
    H100,
    matrix_flop_per_ns={"fp64": 160.0, "fp32": 160.0, "tf32": 1300.0, "fp16": 2600.0, "fp8": 5200.0},
    lane_op_per_ns=90.0,
    hbm=1800.0,
    l2_per_sm=66.0,
    l2_bytes=40 << 20,
    link=266.0,
    link_per_sm=30.0,
    copy_engine=248.0,
    collective=220.0,
)
H200 = replace(H100, hbm=4300.0)
B200 = replace(
    H100,
    matrix_flop_per_ns={"fp64": 250.0, "fp32": 500.0, "tf32": 6600.0, "fp16": 13000.0, "fp8": 26000.0},
    lane_op_per_ns=240.0,
    hbm=7000.0,
    l2_per_sm=130.0,
    l2_bytes=126 << 20,
    link=800.0,
    link_per_sm=80.0,
    copy_engine=744.0,
    collective=600.0,
)


class Rates:
    """The costs of one SM in the form in which the inner loops of a run use them: nanoseconds per unit.

    local_ns_per_byte: one SM's share of the memory while all of them use it. The other fields are those of Costs.
    """

    __slots__ = (
        "local_ns_per_byte",
        "remote_ns_per_byte",
        "l2_ns_per_byte",
        "lane_ns",
        "flop_ns",
        "fp32_flop_ns",
        "local_ns",
        "remote_ns",
        "notify_ns",
        "signal_ns",
        "wait_ns",
        "clock_read_ns",
    )

    def __init__(self, costs: Costs, sm_count: int) -> None:
        self.local_ns_per_byte = max(sm_count / costs.hbm, 1 / costs.l2_per_sm)
        self.remote_ns_per_byte = 1 / costs.link_per_sm
        self.l2_ns_per_byte = 1 / costs.l2_per_sm
        self.lane_ns = 1 / costs.lane_op_per_ns
        self.flop_ns = {size: 1 / costs.matrix_flop_per_ns[kind] for size, kind in _KIND_OF_SIZE.items()}
        self.fp32_flop_ns = 1 / costs.matrix_flop_per_ns[FP32]
        self.local_ns, self.remote_ns = costs.local_ns, costs.remote_ns
        self.notify_ns, self.signal_ns, self.wait_ns = costs.notify_ns, costs.signal_ns, costs.wait_ns
        self.clock_read_ns = costs.clock_read_ns


COLLECTIVE_RAMP = 32 << 20


def collective_ns(costs: Costs, nbytes: float) -> float:
    """Nanoseconds of a library's collective in which a rank sends or receives ``nbytes``, whichever is more."""
    return costs.collective_ns + nbytes / costs.collective + costs.collective_ramp_ns * min(1.0, nbytes / COLLECTIVE_RAMP)


_TILE_RATES = ((64 * 64, 0.5), (64 * 128, 0.7), (128 * 128, 0.85), (128 * 256, 1.0))
"""(elements of a tile, share of the matrix units' rate that it reaches); in between, by the logarithm."""


@functools.cache
def _library_tiles() -> tuple[tuple[int, int, float], ...]:
    """(rows, columns, share of the matrix units' rate) of the tiles that a library has to choose from."""
    sizes = [(rows, columns) for rows in (64, 128, 192, 256) for columns in range(64, 257, 32)]
    return tuple((rows, columns, _tile_rate(rows * columns)) for rows, columns in sizes if rows * columns <= 192 * 256)


def _tile_rate(elements: int) -> float:
    for (small, low), (large, high) in itertools.pairwise(_TILE_RATES):
        if elements <= large:
            return low + (high - low) * math.log2(elements / small) / math.log2(large / small)
    return _TILE_RATES[-1][1]


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Nanoseconds of an operator. alone: from its first instruction to its last on an idle GPU. busy: what it takes of the whole GPU.

    The last wave of a product's tiles leaves SMs idle, which an operator of another stream may use: then busy is less than alone.
    """

    alone: float
    busy: float


AT_ONCE = OperatorTime(0.0, 0.0)


def matmul_time(costs: Costs, sm_count: int, m: int, n: int, k: int, itemsize: int, ieee: bool = False) -> OperatorTime:
    """A library's product of (m, k) and (k, n), without its launch: the best tile's whole waves, or the memory's time.

    A library is taken to find the best tile, of many widths, so that few SMs are idle in the last wave. Where the tiles are fewer than
    the SMs, K is split, as libraries do.
    """
    if not (m and n and k):
        return AT_ONCE
    rate = costs.matrix_flop_per_ns[costs.matrix_kind(itemsize, ieee)]
    per_tile = costs.tile_load_ns + costs.tile_store_ns
    best = busy = float("inf")
    for tile_m, tile_n, share in _library_tiles():
        tiles = -(-m // tile_m) * -(-n // tile_n)
        split = max(1, min(sm_count // tiles, k // 512))
        waves = -(-tiles * split // sm_count)
        wave = 2 * tile_m * tile_n * k / split / (rate * share) + per_tile + (split > 1) * per_tile
        if waves * wave < best:
            best, busy = waves * wave, tiles * split / sm_count * wave
    moved = (m * k + k * n + m * n) * itemsize / costs.hbm
    return OperatorTime(max(best, moved), max(busy, moved))
