"""A script written for CUDA, with a profiler as Triton-distributed's kernels call it."""

import sys
from pathlib import Path

import torch
import triton.language as tl

import triton_dist
from triton_dist.language.extra.language_extra import tid
from triton_dist.tools.profiler import (
    Profiler,
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_to_perfetto_trace,
    parse_to_tracks,
    reset_profiler_buffer,
)
from triton_dist.utils import finalize_distributed, initialize_distributed


@triton_dist.jit(do_not_specialize=["count"])
def add_kernel(x, count, profiler_buf, BLOCK: tl.constexpr, profiling: tl.constexpr = False):
    profiler = Profiler.create(
        profiler_buffer=profiler_buf,
        group_id=0,
        num_groups=1,
        is_leader=(tid(0) == 0),
        ENABLE_PROFILING=profiling,
    )
    profiler = profiler.record(is_start=True, task_type=0)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offset, tl.load(x + offset, mask=offset < count) + 1, mask=offset < count)
    profiler = profiler.record(is_start=False, task_type=0)


def main() -> None:
    folder = Path(sys.argv[1])
    initialize_distributed()
    rank = torch.distributed.get_rank()
    x = torch.zeros(1000, device="cuda")
    buffer = alloc_profiler_buffer(max_num_profile_slots=1_000_000)
    for _ in range(2):
        reset_profiler_buffer(buffer)
        add_kernel[(4,)](x, 1000, buffer, 256, profiling=True)
    torch.cuda.synchronize()
    file = folder / f"rank{rank}.json"
    export_to_perfetto_trace(profiler_buffer=buffer, task_names=["add"], file_name=str(file), verbose=True)
    tracks = parse_to_tracks(buffer)
    assert buffer.device.type == "cuda" and [len(track.tasks) for track in tracks] == [1] * 4
    own = ProfilerBuffer(max_num_profile_slots=1000, trace_file=str(folder / "own.json"), task_names=["add"]).profiler_buffer
    add_kernel[(4,)](x, 1000, own, 256, profiling=True)
    nothing = torch.empty([1], dtype=torch.uint64, device=torch.cuda.current_device())
    add_kernel[(4,)](x, 1000, nothing, 256)
    assert bool((x == 4).all())
    finalize_distributed()


if __name__ == "__main__":
    main()
