"""Host functions of ``utils``, ``profiler_utils`` and ``nvshmem`` on GPUs; started by torchrun, prints one line a part on rank 0."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from triton_dist import nvshmem_shim, utils
from triton_dist.nvshmem_shim import bindings, core
from triton_dist.profiler_utils import perf_func, perf_func_with_l2_reset
from triton_dist.test.utils import assert_allclose


def device_queries() -> None:
    device = torch.cuda.current_device()
    highest, now = utils.get_max_gpu_clock_rate_in_khz(device), utils.get_current_gpu_clock_rate_in_khz(device)
    assert 500_000 < highest < 5_000_000 and 50_000 < now <= highest, (now, highest)
    assert 0 <= utils.get_numa_node(device) < 64
    assert utils.get_device_max_shared_memory_size(device) >= 99 << 10
    assert utils.is_cuda() and not utils.is_hip()
    assert isinstance(utils.has_fullmesh_nvlink(), bool) and isinstance(utils.supports_p2p_native_atomic(), bool)
    utils.CUDA_CHECK(utils.cudart.cudaFree(0))
    utils.CUDA_CHECK(utils.cuda.cuInit(0))


def sleeping() -> None:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    utils.sleep_async(20)
    end.record()
    end.synchronize()
    assert 15 < begin.elapsed_time(end) < 200, begin.elapsed_time(end)


def timing() -> None:
    x = torch.ones(1 << 24, device="cuda")
    for perf in (perf_func, perf_func_with_l2_reset):
        out, milliseconds = perf(lambda: x + 1, iters=10, warmup_iters=2)
        assert_allclose(out, torch.full_like(x, 2), rtol=0, atol=0, verbose=False)
        assert 0 < milliseconds < 100, milliseconds


def puts_and_signals() -> None:
    rank, size = core.my_pe(), core.n_pes()
    after, before = (rank + 1) % size, (rank - 1) % size
    inbox, signal = core.tensor((1000,), torch.int32), core.tensor((1,), torch.int64)
    inbox.zero_(), signal.zero_()
    core.barrier_all()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    outbox = torch.full((1000,), rank + 1, dtype=torch.int32, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    core.put_signal(inbox, outbox, core.tensor_get_buffer(signal)[0], 3, core.SignalOp.SIGNAL_SET, after, side)
    core.signal_wait(signal, 3, core.ComparisonType.CMP_GE)
    assert inbox.tolist() == [before + 1] * 1000
    core.barrier_all()
    core.signal_op(signal, 4, core.SignalOp.SIGNAL_ADD, after)
    core.signal_wait(signal, 7, core.ComparisonType.CMP_EQ)
    mine = torch.zeros(1000, dtype=torch.int32, device="cuda")
    core.get(mine, inbox, after)
    assert mine.tolist() == [rank + 1] * 1000
    core.barrier_all()
    bindings.putmem_on_stream(inbox.data_ptr(), mine.data_ptr(), 4000, after, torch.cuda.current_stream().cuda_stream)
    core.barrier_all(torch.cuda.current_stream())
    assert inbox.tolist() == [before + 1] * 1000
    torch.cuda.synchronize()
    dist.barrier()


def teams() -> None:
    size = core.n_pes()
    row, column = core.team_split_2d(core.Teams.TEAM_WORLD, max(1, size // 2), core.TeamConfig(), 0, core.TeamConfig(), 0)
    assert core.team_n_pes(row) * core.team_n_pes(column) == size
    assert core.team_translate_pe(row, core.team_my_pe(row), core.Teams.TEAM_WORLD) == core.my_pe()
    core.barrier(row)
    core.barrier(column)
    torch.cuda.synchronize()


PARTS: tuple[Callable[[], None], ...] = (device_queries, sleeping, timing, puts_and_signals, teams)


def main() -> int:
    utils.initialize_distributed()
    nvshmem_shim.install(replace=True)
    failed = 0
    for part in PARTS:
        try:
            part()
            told = "right"
        except Exception as error:
            told = f"wrong on rank {dist.get_rank()}: {type(error).__name__}: {error}"
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, told)
        wrong = [told for told in everyone if told != "right"]
        failed += bool(wrong)
        if dist.get_rank() == 0:
            print(f"{part.__name__}: {wrong[0] if wrong else 'right'}", flush=True)
    utils.finalize_distributed()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
