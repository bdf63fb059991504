"""AG+GEMM times predicted by the simulated clock: beside measured ones, and for worlds that nobody measured.

``python benchmarks/predict.py`` reads ``benchmarks/results/ag_gemm*.json``, predicts every method that it finds there and knows, and
prints predicted / measured, the share within 25 % and the worst. ``--worlds 8 72`` adds predictions for larger worlds. No GPU is used.
A CUDA graph's times are compared where a file has them: the simulated clock has no host that could be too slow.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))

from persistent_gemm import OverlappedAllGatherGemm, multiply

import triton_dist
from triton_dist.ops import ag_gemm
from triton_dist.sim.gpus import find_gpu

RESULTS = Path(__file__).parent / "results"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
CALLS = 2
WITHIN = 0.25
ROWS = (8192, 16384)
"""M of the predictions for larger worlds."""

HEAP_BYTES = 64 << 30
"""Only addresses: nothing of it is touched."""

PROJECTIONS = (
    ("llama3-70b-mlp", 8192, 57344),
    ("gpt3-175b-mlp", 12288, 49152),
)
"""(name, K, columns of all ranks) of the predictions for larger worlds."""


@dataclass(frozen=True)
class Shape:
    """One product: M rows of all ranks, N columns of each rank, inner size K."""

    m: int
    n: int
    k: int
    dtype: str
    world_size: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} {self.dtype}, {self.world_size} ranks"


@dataclass
class Row:
    """A prediction, in microseconds, and what was measured, None where nothing was."""

    shape: Shape
    gpu: str
    method: str
    predicted_us: float
    measured_us: float | None = None
    source: str = ""

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_us / self.measured_us if self.measured_us else math.nan


def own_method(name: str, shape: Shape) -> str | None:
    """How ``ag_gemm`` is told to go for "ours" or "ours:<method>"; None if it takes no telling.

    "ours" is the operator's own choice for GPUs, which it does not make on the simulator.
    """
    if "method" not in inspect.signature(ag_gemm).parameters:
        return None
    chosen = name.partition(":")[2]
    if chosen:
        return chosen
    try:
        from triton_dist.ops.gemm.plan import choose_plan
    except ImportError:
        return "auto"
    rows = shape.m // shape.world_size
    return choose_plan("auto", shape.world_size, rows, shape.n, shape.k, DTYPES[shape.dtype].itemsize, "cuda").method


def make_calls(shape: Shape, weights: list[torch.Tensor], names: Sequence[str]) -> dict[str, Callable[[torch.Tensor], object]]:
    """The methods by name, those that can be predicted; each takes the weights (N, K) to use."""
    size, rows, dtype = shape.world_size, shape.m // shape.world_size, DTYPES[shape.dtype]
    made = torch.bfloat16 if dtype.itemsize == 1 else dtype
    shard, gathered = torch.empty((rows, shape.k), dtype=dtype), torch.empty((shape.m, shape.k), dtype=dtype)
    out = torch.empty((shape.m, shape.n), dtype=made)
    one = torch.ones(())

    def product(b: torch.Tensor) -> None:
        if dtype.itemsize == 1:
            torch._scaled_mm(gathered, b.t(), one, one, out_dtype=made, out=out)
        else:
            torch.matmul(gathered, b.t(), out=out)

    def all_gather(b: torch.Tensor | None = None) -> None:
        dist.all_gather_into_tensor(gathered, shard)

    def nccl(b: torch.Tensor) -> None:
        all_gather()
        product(b)

    calls: dict[str, Callable[[torch.Tensor], object]] = {"cublas": product, "nccl-all-gather": all_gather, "nccl+cublas": nccl}
    if "overlapped" in names and rows % 128 == 0:
        overlapped = OverlappedAllGatherGemm(dist.get_rank(), size, rows, shape.k, dtype, torch.device("cpu"))
        calls["overlapped"] = lambda b: overlapped(shard, b, out)
        calls["product alone"] = lambda b: multiply(gathered, b, out)
    if "copy-all-gather" in names:
        source = triton_dist.symm_empty((rows, shape.k), dtype, name="source")

        def copy_all_gather(b: torch.Tensor) -> None:
            for step in range(size):
                peer = (dist.get_rank() + step) % size
                triton_dist.copy_async(gathered[peer * rows : (peer + 1) * rows], triton_dist.symm_peer(source, peer))

        calls["copy-all-gather"] = copy_all_gather
    for name in names:
        if name.partition(":")[0] == "ours":
            method = own_method(name, shape)
            options = {} if method is None else {"method": method}
            calls[name] = lambda b, options=options: ag_gemm(shard, b.t(), out=out, **options)
    return {name: calls[name] for name in names if name in calls}


def predict(shape: Shape, names: Sequence[str], gpu: str = "h100", rotate_mib: float = 100.0, seed: int = 0) -> dict[str, float]:
    """Microseconds of each method that can be predicted, the slowest rank's; several calls that follow each other count.

    rotate_mib: weights of at least so many MiB take turns, as in a model's layers. Methods with names that mean nothing here are left out.
    """
    nbytes = shape.n * shape.k * DTYPES[shape.dtype].itemsize
    turns = max(1, min(CALLS + 1, math.ceil(rotate_mib * 2**20 / nbytes)))

    def rank() -> dict[str, float]:
        dist.init_process_group("nccl")
        weights = [torch.empty((shape.n, shape.k), dtype=DTYPES[shape.dtype]) for _ in range(turns)]
        times = {}
        for name, call in make_calls(shape, weights, names).items():
            call(weights[-1])
            triton_dist.synchronize()
            begin, end = triton_dist.Event(), triton_dist.Event()
            begin.record()
            for turn in range(CALLS):
                call(weights[turn % turns])
            end.record()
            end.synchronize()
            times[name] = begin.elapsed_time(end) * 1e3 / CALLS
        return times

    ranks = triton_dist.simulate(rank, shape.world_size, gpu=gpu, execute="timing", heap_size=HEAP_BYTES, seed=seed)
    return {name: max(times[name] for times in ranks) for name in ranks[0]}


def read_measured(path: Path) -> list[tuple[Shape, dict[str, float], float]]:
    """(shape, microseconds by method, MiB of weights that take turns) of each case of a benchmark's result; of two modes the graph's."""
    found = json.loads(path.read_text())
    cases: dict[tuple, tuple[Shape, dict[str, float]]] = {}
    for case in sorted(found["cases"], key=lambda case: case["mode"] == "graph"):
        sizes = case["sizes"]
        shape = Shape(sizes["M"], sizes["N"], sizes["K"], case["dtype"], case["world_size"])
        times = {row["name"]: row["median_us"] for row in case["methods"] if row.get("status") == "measured" and row.get("median_us")}
        if shape.world_size > 1 and shape.dtype in DTYPES and not found.get("dry_run"):
            known = cases.setdefault((shape,), (shape, {}))
            known[1].update(times)
    rotate = float(found.get("settings", {}).get("rotate_mib") or 0)
    return [(shape, times, rotate) for shape, times in cases.values()]


def compare(paths: Sequence[Path]) -> list[Row]:
    """Predictions beside everything that was measured and can be predicted."""
    rows = []
    for path in paths:
        for shape, measured, rotate in read_measured(path):
            for name, predicted in predict(shape, list(measured), rotate_mib=rotate).items():
                rows.append(Row(shape, "h100", name, predicted, measured[name], path.name))
                print(f"{shape}: {name} {predicted:.0f} us, measured {measured[name]:.0f}", file=sys.stderr, flush=True)
    return rows


def larger_worlds(worlds: Sequence[int], rows: Sequence[int] = ROWS) -> list[Row]:
    """Predictions for worlds in which every rank reaches every other one at the link's rate; above 8 ranks with two GPU models.

    rows: M of all ranks together, rounded up to whole tiles a rank.
    """
    own = "ours" if "method" in inspect.signature(ag_gemm).parameters else "overlapped"
    found = []
    for size in worlds:
        for gpu in ("h100",) if size <= 8 else ("h100", "b200"):
            for _, depth, columns in PROJECTIONS:
                for m in rows:
                    shard = -(-m // size // 128) * 128
                    # Columns of a rank: a multiple of 8, as descriptors want it.
                    shape = Shape(shard * size, -(-columns // size // 8) * 8, depth, "bf16", size)
                    begin = time.perf_counter()
                    for name, predicted in predict(shape, [own, "nccl+cublas", "cublas", "nccl-all-gather"], gpu).items():
                        found.append(Row(shape, gpu, name, predicted))
                    print(f"{shape} on {gpu}: predicted in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return found


def show_comparison(rows: Sequence[Row]) -> None:
    """Print a Markdown table and a summary."""
    print("| shape | method | predicted us | measured us | predicted / measured |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.shape} | {row.method} | {row.predicted_us:.0f} | {row.measured_us:.0f} | {row.ratio:.2f} |")
    for method in dict.fromkeys(row.method for row in rows):
        ratios = [row.ratio for row in rows if row.method == method]
        within = sum(abs(ratio - 1) <= WITHIN for ratio in ratios)
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        print(f"{method}: {within} of {len(ratios)} within {WITHIN:.0%}, worst ratio {worst:.2f}")


def show_larger_worlds(rows: Sequence[Row]) -> None:
    """Print a Markdown table; every number in it is a prediction."""
    print("\nPredicted, not measured; the costs of GPUs other than the H100 are from data sheets.\n")
    methods = list(dict.fromkeys(row.method for row in rows))
    print(f"| ranks | GPU | M, N a rank, K | {' us | '.join(methods)} us |\n|---|---|---|{'---|' * len(methods)}")
    by_case: dict[tuple[Shape, str], dict[str, float]] = {}
    for row in rows:
        by_case.setdefault((row.shape, row.gpu), {})[row.method] = row.predicted_us
    for (shape, gpu), times in by_case.items():
        cells = " | ".join(f"{times[method]:.0f}" if method in times else "-" for method in methods)
        print(f"| {shape.world_size} | {gpu} | {shape.m}, {shape.n}, {shape.k} | {cells} |")


def save(path: Path, compared: Sequence[Row], predicted: Sequence[Row]) -> None:
    """Write all rows as JSON, with the costs that they came from."""
    used = {row.gpu for row in [*compared, *predicted]}
    costs = {gpu: {name: dict(v) if name == "matrix_flop_per_ns" else v for name, v in vars(find_gpu(gpu).costs).items()} for gpu in used}
    values: dict[str, Any] = {
        "costs": costs,
        "compared": [asdict(row) for row in compared],
        "predicted": [asdict(row) for row in predicted],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1) + "\n")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", nargs="*", type=Path, help="results of benchmarks/ag_gemm.py; default benchmarks/results/ag_gemm*.json")
    parser.add_argument("--worlds", nargs="*", type=int, default=[], help="larger worlds to predict, such as 8 72")
    parser.add_argument("--output", type=Path, default=RESULTS / "predicted_ag_gemm.json")
    arguments = parser.parse_args(words)
    compared = compare(arguments.measured or sorted(RESULTS.glob("ag_gemm*.json")))
    predicted = larger_worlds(arguments.worlds)
    if compared:
        show_comparison(compared)
    if predicted:
        show_larger_worlds(predicted)
    save(arguments.output, compared, predicted)


if __name__ == "__main__":
    main()
