"""All-gather + GEMM in one kernel, and what each of its blocks did and when: one trace of all ranks, with an arrow from each signal to the
wait that it ended.

Run it on simulated ranks with ``python examples/04_profiler.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 4 examples/04_profiler.py``. It writes out/profiler.json, or the
file that is named as its argument, which ui.perfetto.dev opens.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops import barrier
from triton_dist.tools.profiler import Profile, Profiler, ProfilerBuffer, reset_profiler_buffer

SEND, WAIT, PRODUCT = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
TASKS = ["send", "wait", "product"]


@triton_dist.jit
def send_rows(profiler, a, gathered, flags, number, ROWS: tl.constexpr, DEPTH: tl.constexpr, TILE: tl.constexpr, TILE_K: tl.constexpr):
    """Copy one tile of this rank's rows to one rank, its own among them, and tell it."""
    CHUNKS: tl.constexpr = ROWS // TILE
    peer = (dl.rank() + 1 + number // CHUNKS) % dl.num_ranks()
    chunk = number % CHUNKS
    row_tile = dl.rank() * CHUNKS + chunk
    profiler = profiler.record(True, SEND)
    rows = tl.arange(0, TILE)[:, None]
    target = dl.symm_at(gathered, peer)
    for k in range(0, DEPTH, TILE_K):
        columns = k + tl.arange(0, TILE_K)[None, :]
        tile = tl.load(a + (chunk * TILE + rows) * DEPTH + columns)
        tl.store(target + (row_tile * TILE + rows) * DEPTH + columns, tile)
    profiler = profiler.record_notify(SEND, flags + row_tile, peer)
    dl.notify(flags + row_tile, peer, signal=1, sig_op="set", comm_scope="intra_node")
    return profiler.record(False, SEND)


@triton_dist.jit
def multiply(
    profiler, gathered, flags, b, out, row_tile, column_tile,
    DEPTH: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    """One tile of the product, once its rows are there."""
    profiler = profiler.record_wait(WAIT, flags + row_tile)
    token = dl.wait(flags + row_tile, 1, "sys", "acquire", waitValue=1)
    profiler = profiler.record(False, WAIT)
    profiler = profiler.record(True, PRODUCT)
    ready = dl.consume_token(gathered, token)
    rows = row_tile * TILE + tl.arange(0, TILE)[:, None]
    columns = column_tile * TILE + tl.arange(0, TILE)[None, :]
    sums = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, DEPTH, TILE_K):
        depth = k + tl.arange(0, TILE_K)
        sums = tl.dot(tl.load(ready + rows * DEPTH + depth[None, :]), tl.load(b + depth[:, None] * COLUMNS + columns), sums)
    tl.store(out + rows * COLUMNS + columns, sums)
    return profiler.record(False, PRODUCT)


@triton_dist.jit
def ag_gemm_kernel(
    a, gathered, flags, b, out, profile,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr, TILE_K: tl.constexpr,
    SENDERS: tl.constexpr, PROFILE: tl.constexpr,
):  # fmt: skip
    """The first SENDERS programs send this rank's rows, the others multiply.

    a: (ROWS, DEPTH), b: (DEPTH, COLUMNS), out: (world size * ROWS, COLUMNS) fp32. Symmetric: gathered: (world size * ROWS, DEPTH); flags:
    a word for each of its row tiles, 0 before, set once by the rank that sends the rows.
    """
    profiler = Profiler.create(profile, 0, ENABLE_PROFILING=PROFILE)
    program = tl.program_id(0)
    row_tiles = dl.num_ranks() * (ROWS // TILE)
    if program < SENDERS:
        for number in range(program, row_tiles, SENDERS):
            profiler = send_rows(profiler, a, gathered, flags, number, ROWS, DEPTH, TILE, TILE_K)
    else:
        COLUMN_TILES: tl.constexpr = COLUMNS // TILE
        for number in tl.range(program - SENDERS, row_tiles * COLUMN_TILES, tl.num_programs(0) - SENDERS, num_stages=1):
            # In the order in which rows arrive: those of the rank before come first, this rank's own come last.
            sender = (dl.rank() + dl.num_ranks() - 1 - number // COLUMN_TILES // (ROWS // TILE)) % dl.num_ranks()
            row_tile = sender * (ROWS // TILE) + number // COLUMN_TILES % (ROWS // TILE)
            profiler = multiply(profiler, gathered, flags, b, out, row_tile, number % COLUMN_TILES, DEPTH, COLUMNS, TILE, TILE_K)


def run(
    trace: str | Path, rows: int = 64, depth: int = 256, columns: int = 128, tile: int = 32, senders: int = 2, programs: int = 8
) -> tuple[float, Profile]:
    """One rank's host function. Returns the largest error relative to torch in float64, and what all ranks recorded.

    rows of each rank and columns are multiples of tile; programs: of which senders send, no more than the GPU runs at a time.
    """
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    whole = torch.randn(size * rows, depth, generator=torch.Generator().manual_seed(0), dtype=torch.bfloat16).to(device)
    b = torch.randn(depth, columns, generator=torch.Generator().manual_seed(1 + rank), dtype=torch.bfloat16).to(device)
    a = whole[rank * rows : (rank + 1) * rows].contiguous()
    gathered = triton_dist.symm_zeros((size * rows, depth), torch.bfloat16)
    out = torch.zeros(size * rows, columns, device=device)
    flags = triton_dist.symm_zeros((2, size * rows // tile), torch.int32)
    with ProfilerBuffer(100_000, trace, TASKS, communication=["send"], compute=["product"]) as profiler:
        for call in range(2):  # the first call compiles and warms up; what it recorded is thrown away
            reset_profiler_buffer(profiler.profiler_buffer)
            barrier()  # nobody reads the rows of the call before any more, and all ranks begin together
            ag_gemm_kernel[(programs,)](
                a, gathered, flags[call], b, out, profiler.profiler_buffer, rows, depth, columns, tile, min(depth, 64), senders, True
            )  # fmt: skip
    reference = whole.double() @ b.double()
    assert profiler.profile is not None
    return ((out.double() - reference).abs().max() / reference.abs().max()).item(), profiler.profile


def read_back(trace: Path, ranks: int) -> None:
    """What the trace has: all tasks of all ranks, and an arrow into every wait."""
    events = json.loads(trace.read_text())["traceEvents"]
    tasks = {name: [event for event in events if event["ph"] == "X" and event["name"] == name] for name in TASKS}
    arrows = [event for event in events if event["ph"] == "f"]
    print(f"{trace}: " + ", ".join(f"{len(found)} x {name}" for name, found in tasks.items()) + f", {len(arrows)} arrows")
    assert {event["pid"] for event in events} == set(range(ranks)) and len(arrows) == len(tasks["wait"]) > 0


def main() -> None:
    trace = Path(sys.argv[1] if len(sys.argv) > 1 else "out/profiler.json")
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        rank, ranks = triton_dist.rank(), triton_dist.world_size()
        errors = {rank: run(trace)[0]}
        triton_dist.finalize()
        if rank == 0:
            read_back(trace, ranks)
    else:
        errors = {rank: error for rank, (error, _) in enumerate(triton_dist.simulate(lambda: run(trace), world_size=4))}
        read_back(trace, 4)
    print("largest relative error:", ", ".join(f"{error:.5f} on rank {rank}" for rank, error in errors.items()))
    assert all(error < 0.01 for error in errors.values())


if __name__ == "__main__":
    main()
