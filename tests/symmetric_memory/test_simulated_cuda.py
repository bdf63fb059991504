"""Code for CUDA in a test: ``simulated_cuda``."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from triton_dist.tools.run.simulated import simulated_cuda


def host_function():
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    buffer = symm_mem.empty(64, dtype=torch.bfloat16, device=device).fill_(rank + 1)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    assert handle.device == buffer.device == device and handle.get_buffer(0, (1,), torch.int16).is_cuda
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        handle.barrier(channel=1)
        total = torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", dist.group.WORLD.group_name)
    torch.cuda.current_stream().wait_stream(side)
    workspace = symm_mem.get_symm_mem_workspace(dist.group.WORLD.group_name, 1024)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        workspace.barrier()
        torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", dist.group.WORLD.group_name)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    return total.tolist(), buffer.tolist(), world_size


def test_streams_graphs_and_devices():
    before = torch.cuda.is_available()
    with simulated_cuda() as simulate:
        results = simulate(host_function, 2, check="all")
    assert torch.cuda.is_available() is before
    assert results == [([3.0] * 64, [6.0] * 64, 2)] * 2
