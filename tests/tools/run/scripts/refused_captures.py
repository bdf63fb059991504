"""What a CUDA graph can't record is refused here as on GPUs: ranks that meet, memory that is made, lengths that the host counts."""

import torch

import triton_dist
from triton_dist.errors import CaptureError
from triton_dist.layers import TPAttention
from triton_dist.ops import all_reduce, gemm_ar

triton_dist.initialize()
rank = triton_dist.rank()
stream = torch.cuda.Stream()
x, b = torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
kept = triton_dist.symm_zeros((4,), torch.float32)
layer = TPAttention(16, 4, sequence_parallel=False)
cache, token = layer.make_cache(1, 8), torch.ones(1, 1, 16, device="cuda")

with torch.no_grad(), torch.cuda.stream(stream):
    layer(token, cache=layer.make_cache(1, 8))
    all_reduce(x[0], method="one_shot")
    torch.cuda.synchronize()

CALLS = [
    lambda: gemm_ar(x, b, method="split"),  # the first call on the stream
    lambda: all_reduce(x.repeat(64, 1), method="one_shot"),  # more than its memory is for
    lambda: triton_dist.symm_zeros((4,), torch.float32),
    lambda: triton_dist.symm_free(kept),
    lambda: layer(token, cache=cache),
]
refused = 0
for call in CALLS:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, stream=stream):
            call()
    except CaptureError:
        refused += 1
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    out = all_reduce(x[0], method="one_shot")
for _ in range(2):
    graph.replay()
torch.cuda.synchronize()
assert bool((out == 2).all())
print(f"rank {rank}: {refused} refused")
