"""Host time of a call of AG+GEMM beside a plain Triton launch and torch's matmul: calls in a row, the device kept busy.

``torchrun --nproc-per-node 4 benchmarks/host_path.py --json out.json``. Median of the calls, microseconds, and the slowest rank's. The
first calls with new tensors, which are queued one by one and then captured, are given beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from harness.environment import describe
from harness.machine import Machine, run_on

CALLS = 100
SHAPES = ((64, 7168, 4096), (4096, 7168, 4096))
METHODS = ("split", "pipelined", "fused", "fused_kernel")


@triton.jit
def plain_kernel(x, y, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)


def host_us(machine: Machine, call: Callable[[], object]) -> dict[str, float]:
    """first, second: of the calls that prepare; median: of later ones; each that of the slowest rank."""
    times = []
    for number in range(CALLS):
        if number % 10 == 0:  # the queue never fills up, and the ranks stay together
            machine.synchronize()
            machine.align(ahead=True)
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    machine.synchronize()
    mine = {"first": times[0], "second": times[1], "median": statistics.median(times[20:])}
    return {name: round(max(rank[name] for rank in machine.gather(mine)), 1) for name in mine}


def run(machine: Machine) -> list[dict]:
    """One row a callable. All ranks."""
    from triton_dist.ops import ag_gemm

    rows = []
    for total_rows, columns, depth in SHAPES:
        shard = torch.randn(total_rows // machine.world_size, depth, device=machine.device).bfloat16()
        b = torch.randn(columns, depth, device=machine.device).bfloat16().t()
        out = torch.empty(total_rows, columns, device=machine.device, dtype=torch.bfloat16)
        full = torch.randn(total_rows, depth, device=machine.device).bfloat16()
        calls: dict[str, Callable[[], object]] = {
            f"ag_gemm {name}": lambda name=name, shard=shard, b=b, out=out: ag_gemm(shard, b, out=out, method=name) for name in METHODS
        }
        calls["torch.matmul"] = lambda full=full, b=b, out=out: torch.matmul(full, b, out=out)
        calls["plain Triton launch"] = lambda shard=shard, out=out: plain_kernel[(1,)](shard, out, 64, BLOCK=64)
        for name, call in calls.items():
            row = {"M": total_rows, "N": columns, "K": depth, "call": name, **host_us(machine, call)}
            if machine.rank == 0:
                print(
                    f"M {total_rows} {name:24} {row['median']:7.1f} us   first {row['first']:9.1f}   second {row['second']:9.1f}",
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
