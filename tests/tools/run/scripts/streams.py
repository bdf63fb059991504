"""Streams, events, stream writes and waits, copies between peers: what a script for CUDA does with them."""

import os

import nvshmem.core
import torch
import torch.distributed as dist
from cuda.bindings import driver, runtime

from triton_dist.utils import (
    CUDA_CHECK,
    NVSHMEM_SIGNAL_DTYPE,
    finalize_distributed,
    initialize_distributed,
    nvshmem_barrier_all_on_stream,
    nvshmem_create_tensors,
)

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
group = initialize_distributed()
assert torch.cuda.is_available() and torch.cuda.device_count() == world_size and torch.cuda.current_device() == rank
assert torch.cuda.get_device_capability() == (9, 0) and torch.cuda.get_device_properties(rank).multi_processor_count == 132

# A pull by the copy engine on a side stream, a flag behind each shard, and a consumer that waits for the flags in its own stream.
shard = torch.full((1000,), float(rank), device="cuda")
buffers = nvshmem_create_tensors((world_size, 1000), torch.float32, rank, world_size)
flags = nvshmem_create_tensors((world_size,), NVSHMEM_SIGNAL_DTYPE, rank, world_size)
buffers[rank][rank].copy_(shard)
flags[rank].zero_()
nvshmem_barrier_all_on_stream(torch.cuda.current_stream())
copies, consumer = torch.cuda.Stream(priority=-1), torch.cuda.Stream()
copies.wait_stream(torch.cuda.current_stream())
consumer.wait_stream(torch.cuda.current_stream())
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record(copies)
for step in range(1, world_size):
    peer = (rank + step) % world_size
    (err, *_) = runtime.cudaMemcpyAsync(
        buffers[rank][peer].data_ptr(),
        buffers[peer][peer].data_ptr(),
        buffers[peer][peer].nbytes,
        runtime.cudaMemcpyKind.cudaMemcpyDefault,
        copies.cuda_stream,
    )
    CUDA_CHECK(err)
    (err,) = driver.cuStreamWriteValue64(copies.cuda_stream, flags[rank][peer].data_ptr(), 7, 0)
    CUDA_CHECK(err)
end.record(copies)
with torch.cuda.stream(consumer):
    assert torch.cuda.current_stream() == consumer
    for peer in range(world_size):
        if peer != rank:
            CUDA_CHECK(driver.cuStreamWaitValue64(consumer.cuda_stream, flags[rank][peer].data_ptr(), 7, 0))
    total = buffers[rank].sum(1)
consumer.synchronize()
assert total.tolist() == [1000.0 * peer for peer in range(world_size)], total
end.synchronize()
assert end.query() and begin.elapsed_time(end) > 0
assert torch.cuda.current_stream() == torch.cuda.default_stream()

# Host and device tensors are told apart.
on_host = torch.arange(4)
assert not on_host.is_cuda and on_host.device.type == "cpu" and on_host.cuda().is_cuda
assert shard.is_cuda and shard.device == torch.device("cuda", rank) and (shard + 1).is_cuda and shard[3].is_cuda
assert not shard.cpu().is_cuda and not shard.to("cpu").is_cuda and on_host.to(shard).is_cuda and not shard.to(on_host).is_cuda
pinned = torch.empty(4, pin_memory=True).pin_memory()
assert pinned.is_pinned() and not pinned.is_cuda
moved = pinned.to("cuda", non_blocking=True)
moved.fill_(1)
assert moved.get_device() == rank and pinned.data_ptr() != moved.data_ptr()
with torch.device("cuda"):
    assert torch.zeros(2).is_cuda
layer = torch.nn.Linear(8, 8).cuda()
out = layer(torch.randn(2, 8, device="cuda"))
out.sum().backward()
assert out.is_cuda and layer.weight.grad.is_cuda

# The host's puts and signals.
inbox = nvshmem.core.tensor((world_size, 4), torch.int32)
signal = nvshmem.core.tensor((1,), torch.int64)
inbox.zero_(), signal.zero_()
nvshmem.core.barrier(nvshmem.core.Teams.TEAM_WORLD, stream=torch.cuda.current_stream())
mine = torch.full((4,), rank + 1, dtype=torch.int32, device="cuda")
for peer in range(world_size):
    nvshmem.core.put_signal(inbox[rank], mine, signal, 1, nvshmem.core.SignalOp.SIGNAL_ADD, peer, torch.cuda.current_stream())
nvshmem.core.signal_wait(signal, world_size, nvshmem.core.ComparisonType.CMP_GE)
assert inbox[:, 0].tolist() == list(range(1, world_size + 1))
row, column = nvshmem.core.team_split_2d(nvshmem.core.Teams.TEAM_WORLD, world_size, nvshmem.core.TeamConfig(), 0, None, 0)
assert (nvshmem.core.team_my_pe(row), nvshmem.core.team_n_pes(column)) == (rank, 1)
assert nvshmem.bindings.team_translate_pe(column, 0, nvshmem.core.Teams.TEAM_WORLD) == rank
dist.barrier(group)
print(f"rank {rank} is done")
finalize_distributed()
