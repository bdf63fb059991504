"""How fast the simulator is: beside numpy for the same arithmetic, beside Triton's own interpreter, and over the number of ranks.

``python benchmarks/simulator.py`` prints four tables and writes ``benchmarks/results/simulator.json``. Times are the best of several runs
on one thread of one core; ``--quick`` repeats less. Run it on a quiet machine: another busy process changes every number. ``--checked``
measures what the checks cost only, and leaves the other results as they are.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import triton
import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not INTERPRETED:
    import triton_dist
    import triton_dist.language as dl

SIZE, ROWS, SQUARE = 1 << 20, 1024, 512


@triton.jit
def vector_add_kernel(x, y, out, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < count
    tl.store(out + offset, tl.load(x + offset, mask=mask) + tl.load(y + offset, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offset = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + offset, mask=offset < columns, other=-float("inf"))
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + offset, exponentials / tl.sum(exponentials, 0), mask=offset < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, depth, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, TILE)
    a_pointers = a + row[:, None] * depth + k[None, :]
    b_pointers = b + k[:, None] * n + column[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in range(0, tl.cdiv(depth, TILE)):
        inside = k < depth - step * TILE
        a_tile = tl.load(a_pointers, mask=(row[:, None] < m) & inside[None, :], other=0.0)
        b_tile = tl.load(b_pointers, mask=inside[:, None] & (column[None, :] < n), other=0.0)
        total = tl.dot(a_tile, b_tile, total, input_precision="ieee")
        a_pointers += TILE
        b_pointers += TILE * n
    mask = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty), mask=mask)


def best(function: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs, in milliseconds, after one to warm up."""
    function()
    shortest = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest * 1e3


def numpy_matmul(a: np.ndarray, b: np.ndarray, tile: int) -> np.ndarray:
    """The products and sums of ``matmul_kernel``, tile by tile."""
    c = np.empty((SQUARE, SQUARE), a.dtype)
    for i in range(0, SQUARE, tile):
        for j in range(0, SQUARE, tile):
            total = np.zeros((tile, tile), np.float32)
            for k in range(0, SQUARE, tile):
                left, right = a[i : i + tile, k : k + tile], b[k : k + tile, j : j + tile]
                total += left.astype(np.float32, copy=False) @ right.astype(np.float32, copy=False)
            c[i : i + tile, j : j + tile] = total.astype(a.dtype, copy=False)
    return c


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    """The arithmetic of ``softmax_kernel``, row by row."""
    out = np.empty_like(x)
    for row in range(ROWS):
        exponentials = np.exp(x[row] - x[row].max())
        out[row] = exponentials / exponentials.sum()
    return out


def numpy_add(x: np.ndarray, y: np.ndarray, block: int) -> np.ndarray:
    """The arithmetic of ``vector_add_kernel``, block by block."""
    out = np.empty_like(x)
    for begin in range(0, SIZE, block):
        out[begin : begin + block] = x[begin : begin + block] + y[begin : begin + block]
    return out


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The same values as a numpy array, bf16 as ml_dtypes' type."""
    import ml_dtypes

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def kernel_cases() -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    """(name, launch, the same in numpy) of each kernel."""
    x, y, out = torch.randn(SIZE), torch.randn(SIZE), torch.empty(SIZE)
    cases = []
    for block in (1024, 16384):
        launch = lambda block=block: vector_add_kernel[(SIZE // block,)](x, y, out, SIZE, BLOCK=block)  # noqa: E731
        cases.append((f"vector add 1M, block {block}", launch, lambda block=block: numpy_add(x.numpy(), y.numpy(), block)))
    rows, soft = torch.randn(ROWS, 1024), torch.empty(ROWS, 1024)
    cases.append(
        (
            "softmax 1024 x 1024",
            lambda: softmax_kernel[(ROWS,)](rows, soft, 1024, BLOCK=1024),
            lambda: numpy_softmax(rows.numpy()),
        )
    )
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        for tile in (64, 128):
            a, b = torch.randn(SQUARE, SQUARE).to(dtype), torch.randn(SQUARE, SQUARE).to(dtype)
            c = torch.empty(SQUARE, SQUARE, dtype=dtype)
            grid = (SQUARE // tile, SQUARE // tile)

            def launch(a=a, b=b, c=c, grid=grid, tile=tile):
                matmul_kernel[grid](a, b, c, SQUARE, SQUARE, SQUARE, TILE=tile)

            plain = functools.partial(numpy_matmul, as_numpy(a), as_numpy(b), tile)
            cases.append((f"matmul 512^3 {name}, tile {tile}", launch, plain))
    return cases


def time_kernels(repeats: int) -> dict[str, float]:
    """Milliseconds of each kernel, in whatever runs kernels in this process; NaN where that fails."""
    times = {}
    for name, launch, _ in kernel_cases():
        try:
            times[name] = best(launch, repeats)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            times[name] = float("nan")
    return times


def time_interpreter() -> dict[str, float]:
    """``time_kernels`` under Triton's own interpreter, in a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, __file__, "--interpreter-times"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def ops_executed(launch: Callable[[], object]) -> int:
    """Ops in the body of the straight-line kernel that ``launch`` runs, constants and the return left out."""
    from triton_dist.sim import kernel as kernels
    from triton_dist.sim.ir import parse_module

    launch()
    text, *_ = next(reversed(kernels._kernels))
    function = parse_module(text.decode()).regions[0][0].operations[0]
    return sum(operation.name not in ("arith.constant", "tt.return") for operation in function.regions[0][0].operations)


def first_launch() -> float:
    """Milliseconds from the finished TTIR to a callable kernel: generic form, parsing and code generation of ``matmul_kernel``."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from triton_dist.sim.compiler import SimCompiler
    from triton_dist.sim.kernel import Kernel

    compiler = SimCompiler(GPUTarget("sim", 90, 32))
    options = compiler.parse_options({})
    signature = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "m": "i32", "n": "i32", "depth": "i32", "TILE": "constexpr"}

    def once() -> float:
        context = ir.context()
        ir.load_dialects(context)
        compiler.load_dialects(context)
        source = ASTSource(matmul_kernel, signature, {"TILE": 64})
        module = source.make_ir(
            GPUTarget("sim", 90, 32), options, compiler.get_codegen_implementation(options), compiler.get_module_map(), context
        )
        stages: dict = {}
        compiler.add_stages(stages, options, None)
        module = stages["ttir"](module, {})
        begin = time.perf_counter()
        Kernel(stages["simir"](module, {}), "matmul_kernel", 128)
        return (time.perf_counter() - begin) * 1e3

    once()
    return min(once() for _ in range(5))


if not INTERPRETED:

    @triton_dist.jit
    def ping_kernel(flags, rounds):
        program = tl.program_id(0)
        peer = (dl.rank() + 1) % dl.num_ranks()
        for number in range(rounds):
            dl.notify(flags + program, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
            dl.wait(flags + program, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")


def ping(programs: int = 64, rounds: int = 20) -> None:
    """One rank: every program signals its neighbour's and waits for the other one's, ``rounds`` times."""
    flags = triton_dist.symm_zeros((programs,), torch.int32)
    ping_kernel[(programs,)](flags, rounds)


def ag_gemm_rank(rows: int, columns: int, depth: int) -> None:
    """One rank of an all-gather + GEMM."""
    from triton_dist.ops import ag_gemm

    ag_gemm(torch.ones(rows, depth), torch.ones(depth, columns))


RANKS = (1, 4, 16, 64)


def time_ranks(repeats: int, most_ranks: int) -> list[dict]:
    """Milliseconds of a ping and of an AG+GEMM for 1 to 64 ranks."""
    rows = []
    for world_size in (ranks for ranks in RANKS if ranks <= most_ranks):
        ping_time = best(lambda w=world_size: triton_dist.simulate(ping, w), repeats)
        gemm_time = best(lambda w=world_size: triton_dist.simulate(ag_gemm_rank, w, args=(32, 64, 64)), repeats)
        rows.append({"ranks": world_size, "ping_ms": ping_time, "ag_gemm_ms": gemm_time})
    return rows


CHECKED = (
    ("signal ping, 4 ranks x 16 programs", "ping", 4, (16,)),
    ("signal ping, 64 ranks x 64 programs", "ping", 64, (64,)),
    ("AG+GEMM, 4 ranks, M 1024, N = K = 256", "ag_gemm_rank", 4, (256, 256, 256)),
    ("AG+GEMM, 64 ranks, M 2048, N = K = 64", "ag_gemm_rank", 64, (32, 64, 64)),
)
"""Programs that are timed with and without the race check: name, function, ranks, arguments."""


def least_cpu(functions: list[Callable[[], object]], repeats: int) -> list[float]:
    """For each function the least CPU time of this process in several runs, in milliseconds; they take turns, after one to warm up."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for taken, function in zip(times, functions, strict=True):
            gc.collect()
            begin = time.process_time()
            function()
            taken.append(time.process_time() - begin)
    return [min(taken[1:]) * 1e3 for taken in times]


def time_checked(repeats: int, most_ranks: int = RANKS[-1]) -> list[dict]:
    """Milliseconds of each program of ``CHECKED``: unchecked, checked for races, and for misuse, too."""
    rows = []
    for name, function, world_size, arguments in (row for row in CHECKED if row[2] <= most_ranks):

        def run(check: str | None, function: str = function, world_size: int = world_size, arguments: tuple = arguments) -> object:
            return triton_dist.simulate(globals()[function], world_size, args=arguments, check=check)

        plain, races, everything = least_cpu([functools.partial(run, check) for check in (None, "race", "all")], repeats)
        rows.append({"program": name, "ms": plain, "checked_ms": races, "all_ms": everything})
    return rows


def measure(quick: bool, most_ranks: int) -> dict:
    """All results as one dictionary; those of more ranks are left out."""
    repeats = 3 if quick else 9
    interpreter = time_interpreter()
    kernels = []
    for name, launch, plain in kernel_cases():
        simulated, numpy_time = best(launch, repeats), best(plain, repeats)
        row = {"kernel": name, "ms": simulated, "numpy_ms": numpy_time, "interpreter_ms": interpreter.get(name, float("nan"))}
        if "block 1024" in name or "softmax" in name:
            row["us_per_op"] = simulated * 1e3 / (1024 * ops_executed(launch))
        kernels.append(row)
    return {
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "triton": triton.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernels": kernels,
        "first_launch_ms": first_launch(),
        "ranks": time_ranks(2 if quick else 5, most_ranks),
        "checked": time_checked(1 if quick else 5, most_ranks),
    }


def show(results: dict) -> None:
    """Print the results as Markdown tables."""
    print("| kernel | simulator ms | over numpy | Triton's interpreter ms | ratio | us per op |")
    print("|---|---|---|---|---|---|")
    for row in results["kernels"]:
        per_op = f"{row['us_per_op']:.2f}" if "us_per_op" in row else ""
        over, ratio = row["ms"] / row["numpy_ms"], row["interpreter_ms"] / row["ms"]
        print(f"| {row['kernel']} | {row['ms']:.1f} | {over:.1f} | {row['interpreter_ms']:.0f} | {ratio:.0f} | {per_op} |")
    print("\n| ranks | signal ping, 64 programs, 20 rounds, ms | AG+GEMM, 32 rows a rank, N = K = 64, ms |")
    print("|---|---|---|")
    for row in results["ranks"]:
        print(f"| {row['ranks']} | {row['ping_ms']:.0f} | {row['ag_gemm_ms']:.0f} |")
    show_checked(results["checked"])
    print(f"\nFirst launch of a new kernel, beyond Triton's front end: {results['first_launch_ms']:.1f} ms.")
    versions = ", ".join(f"{key} {results[key]}" for key in ("python", "triton", "torch", "numpy"))
    print(f"One core; {versions}.")


def show_checked(rows: list[dict]) -> None:
    """Print what the checks cost."""
    print("\n| program | CPU ms | with check='race', ms | factor | with check='all', ms | factor |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        cells = [f"{row[key]:.0f} | {row[key] / row['ms']:.2f}" for key in ("checked_ms", "all_ms")]
        print(f"| {row['program']} | {row['ms']:.0f} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--most-ranks", type=int, default=RANKS[-1], help="leave out what needs more")
    parser.add_argument("--checked", action="store_true", help="only what the checks cost; the rest of the output file stays")
    parser.add_argument("--interpreter-times", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "simulator.json")
    arguments = parser.parse_args()
    if arguments.interpreter_times:
        print(json.dumps(time_kernels(1)))
        return
    if arguments.checked:
        results = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
        results["checked"] = time_checked(2 if arguments.quick else 5, arguments.most_ranks)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
        show_checked(results["checked"])
        return
    results = measure(arguments.quick, arguments.most_ranks)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    show(results)


if __name__ == "__main__":
    main()
