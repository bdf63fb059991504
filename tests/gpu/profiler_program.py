"""The profiler inside kernels on GPUs; started by torchrun, prints one line a part on rank 0, with what was measured.

``torchrun --nproc-per-node 2 tests/gpu/profiler_program.py`` runs all parts, or those that are named as arguments. The merged trace of
all-gather + GEMM goes to the folder $OUT (default out): profiler_trace.json, and where the packages are there the same in Perfetto's format
and as a picture. Ranks may share GPUs, such as 4 ranks 2 GPUs: the picture says so, and shows how they take turns. Where there is no GPU
it runs on CPU processes.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.errors import LostRecordsWarning
from triton_dist.runtime.world import require_world
from triton_dist.tools.profiler import (
    Clock,
    Profile,
    Profiler,
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_merged_trace,
    export_to_perfetto_trace,
    layout,
    measure_clock,
    overlap,
    parse_to_tracks,
    reset_profiler_buffer,
)
from triton_dist.tools.profiler.arrows import find_arrows
from triton_dist.tools.profiler.clocks import measure_resolution
from triton_dist.tools.profiler.picture import save_picture
from triton_dist.tools.profiler.trace import write_trace

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
kernels = importlib.import_module("tests.tools.profiler.kernels")
example = importlib.import_module("04_profiler")
OUT = Path(os.environ.get("OUT", "out"))


@triton.jit
def plain_kernel(profile, values):
    """One task. Not by ``triton_dist.jit``."""
    profiler = Profiler.create(profile, 0)
    profiler = profiler.record(True, 0)
    tl.store(values + tl.arange(0, 64), 1.0)
    profiler = profiler.record(False, 0)


def on_gpu() -> bool:
    return triton_dist.device().type == "cuda"


def gpu_each() -> bool:
    """Whether each rank has a GPU to itself."""
    return on_gpu() and torch.cuda.device_count() >= triton_dist.world_size()


def resolution() -> str:
    step = measure_resolution()
    assert not on_gpu() or 1 <= step <= 2000, step
    return f"the clock goes on by {step:.0f} ns"


def records() -> str:
    """Tasks of many blocks come back, by a leader and by the block, over several launches."""
    blocks, rounds = 64, 40
    buffer, values = alloc_profiler_buffer(50_000), torch.zeros(64 * blocks, device=triton_dist.device())
    begin = time.monotonic()
    for leader in (False, True):
        kernels.rounds_kernel[(blocks,)](buffer, values, rounds, GROUP=int(leader), LEADER=leader)
    tracks = parse_to_tracks(buffer)
    whole = 1e9 * (time.monotonic() - begin)
    assert bool((values == 2 * rounds).all())
    assert sorted((track.group, track.block) for track in tracks) == [(group, block) for group in (0, 1) for block in range(blocks)]
    inner = [task for track in tracks for task in track.tasks[1:]]
    assert len(inner) == 2 * blocks * rounds and all(task.duration >= 0 for task in inner)
    assert all(track.tasks[0].start <= track.tasks[1].start and track.tasks[0].end == track.last for track in tracks)
    assert max(track.last for track in tracks) - min(track.first for track in tracks) < whole
    gaps = [after.start - before.end for track in tracks for before, after in zip(track.tasks[1:], track.tasks[2:], strict=False)]
    reset_profiler_buffer(buffer)
    assert parse_to_tracks(buffer) == []
    return f"between two records {sorted(gaps)[len(gaps) // 2]} ns in the median, {max(gaps)} at most (a new chunk)"


def overflow() -> str:
    blocks, rounds = 200, 20
    buffer, values = alloc_profiler_buffer(800), torch.zeros(64 * blocks, device=triton_dist.device())
    kernels.rounds_kernel[(blocks,)](buffer, values, rounds, GROUP=0, LEADER=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostRecordsWarning)
        tracks = parse_to_tracks(buffer)
    dropped = int(buffer.view(torch.int64)[layout.DROPPED])
    kept = int((buffer.view(torch.int64)[layout.HEADER :].reshape(-1, layout.CHUNK, 2)[:, 1:, 1] != 0).sum())
    assert kept + dropped == blocks * (2 + 2 * rounds) and dropped > 0 and tracks
    return f"{kept} records kept, {dropped} counted as dropped"


def graphs() -> str:
    """A captured kernel records at each replay."""
    if not on_gpu():
        return "not run: graphs need a GPU"
    buffer, values = alloc_profiler_buffer(4000), torch.zeros(64 * 4, device="cuda")
    kernels.rounds_kernel[(4,)](buffer, values, 3, GROUP=0, LEADER=False)
    torch.cuda.synchronize()
    reset_profiler_buffer(buffer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.rounds_kernel[(4,)](buffer, values, 3, GROUP=0, LEADER=False)
    for _ in range(3):
        graph.replay()
    tracks = parse_to_tracks(buffer)
    assert len(tracks) == 12 and all(len(track.tasks) == 4 for track in tracks)
    return "3 replays recorded"


def clocks() -> str:
    """The offset is the same within the bounds, but for a drift."""
    rounds = 32 if gpu_each() else 4
    first = measure_clock(rounds)
    time.sleep(0.5)
    last = measure_clock(rounds)
    drift = (last.offset - first.offset) / max(last.at - first.at, 1)
    if gpu_each():
        assert abs(last.offset - first.offset) <= first.bound + last.bound + 1e-4 * (last.at - first.at), (first, last)
        assert max(first.bound, last.bound) < 100_000
    aligned = Clock(first, last).aligned(last.at)
    assert abs(aligned - (last.at - last.offset)) <= 1
    here = triton_dist.rank(), first.offset, round(max(first.bound, last.bound)), round(1e6 * drift, 2)
    everyone = require_world("clocks").gather(here)
    return "; ".join(f"rank {rank} is {offset} ns ahead, within {bound} ns, drifts by {ppm} ppm" for rank, offset, bound, ppm in everyone)


MOVED_NS = 500
"""How much earlier a clock may read for a block that goes on after another process had the GPU. 160 ns were seen on an H200."""


def arrows() -> str:
    """Every wait of a ring is ended by the rank before, no earlier than the clocks may be off."""
    rounds, programs = (50, 4) if gpu_each() else (3, 2)
    flags = triton_dist.symm_zeros((programs,), torch.int32)
    with tempfile.TemporaryDirectory() as folder, ProfilerBuffer(20_000, Path(folder) / "ring.json", kernels.NAMES) as profiler:
        kernels.ring_kernel[(programs,)](profiler.profiler_buffer, flags, ROUNDS=rounds, PROFILE=True)
    assert profiler.profile is not None
    found = find_arrows(profiler.profile)
    size = triton_dist.world_size()
    assert len(found) == size * rounds * programs, (len(found), size * rounds * programs)
    assert all(arrow.begin.rank == (arrow.end.rank - 1) % size for arrow in found)
    late = min(arrow.latency + arrow.begin.bound + arrow.end.bound for arrow in found)
    assert late >= -MOVED_NS, f"a wait ended {-late:.0f} ns before its signal, beyond what the clocks may be off"
    latencies = sorted(arrow.latency for arrow in found)
    return f"{len(found)} arrows; from notify to the wait's end {latencies[len(latencies) // 2]:.0f} ns in the median"


def all_gather_gemm() -> str:
    """The merged trace, its files, and the overlap."""
    trace = OUT / "profiler_trace.json"
    large = {"rows": 2048, "depth": 4096, "columns": 2048, "tile": 128, "senders": 16, "programs": 128}
    shared = {"rows": 512, "depth": 2048, "columns": 1024, "tile": 128, "senders": 8, "programs": 64}
    small = {"rows": 64, "depth": 64, "columns": 64, "programs": 4}
    error, profile = example.run(trace, **(large if gpu_each() else shared if on_gpu() else small))
    assert error < 0.01, error
    waits = sum(task.word is not None for rank in profile.ranks for track in rank.tracks for task in track.tasks)
    found = len(find_arrows(profile))
    assert found == waits > 0, (found, waits)
    if triton_dist.rank() == 0:
        _other_files(profile, trace)
    shares = [f"{of_rank.efficiency:.3f}" for of_rank in overlap(profile, ["send"], ["product"])]
    on = where(triton_dist.world_size())
    return f"{on}: {waits} waits, {found} arrows, error {error:.5f}, overlap efficiency by rank {', '.join(shares)}; {trace}"


def _other_files(profile: Profile, trace: Path) -> None:
    assert json.loads(trace.read_text())["traceEvents"]
    if importlib.util.find_spec("perfetto") is not None:
        write_trace(profile, trace.with_suffix(".perfetto-trace"))
    if importlib.util.find_spec("matplotlib") is not None:
        save_picture(trace, trace.with_suffix(".png"), f"all-gather + GEMM on {where(len(profile.ranks))}")


def where(ranks: int) -> str:
    """What so many ranks run on, for titles."""
    if not on_gpu():
        return f"{ranks} CPU processes"
    gpus = min(ranks, torch.cuda.device_count())
    on = f"{gpus} x {torch.cuda.get_device_name()}"
    return on if gpu_each() else f"{ranks} ranks that take turns on {on}, {-(-ranks // gpus)} to a GPU"


def cost() -> str:
    """What profiling costs all-gather + GEMM; informative."""
    if not gpu_each():
        return "not run: each rank needs a GPU"
    rows, size = 2048, triton_dist.world_size()
    a = torch.randn(rows, 4096, dtype=torch.bfloat16, device="cuda")
    b, out = torch.randn(4096, 2048, dtype=torch.bfloat16, device="cuda"), torch.zeros(size * rows, 2048, device="cuda")
    gathered, buffer = triton_dist.symm_zeros((size * rows, 4096), torch.bfloat16), alloc_profiler_buffer(200_000)
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(20):
        on = bool(number % 2)
        triton_dist.synchronize()
        flags = triton_dist.symm_zeros((size * rows // 128,), torch.int32)
        reset_profiler_buffer(buffer)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        example.ag_gemm_kernel[(128,)](a, gathered, flags, b, out, buffer if on else None, rows, 4096, 2048, 128, 64, 16, on)
        end.record()
        end.synchronize()
        times[on].append(begin.elapsed_time(end))
    off, on_time = (sorted(times[on])[len(times[on]) // 2] for on in (False, True))
    return f"{1e3 * off:.0f} us without, {1e3 * on_time:.0f} us with records (medians of 10)"


def merged_and_own_files() -> str:
    """Each rank's own file and the one of all, of one buffer."""
    buffer, values = alloc_profiler_buffer(2000), torch.zeros(128, device=triton_dist.device())
    kernels.rounds_kernel[(2,)](buffer, values, 3, GROUP=0, LEADER=False)
    with tempfile.TemporaryDirectory() as folder:
        own = export_to_perfetto_trace(buffer, kernels.NAMES, Path(folder) / f"{triton_dist.rank()}.json")
        everyone = export_merged_trace(buffer, kernels.NAMES, Path(folder) / "all.json")
    assert [rank.rank for rank in everyone.ranks] == list(range(triton_dist.world_size()))
    assert own.ranks[0].tracks == everyone.ranks[triton_dist.rank()].tracks
    return "the same tracks"


def proton() -> str:
    """A session of Triton's profiler around a kernel with records in it: both see it."""
    if not on_gpu():
        return "not run: Proton needs a GPU"
    from triton import profiler

    buffer, values = alloc_profiler_buffer(400), torch.zeros(64, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        name = str(Path(folder) / "session")
        try:
            session = profiler.start(name, hook="triton")
        except RuntimeError as error:
            return f"not run: {error}"
        with profiler.scope("around"):
            plain_kernel[(1,)](buffer, values)
        torch.cuda.synchronize()
        profiler.finalize(session)
        tree = Path(f"{name}.hatchet").read_text()
    assert "plain_kernel" in tree and "around" in tree, tree[:500]
    (track,) = parse_to_tracks(buffer)
    assert len(track.tasks) == 1
    return "both saw the kernel"


PARTS: tuple[Callable[[], str], ...] = (
    resolution, records, overflow, graphs, clocks, arrows, all_gather_gemm, cost, merged_and_own_files, proton,
)  # fmt: skip


def main() -> int:
    triton_dist.initialize(wait_timeout=60.0)
    world = require_world("profiler_program")
    chosen, failed = sys.argv[1:], 0
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        try:
            told, right = part(), True
        except Exception as error:
            told, right = f"rank {triton_dist.rank()}: {type(error).__name__}: {error}", False
        everyone = world.gather((told, right))
        wrong = [told for told, right in everyone if not right]
        failed += bool(wrong)
        if triton_dist.rank() == 0:
            print(f"{part.__name__}: wrong, {wrong[0]}" if wrong else f"{part.__name__}: right ({everyone[0][0]})", flush=True)
    triton_dist.finalize()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
