"""A CUDA graph of kernels, torch operators, a side stream and a barrier of all ranks, replayed with new inputs."""

import os

import torch
import triton
import triton.language as tl

import triton_dist.language as dl
from triton_dist.utils import initialize_distributed, nvshmem_barrier_all_on_stream, nvshmem_create_tensor


@triton.jit
def push_kernel(inbox, values, SIZE: tl.constexpr):
    offsets = tl.arange(0, SIZE)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox, peer) + offsets, tl.load(values + offsets))


rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
initialize_distributed()
inbox = nvshmem_create_tensor((64,), torch.float32)
values, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")


def step():
    push_kernel[(1,)](inbox, values, 64)
    nvshmem_barrier_all_on_stream(torch.cuda.current_stream())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled = inbox * 2
    torch.cuda.current_stream().wait_stream(side)
    out.copy_(doubled + 1)
    nvshmem_barrier_all_on_stream(torch.cuda.current_stream())


stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    step()  # memory of a barrier belongs to its stream, so it is made before the capture
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
assert not torch.cuda.is_current_stream_capturing()
with torch.cuda.graph(graph, stream=stream):
    assert torch.cuda.is_current_stream_capturing()
    step()
out.zero_()
torch.cuda.synchronize()
assert out.sum().item() == 0, "capturing runs nothing"
for number in range(1, 4):
    values.fill_(number * 10 + rank)
    graph.replay()
    expected = 2 * (number * 10 + (rank - 1) % world_size) + 1
    assert out.tolist() == [expected] * 64, (number, out[0].item(), expected)
print(f"rank {rank}: three replays")
