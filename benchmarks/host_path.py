"""Host time of a call of each operator beside a plain Triton launch and torch's own operators: calls in a row, the device kept busy.

``torchrun --nproc-per-node 4 benchmarks/host_path.py --json out.json``. Median of the calls, microseconds, and the slowest rank's. The
first calls with new tensors, which are queued one by one and then kept or captured, are given beside. It is the host that is measured, so
ranks may share a GPU; NCCL is left out then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from harness.environment import describe
from harness.machine import Machine, run_on

CALLS = 200
WARM_CALLS = 50
BATCH = 10
"""Calls between two waits for the device: the queue never fills up, and the ranks stay together."""
ELEMENTS = 4096
"""float32 elements of what the collectives get: 16 KiB, so that host time is all there is."""
COLUMNS, DEPTH = 1024, 4096
ROWS = (64, 1024)
AG_METHODS = ("split", "pipelined", "fused", "fused_kernel")
RS_METHODS = ("split", "pipelined")
AR_METHODS = ("all_reduce", "split", "pipelined")


@triton.jit
def plain_kernel(x, y, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)


def host_us(machine: Machine, call: Callable[[], object]) -> dict[str, float]:
    """first, second: of the calls that prepare; median: of later ones; each that of the slowest rank."""
    times = []
    for number in range(CALLS):
        if number % BATCH == 0:
            machine.synchronize()
            machine.align(ahead=True)
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    machine.synchronize()
    mine = {"first": times[0], "second": times[1], "median": statistics.median(times[WARM_CALLS:])}
    return {name: round(max(rank[name] for rank in machine.gather(mine)), 1) for name in mine}


def small_calls(machine: Machine) -> dict[str, Callable[[], object]]:
    """Torch's operators, a plain launch, and the collectives, with outputs that are given and, where it says so, with new ones."""
    from triton_dist.ops import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter

    size, device = machine.world_size, machine.device
    x, out = torch.randn(ELEMENTS * size, device=device), torch.empty(ELEMENTS * size, device=device)
    part, small = x[:ELEMENTS], torch.empty(ELEMENTS, device=device)
    a, b = torch.randn(64, DEPTH, device=device).bfloat16(), torch.randn(DEPTH, COLUMNS, device=device).bfloat16()
    product = torch.empty(64, COLUMNS, device=device, dtype=torch.bfloat16)
    calls: dict[str, Callable[[], object]] = {
        "torch.add": lambda: torch.add(part, part, out=small),
        "torch.matmul": lambda: torch.matmul(a, b, out=product),
        "plain Triton launch": lambda: plain_kernel[(4,)](part, small, ELEMENTS, BLOCK=1024),
        "all_reduce": lambda: all_reduce(part, out=small),
        "all_reduce, new output": lambda: all_reduce(part),
        "all_gather": lambda: all_gather(part, out=out),
        "reduce_scatter": lambda: reduce_scatter(x, out=small),
        "all_to_all": lambda: all_to_all(x, out=out),
        "broadcast": lambda: broadcast(part, out=small),
    }
    if not machine.dry and not getattr(machine, "shared", False):
        calls["NCCL all_reduce"] = lambda: dist.all_reduce(small)
    return calls


def product_calls(machine: Machine, rows: int) -> dict[str, Callable[[], object]]:
    """Products over ranks, ``rows`` in all."""
    from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs

    size, device = machine.world_size, machine.device
    full, b = torch.randn(rows, DEPTH, device=device).bfloat16(), torch.randn(COLUMNS, DEPTH, device=device).bfloat16().t()
    whole, part = (torch.empty(count, COLUMNS, device=device, dtype=torch.bfloat16) for count in (rows, rows // size))
    shard = full[: rows // size]
    calls: dict[str, Callable[[], object]] = {}
    for method in AG_METHODS:
        calls[f"ag_gemm {method}"] = lambda method=method: ag_gemm(shard, b, out=whole, method=method)
    for method in RS_METHODS:
        calls[f"gemm_rs {method}"] = lambda method=method: gemm_rs(full, b, out=part, method=method)
    for method in AR_METHODS:
        calls[f"gemm_ar {method}"] = lambda method=method: gemm_ar(full, b, out=whole, method=method)
    return calls


def run(machine: Machine) -> list[dict]:
    """One row a callable. All ranks."""
    rows = []
    for total_rows, calls in ((0, small_calls(machine)), *((count, product_calls(machine, count)) for count in ROWS)):
        for name, call in calls.items():
            row = {"M": total_rows, "call": name, **host_us(machine, call)}
            if machine.rank == 0:
                print(
                    f"M {total_rows:5} {name:24} {row['median']:7.1f} us   first {row['first']:10.1f}   second {row['second']:9.1f}",
                    flush=True,
                )
            rows.append(row)
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, help="where to write the results")
    arguments = parser.parse_args()

    def act(machine: Machine) -> None:
        rows, environment = run(machine), describe(machine)
        if machine.rank == 0 and arguments.json:
            arguments.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    run_on(act, dry_ranks=None, heap_size=1 << 30, timeout_s=120)


if __name__ == "__main__":
    main()
