"""Measures what the simulated clock's cost model needs to know of a GPU, and makes its entry of it.

``torchrun --nproc-per-node 4 benchmarks/calibrate.py`` measures on GPUs, takes about half a minute and writes
``benchmarks/results/calibration_<gpu>.json``. ``python benchmarks/calibrate.py --fit FILE`` prints the entry that follows from the file,
beside the present one; with ``--update`` it puts it into ``src/triton_dist/sim/cost_model.py``. ``--simulate`` measures the simulator's
own GPU instead of a real one: what comes out is what its cost model says, or a measurement is wrong.

Two ranks or more. Every number is the median of several runs, the slowest rank counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parent))

import persistent_gemm
from persistent_gemm import multiply, sm_count

import triton_dist
import triton_dist.language as dl
from triton_dist.runtime.streams import Event, Stream, copy_async, current_stream, stream, write_value
from triton_dist.runtime.symmetric import symm_empty, symm_peer, symm_zeros
from triton_dist.sim.cost_model import COLLECTIVE_RAMP, H100, Costs

COST_MODEL = Path(__file__).parent.parent / "src" / "triton_dist" / "sim" / "cost_model.py"
RESULTS = Path(__file__).parent / "results"

GEMM_DEPTH_BYTES = (2048, 4096, 8192)
GEMM_WAVES = 4
COPY_BYTES = (1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20)
PUSH_PROGRAMS = (1, 2, 4, 8, 16, 32)
PUSH_BYTES = 32 << 20
STREAM_BYTES = 256 << 20
COLLECTIVE_BYTES = (8 << 10, 32 << 20, 128 << 20)
CHAIN = 400
"""Steps of the kernels that measure a latency."""


@triton.jit
def empty_kernel(out):
    if tl.num_programs(0) < 0:
        tl.store(out, 1)


@triton.jit
def chase_kernel(start, out, steps):
    """Loads of which each needs the one before: ``start[0]`` is 0."""
    place = 0
    for _ in range(steps):
        place = tl.load(start + place, volatile=True)
    tl.store(out, place)


@triton_dist.jit
def chase_peer_kernel(start, out, steps, peer):
    place = 0
    target = dl.symm_at(start, peer)
    for _ in range(steps):
        place = tl.load(target + place, volatile=True)
    tl.store(out, place)


@triton_dist.jit
def ping_pong_kernel(flag, rounds, rank, base):
    """Ranks 0 and 1 answer each other: a round is two signals."""
    for number in range(rounds):
        if rank == 0:
            dl.notify(flag, 1, signal=base + number + 1, sig_op="set", comm_scope="intra_node")
            dl.wait(flag, 1, "sys", "acquire", waitValue=base + number + 1, cmp="ge")
        else:
            dl.wait(flag, 1, "sys", "acquire", waitValue=base + number + 1, cmp="ge")
            dl.notify(flag, 0, signal=base + number + 1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def notify_kernel(flag, rounds, peer):
    for number in range(rounds):
        dl.notify(flag, peer, signal=number, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def wait_kernel(flag, rounds):
    for _ in range(rounds):
        dl.wait(flag, 1, "sys", "acquire", waitValue=0, cmp="ge")


@triton.jit
def read_kernel(source, out, count, repeats, BLOCK: tl.constexpr):
    """Each program reads its part of ``source`` again and again; the sum is stored so that the loads stay."""
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(repeats):
        for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
            total += tl.load(source + begin + tl.arange(0, BLOCK), volatile=True)
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton_dist.jit
def push_kernel(source, target, count, peer, BLOCK: tl.constexpr):
    """Copy ``source`` to the peer's ``target``."""
    there = dl.symm_at(target, peer)
    for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        tl.store(there + offset, tl.load(source + offset))


class Bench:
    """One rank's measuring: ``times`` gives nanoseconds of one call, the slowest rank's median."""

    def __init__(self, repeats: int = 5) -> None:
        self.rank, self.size = triton_dist.rank(), triton_dist.world_size()
        self.device = triton_dist.device()
        self.repeats = repeats
        self.real = self.device.type == "cuda"

    def times(self, function: Callable[[], object], calls: int = 1) -> float:
        """Nanoseconds of one of ``calls`` calls, which follow each other on the stream."""
        function()
        triton_dist.synchronize()
        samples = []
        for _ in range(self.repeats if self.real else 1):
            dist.barrier()
            begin, end = Event(), Event()
            begin.record()
            for _ in range(calls):
                function()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) * 1e6 / calls)
        slowest = torch.tensor([statistics.median(samples)], dtype=torch.float64)
        if self.real:
            slowest = slowest.to(self.device)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return float(slowest)

    def chained(self, function: Callable[[], object], count: int) -> float:
        """Nanoseconds of one of ``count`` short things, without the host's time: from a CUDA graph on a GPU."""

        def all_of_them() -> None:
            for _ in range(count):
                function()

        if not self.real:
            return self.times(all_of_them) / count
        function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as NCCL's, may call CUDA meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            all_of_them()
        return self.times(graph.replay) / count


def random(bench: Bench, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random numbers, which take a GPU's power as real ones do; unspecified ones on the simulator."""
    if not bench.real:
        return torch.empty(shape, dtype=dtype)
    return torch.randn(shape, device=bench.device, dtype=torch.float32).to(dtype)


def measure_gemm(bench: Bench) -> list[dict]:
    """A persistent product of whole waves of tiles over K, in each dtype."""
    rows, columns = 12 * persistent_gemm.TILE_M * GEMM_WAVES, sm_count() // 12 * persistent_gemm.TILE_N
    found = []
    for name, dtype in (("fp16", torch.bfloat16), ("fp8", torch.float8_e4m3fn), ("tf32", torch.float32)):
        for depth in (nbytes // dtype.itemsize for nbytes in GEMM_DEPTH_BYTES):
            a, b = random(bench, (rows, depth), dtype), random(bench, (columns, depth), dtype)
            c = torch.empty((rows, columns), dtype=torch.bfloat16, device=bench.device)
            # Long enough for the clock that the GPU keeps up.
            calls = max(2, (400 << 10) // depth) if bench.real else 2
            nanoseconds = bench.chained(lambda a=a, b=b, c=c: multiply(a, b, c), calls)
            found.append(
                {"kind": name, "rows": rows, "columns": columns, "depth": depth, "programs": sm_count() // 12 * 12, "ns": nanoseconds}
            )
    return found


def measure_memory(bench: Bench) -> dict:
    """Nanoseconds of a large copy inside a GPU, and of reads that hit the cache."""
    source, target = (torch.empty(STREAM_BYTES // 4, dtype=torch.float32, device=bench.device) for _ in range(2))
    copy = bench.times(lambda: target.copy_(source), 10)
    programs, block = sm_count(), 16384  # as many bytes under way as hide the latency
    cached = torch.zeros(programs * block, dtype=torch.float32, device=bench.device)
    out = torch.empty(programs * block, dtype=torch.float32, device=bench.device)
    one, many = (
        bench.times(lambda repeats=repeats: read_kernel[(programs,)](cached, out, cached.numel(), repeats, BLOCK=block, num_warps=16), 3)
        for repeats in (10, 60)
    )
    return {
        "copy_bytes": STREAM_BYTES,
        "copy_ns": copy,
        "cached_bytes": cached.numel() * 4 * 50,
        "cached_ns": many - one,
        "programs": programs,
    }


def measure_latencies(bench: Bench) -> dict:
    """Launch, loads, signals, and what a stream does between kernels."""
    word = symm_zeros((32,), torch.int32, name="word")
    flags = symm_zeros((32,), torch.int32, name="flags")
    out = torch.zeros(1, dtype=torch.int32, device=bench.device)
    peer = (bench.rank + 1) % bench.size
    dist.barrier()
    found: dict[str, Any] = {"launch": bench.chained(lambda: empty_kernel[(1,)](out), 100)}

    def per_step(launch: Callable[[int], object]) -> float:
        short, long = (bench.times(lambda steps=steps: launch(steps)) for steps in (CHAIN, 5 * CHAIN))
        return (long - short) / (4 * CHAIN)

    found["local"] = per_step(lambda steps: chase_kernel[(1,)](word, out, steps, num_warps=1))
    found["remote"] = per_step(lambda steps: chase_peer_kernel[(1,)](word, out, steps, peer, num_warps=1))
    found["notify"] = per_step(lambda steps: notify_kernel[(1,)](flags, steps, peer, num_warps=4))
    found["wait"] = per_step(lambda steps: wait_kernel[(1,)](word, steps, num_warps=4))
    bases = iter(range(0, 1 << 30, 1 << 16))

    def ping_pong(steps: int) -> None:
        base = next(bases)
        if bench.rank < 2:
            ping_pong_kernel[(1,)](flags[16:], steps, bench.rank, base, num_warps=4)

    found["one_way"] = per_step(ping_pong) / 2
    found["stream_write"] = bench.chained(lambda: write_value(out, 1), 100)
    side = Stream()

    def round_trip() -> None:
        main = current_stream()
        side.wait_stream(main)
        with stream(side):
            empty_kernel[(1,)](out)
        main.wait_stream(side)
        empty_kernel[(1,)](out)

    found["two_launches_and_events"] = bench.chained(round_trip, 50)
    small = torch.zeros(8, device=bench.device)
    found["torch"] = bench.chained(lambda: small.add_(1.0), 100)
    return found


def measure_links(bench: Bench) -> dict:
    """Every rank pulls from its neighbour by the copy engine, from two neighbours at once, and pushes by a few SMs."""
    buffer = symm_empty((COPY_BYTES[-1] // 4,), torch.float32, name="buffer")
    into = [torch.empty(COPY_BYTES[-1] // 4, dtype=torch.float32, device=bench.device) for _ in range(2)]
    after = [symm_peer(buffer, (bench.rank + distance) % bench.size) for distance in (1, 2)]
    dist.barrier()
    pulls = []
    for nbytes in COPY_BYTES:
        count = nbytes // 4
        pulls.append({"bytes": nbytes, "ns": bench.chained(lambda count=count: copy_async(into[0][:count], after[0][:count]), 10)})
    side = Stream()

    def two_at_once() -> None:
        main = current_stream()
        side.wait_stream(main)
        copy_async(into[1], after[1], side)
        copy_async(into[0], after[0])
        main.wait_stream(side)

    found: dict[str, Any] = {"pulls": pulls}
    if bench.size > 2:
        found["two_pulls"] = {"bytes": 2 * COPY_BYTES[-1], "ns": bench.times(two_at_once, 5)}
    source = torch.zeros(PUSH_BYTES // 4, dtype=torch.float32, device=bench.device)
    peer = (bench.rank + 1) % bench.size
    found["pushes"] = [
        {
            "programs": programs,
            "bytes": PUSH_BYTES,
            "ns": bench.times(
                lambda programs=programs: push_kernel[(programs,)](source, buffer, source.numel(), peer, BLOCK=8192, num_warps=16), 3
            ),
        }
        for programs in PUSH_PROGRAMS
    ]
    return found


def measure_collectives(bench: Bench) -> list[dict]:
    """All-gathers of the library; ``bytes`` is what a rank receives."""
    found = []
    for nbytes in COLLECTIVE_BYTES:
        shard = torch.zeros(nbytes // 4 // (bench.size - 1), dtype=torch.float32, device=bench.device)
        full = torch.zeros(shard.numel() * bench.size, dtype=torch.float32, device=bench.device)
        gather = lambda shard=shard, full=full: dist.all_gather_into_tensor(full, shard)  # noqa: E731
        found.append({"bytes": nbytes, "ns": bench.chained(gather, 10)})
    return found


def measure(repeats: int = 5) -> dict:
    """Everything, on all ranks; each of them returns it."""
    bench = Bench(repeats)
    found: dict[str, Any] = {"world_size": bench.size, "sm_count": sm_count()}
    parts: dict[str, Callable[[Bench], Any]] = {
        "latencies": measure_latencies,
        "links": measure_links,
        "collectives": measure_collectives,
        "memory": measure_memory,
        "gemm": measure_gemm,
    }
    for name, part in parts.items():
        found[name] = part(bench)
        if bench.rank == 0 and bench.real:
            print(f"{name}: measured", flush=True)
    return found


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(intercept, slope) of the straight line nearest to points, relative to their height: small ones count as much as large ones."""
    weights = [1 / y**2 for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    return mean_y - slope * mean_x, slope


def fit(found: dict, base: Costs = H100) -> dict[str, Any]:
    """The fields of ``Costs`` that follow from what was measured."""
    latencies, links, memory = found["latencies"], found["links"], found["memory"]
    costs: dict[str, Any] = {"matrix_flop_per_ns": dict(base.matrix_flop_per_ns)}
    for kind in dict.fromkeys(row["kind"] for row in found["gemm"]):
        rows = [row for row in found["gemm"] if row["kind"] == kind]
        intercept, slope = line([(row["depth"], row["ns"]) for row in rows])
        flop_per_depth = 2 * rows[0]["rows"] * rows[0]["columns"] / rows[0]["programs"]
        costs["matrix_flop_per_ns"][kind] = flop_per_depth / slope
        if kind == "fp16":
            tile = persistent_gemm.TILE_M * persistent_gemm.TILE_N * 2 / base.l2_per_sm
            per_tile = max((intercept - latencies["launch"]) / GEMM_WAVES - tile, 0.0)
            costs["tile_load_ns"] = costs["tile_store_ns"] = per_tile / 2
    costs["hbm"] = 2 * memory["copy_bytes"] / (memory["copy_ns"] - latencies["torch"])
    costs["l2_per_sm"] = memory["cached_bytes"] / memory["cached_ns"] / memory["programs"]
    start, per_byte = line([(row["bytes"], row["ns"]) for row in links["pulls"]])
    costs["copy_engine"], costs["copy_start_ns"] = 1 / per_byte, max(start, 0.0)
    rates = {row["programs"]: row["bytes"] / (row["ns"] - latencies["launch"]) for row in links["pushes"]}
    costs["link_per_sm"] = statistics.median(rate / programs for programs, rate in rates.items() if programs <= 4)
    together = [links["two_pulls"]["bytes"] / links["two_pulls"]["ns"]] if "two_pulls" in links else []
    costs["link"] = max(*rates.values(), 1 / per_byte, *together)
    small, medium, large = (row["ns"] for row in found["collectives"])
    _, middle, most = COLLECTIVE_BYTES
    costs["collective"] = (most - middle) / (large - medium)
    costs["collective_ns"] = small
    costs["collective_ramp_ns"] = max(medium - small - middle / costs["collective"], 0.0) * COLLECTIVE_RAMP / min(middle, COLLECTIVE_RAMP)
    costs["local_ns"], costs["remote_ns"] = latencies["local"], latencies["remote"]
    costs["notify_ns"], costs["wait_ns"], costs["signal_ns"] = latencies["notify"], latencies["wait"], latencies["one_way"]
    costs["launch_ns"], costs["torch_ns"] = latencies["launch"], latencies["torch"]
    costs["stream_write_ns"] = latencies["stream_write"]
    costs["event_ns"] = max((latencies["two_launches_and_events"] - 2 * latencies["launch"]) / 2, 0.0)
    return costs


def entry(name: str, costs: dict[str, Any], base: Costs = H100) -> str:
    """The Python text of a fitted entry; fields that were not measured stay as they are."""
    lines = [f"{name} = Costs("]
    for field in Costs.__dataclass_fields__:
        value = costs.get(field, getattr(base, field))
        if field == "matrix_flop_per_ns":
            shown = "{" + ", ".join(f'"{kind}": {rate:.1f}' for kind, rate in value.items()) + "}"
        else:
            shown = str(value) if isinstance(value, int) else f"{value:.1f}"
        lines.append(f"    {field}={shown},")
    return "\n".join([*lines, ")"])


def update(name: str, text: str, path: Path = COST_MODEL) -> None:
    """Replace an entry of the cost model's source."""
    source = path.read_text()
    replaced, count = re.subn(rf"^{name} = Costs\(\n.*?^\)", lambda _: text, source, flags=re.MULTILINE | re.DOTALL)
    if count != 1:
        raise SystemExit(f"{path} has {count} entries {name} = Costs(...); there has to be one")
    path.write_text(replaced)


def show_fit(found: dict, base: Costs = H100) -> None:
    """Print the fitted costs beside the present ones."""
    costs = fit(found, base)
    print("| cost | fitted | present |\n|---|---|---|")
    for field, value in costs.items():
        present = getattr(base, field)
        pairs = (
            [(f"{field}[{kind}]", value[kind], present[kind]) for kind in value] if isinstance(value, dict) else [(field, value, present)]
        )
        for name, fitted, old in pairs:
            print(f"| {name} | {fitted:.1f} | {old:.1f} |")


def measured_here() -> dict:
    """Join the world that torchrun started, measure, and add the card and the versions."""
    os.environ.setdefault("TRITON_DIST_WAIT_TIMEOUT", "20")
    triton_dist.initialize(heap_size=1 << 30)
    found = measure()
    found |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    return found


def simulated(world_size: int = 4, gpu: Any = "h100") -> dict:
    """What the simulator's own GPU measures like."""

    def rank() -> dict:
        dist.init_process_group("nccl")
        return measure(repeats=1)

    return triton_dist.simulate(rank, world_size, gpu=gpu, execute="timing", heap_size=1 << 30)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", type=Path, help="a file of measurements to make an entry of")
    parser.add_argument("--update", action="store_true", help="with --fit: put the entry into the cost model")
    parser.add_argument("--simulate", action="store_true", help="measure the simulator's own GPU")
    parser.add_argument("--name", default="h100", help="of the cost model's entry and of the result's file")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    name = arguments.name.upper()
    if arguments.fit:
        found = json.loads(arguments.fit.read_text())
        show_fit(found)
        text = entry(name, fit(found))
        print(f"\n{text}")
        if arguments.update:
            update(name, text)
        return
    if arguments.simulate:
        show_fit(simulated())
        return
    found = measured_here()
    if triton_dist.rank() == 0:
        path = arguments.output or RESULTS / f"calibration_{arguments.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        show_fit(found)
        print(f"written to {path}")
    triton_dist.finalize()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
