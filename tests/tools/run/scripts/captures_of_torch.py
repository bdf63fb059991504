"""Operators in CUDA graphs as torch's own pages make them: warmed up on a side stream, captured on a stream that torch chooses."""

import torch

import triton_dist
from triton_dist.layers import TPMLP
from triton_dist.ops import ag_gemm, all_gather, all_reduce, gemm_rs

triton_dist.initialize()
rank, size = triton_dist.rank(), triton_dist.world_size()
x, b = torch.zeros(8, 32, device="cuda"), torch.ones(32, 32, device="cuda")
layer = TPMLP(32, 64, sequence_parallel=False)


def step():
    small = all_reduce(x, method="ll")
    staged = all_reduce(x, method="one_shot")
    gathered = all_gather(x, method="one_shot")
    product = gemm_rs(ag_gemm(x, b), b)
    return small, staged, gathered, product, layer(x)


def expected(number):
    everyone = [torch.full((8, 32), number + other + 1.0, device="cuda") for other in range(size)]
    total = sum(everyone)
    product = 32 * 32 * size * everyone[rank]
    return total, total, torch.cat(everyone), product


with torch.no_grad():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    for number in range(4):
        x.fill_(number + rank + 1.0)
        graph.replay()
        torch.cuda.synchronize()
        for tensor, truth in zip(made, expected(number), strict=False):
            assert torch.equal(tensor, truth), (number, tensor, truth)
        if number == 2:  # between replays, on the stream whose memory the graph has
            with torch.cuda.stream(side):
                for tensor, truth in zip(step(), expected(number), strict=False):
                    torch.cuda.synchronize()
                    assert torch.equal(tensor, truth)
        eager = layer(x)
        torch.cuda.synchronize()
        assert torch.allclose(made[4], eager, rtol=1e-4, atol=1e-4)
print(f"rank {rank}: four replays")
