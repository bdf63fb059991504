"""What it costs AG+GEMM that its waits can be bounded, while no bound is set: beside the same kernel with waits that only poll.

``torchrun --nproc-per-node 4 benchmarks/wait_bound.py --json out.json``. Interleaved rounds, CUDA graphs, the slowest rank; the ratio of
paired rounds with its 95 % interval.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from harness.environment import describe
from harness.intervals import estimate_ratio
from harness.limits import Watchdog
from harness.machine import Machine, run_on
from harness.timing import Method, Options, measure

WAIT = 'dl.wait(flags + (index + size - place // blocks) % size * MAX + place % blocks, 1, "sys", "acquire", waitValue=1)'
POLL = "bare_wait(flags + (index + size - place // blocks) % size * MAX + place % blocks)"
BARE_WAIT = '''

@triton.jit
def bare_wait(word):
    """Polls until the word is 1, whatever happens."""
    tl.inline_asm_elementwise(
        """{ .reg .pred %again; .reg .b32 %seen;
        POLL${:uid}: ld.acquire.sys.global.b32 %seen, [$1]; setp.ne.s32 %again, %seen, 1; @%again bra POLL${:uid};
        fence.proxy.async; mov.u32 $0, 0; }""",
        "=r,l", [word], dtype=tl.int32, is_pure=False, pack=1,
    )
    tl.debug_barrier()


@triton.jit
def announce('''
SHAPES = ((4096, 7168, 8192), (2048, 14336, 8192), (8192, 7168, 4096))
"""M of all ranks, N of a rank, K; the fused method's sizes."""


def kernels_that_only_poll(directory: Path) -> ModuleType:
    """The operator's kernels with the waits for arrived rows replaced."""
    from triton_dist.ops.gemm import ag_gemm_kernels

    source = Path(ag_gemm_kernels.__file__).read_text(encoding="utf-8")
    if source.count(WAIT) != 1:
        raise SystemExit("the wait in gathered_gemm_kernel is written differently now; adapt WAIT")
    path = directory / "polling.py"
    path.write_text(source.replace(WAIT, POLL).replace("\n\n@triton.jit\ndef announce(", BARE_WAIT, 1), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("triton_dist.ops.gemm.polling", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(machine: Machine, rounds: int, directory: Path) -> list[dict]:
    """One row a shape. All ranks."""
    from triton_dist.ops import ag_gemm
    from triton_dist.ops.gemm import ag_gemm as operator

    bounded, polling = operator.gathered_gemm_kernel, kernels_that_only_poll(directory).gathered_gemm_kernel
    rows = []
    for total_rows, columns, depth in SHAPES:
        shard_rows = total_rows // machine.world_size
        shards = [
            torch.randn(shard_rows, depth, device=machine.device, generator=torch.Generator(machine.device).manual_seed(rank)).bfloat16()
            for rank in range(machine.world_size)
        ]
        b = torch.randn(columns, depth, device=machine.device).bfloat16().t()
        out = torch.empty(total_rows, columns, device=machine.device, dtype=torch.bfloat16)
        expected = torch.cat(shards) @ b

        def call(turn: int, kernel=None, shard=shards[machine.rank], b=b, out=out) -> torch.Tensor:
            operator.gathered_gemm_kernel = kernel
            return ag_gemm(shard, b, out=out, method="fused")

        def error(result: torch.Tensor, turn: int, expected=expected) -> float:
            return ((result.float() - expected.float()).norm() / expected.float().norm()).item()

        methods = [
            Method(name, "ours", lambda turn, kernel=kernel, call=call: call(turn, kernel), error, 1e-2, (out,))
            for name, kernel in (("bounded", bounded), ("polling", polling))
        ]
        results = measure(machine, methods, "graph", Options(rounds=rounds), Watchdog(60, machine.rank))
        operator.gathered_gemm_kernel = bounded
        samples = {result.name: result.samples_us for result in results}
        if any(result.status != "measured" for result in results):
            raise SystemExit(f"not measured: {[(result.name, result.status, result.why) for result in results]}")
        ratio = estimate_ratio(samples["bounded"], samples["polling"])
        row = {
            "M": total_rows,
            "N": columns,
            "K": depth,
            "ratio": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            "samples_us": samples,
        }
        if machine.rank == 0:
            print(
                f"M {total_rows} N {columns} K {depth}: with / without {ratio.median:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]", flush=True
            )
        rows.append(row)
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, help="where to write the results")
    parser.add_argument("--rounds", type=int, default=60, help="of each of the two")
    arguments = parser.parse_args()
    os.environ["TRITON_DIST_REPLAY"] = "0"  # a call would be replayed with the kernel that was there at its first time

    def act(machine: Machine) -> None:
        with tempfile.TemporaryDirectory() as directory:
            rows = run(machine, arguments.rounds, Path(directory))
        environment = describe(machine)
        if machine.rank == 0 and arguments.json:
            arguments.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    run_on(act, dry_ranks=None, heap_size=2 << 30, timeout_s=120)


if __name__ == "__main__":
    main()
