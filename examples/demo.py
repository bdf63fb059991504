"""The demo: all-gather + GEMM on four simulated ranks with its time line, then a program that hangs and why.

``make demo`` sets up an environment and runs it; the picture is written to ``out/ag_gemm_timeline.png``. Under torchrun, with no GPU, each
process is a rank, and all of them report the hang alike (``torchrun --nproc-per-node 4 examples/demo.py``).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import triton_dist
from triton_dist.ops import ag_gemm
from triton_dist.sim.gpus import GPU
from triton_dist.sim.timeline import Timeline
from triton_dist.sim.timeline_view import overlap, save_picture, to_text

sys.path.insert(0, str(Path(__file__).parent))
tutorial = importlib.import_module("01_producer_consumer")

WORLD_SIZE = 4
"""Simulated ranks; under torchrun there are as many as it starts."""

# The shapes of Llama-3 70B's MLP at M = 8192, divided by 16, and a GPU with as many fewer SMs.
M, N, K = 8192 // 16, 14336 // 16, 8192 // 16
SMALL_GPU = GPU("h100 / 16", capability=90, sm_count=8, max_shared_memory=232_448)


def rank_function() -> tuple[float, int]:
    """One rank: (largest error against torch in float64, relative to the largest value; bytes received)."""
    rank, world_size = triton_dist.rank(), triton_dist.world_size()
    rows = M // world_size
    a = torch.randn(world_size * rows, K, generator=torch.Generator().manual_seed(0)).bfloat16()
    b = torch.randn(K, N, generator=torch.Generator().manual_seed(1 + rank)).bfloat16()
    out = ag_gemm(a[rank * rows : (rank + 1) * rows], b)
    reference = a.double() @ b.double()
    error = ((out.double() - reference).abs().max() / reference.abs().max()).item()
    return error, (world_size - 1) * rows * K * a.element_size()


def show_ag_gemm(console: Console, picture: Path) -> None:
    console.rule(f"all-gather + GEMM on {WORLD_SIZE} simulated ranks: bf16, M {M}, N {N} a rank, K {K}")
    timeline = Timeline()
    begin = time.perf_counter()
    results = triton_dist.simulate(rank_function, WORLD_SIZE, gpu=SMALL_GPU, timeline=timeline)
    seconds = time.perf_counter() - begin
    table = Table("rank", "max error / max value", "received", "programs", "waits", "copying hidden by computing")
    for rank, (error, received) in enumerate(results):
        hidden = overlap(timeline, rank)
        programs = sum(span.rank == rank and span.kind == "program" for span in timeline.spans)
        waits = sum(wait.rank == rank for wait in timeline.waits)
        share = "-" if hidden is None else f"{hidden:.0%}"
        table.add_row(str(rank), f"{error:.1e}", f"{received / 1024:.0f} KiB", str(programs), str(waits), share)
    console.print(table)
    if not all(error <= 1e-2 for error, _ in results):
        raise SystemExit("the result differs from torch")
    print(to_text(timeline))
    console.print(f"checked against torch in float64; simulated in {seconds:.1f} s")
    try:
        console.print(f"time line as a picture: {save_picture(timeline, picture, 'ag_gemm on 4 simulated ranks')}")
    except ImportError:
        console.print("no picture: matplotlib is not installed")


def show_deadlock(console: Console) -> None:
    console.rule("a producer and a consumer as they are often printed")
    kernels = (tutorial.printed_producer_kernel, tutorial.printed_consumer_kernel)
    try:
        triton_dist.simulate(tutorial.run, 2, args=kernels)
    except triton_dist.errors.DeadlockError as error:
        print(f"DeadlockError: {error}")
    else:
        raise SystemExit("the printed form did not hang")
    console.rule("the corrected form: one word a tile, the value that is waited for, scope sys")
    for rank, out in enumerate(triton_dist.simulate(tutorial.run, WORLD_SIZE)):
        if not torch.equal(out, tutorial.expected(rank, WORLD_SIZE)):
            raise SystemExit(f"rank {rank} got a wrong result")
    console.print(f"{WORLD_SIZE} ranks: every tile arrived and was consumed")


def run_as_rank(console: Console) -> None:
    """What torchrun starts: the product, then the hang, which every rank is told of. Rank 0 prints."""
    triton_dist.initialize()
    if triton_dist.device().type == "cuda":
        raise SystemExit("the demo's hang would hang on GPUs; hide them (CUDA_VISIBLE_DEVICES=), or run it without torchrun")
    rank = triton_dist.rank()
    began = time.perf_counter()
    error, received = rank_function()
    if error > 1e-2:
        raise SystemExit("the result differs from torch")
    if rank == 0:
        console.rule(f"all-gather + GEMM on {triton_dist.world_size()} CPU processes")
        console.print(
            f"rank 0: max error / max value {error:.1e}, received {received / 1024:.0f} KiB, in {time.perf_counter() - began:.1f} s"
        )
        console.rule("a producer and a consumer as they are often printed")
    try:
        tutorial.run(tutorial.printed_producer_kernel, tutorial.printed_consumer_kernel)
    except triton_dist.errors.DeadlockError as hang:
        if rank == 0:
            print(f"DeadlockError: {hang}")
    else:
        raise SystemExit("the printed form did not hang")
    triton_dist.finalize()


def main() -> None:
    if "RANK" in os.environ:
        run_as_rank(Console())
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=Path("out/ag_gemm_timeline.png"), help="where to write the time line")
    arguments = parser.parse_args()
    console = Console()
    show_ag_gemm(console, arguments.picture)
    show_deadlock(console)


if __name__ == "__main__":
    main()
