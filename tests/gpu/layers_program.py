"""Layers in CUDA graphs, under ``torch.compile``, over meshes of GPUs and in training; prints ``name: right`` for each part on rank 0.

``torchrun --nproc-per-node 2 tests/gpu/layers_program.py`` runs all parts, or those that are named as arguments; two ranks or more.
``triton-dist run --ranks 2 tests/gpu/layers_program.py`` runs them on simulated ranks. It ends after ``LIMIT`` seconds whatever happens.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2]))

import triton_dist
from tests.differences import relative_error
from tests.gpu.parts import run_parts
from tests.layers.references import attention_reference, attention_state, leaf, mlp_reference, mlp_state
from triton_dist.layers import TPMLP, TPAttention
from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs

LIMIT = 540
BOUND = 150.0
"""Seconds of a wait: a rank may wait for what another one still compiles."""
HIDDEN, INNER, HEADS, HEAD = 128, 384, 8, 32
ROWS = 24
"""Of each rank."""
NEAR = 4e-2
"""Largest relative error of bf16 layers: each of their steps rounds."""
simulated = threading.current_thread() is not threading.main_thread()
"""``triton-dist run`` has started this program: its ranks are threads."""


def wide(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.double() for name, value in state.items()}


def make_mlp(**options) -> tuple[TPMLP, dict[str, torch.Tensor]]:
    layer = TPMLP(HIDDEN, INNER, dtype=torch.bfloat16, bias=True, **options)
    state = mlp_state(HIDDEN, INNER, True, True, torch.bfloat16)
    layer.load_full_state(state)
    return layer, wide(state)


def make_attention(**options) -> tuple[TPAttention, dict[str, torch.Tensor]]:
    size = triton_dist.world_size()
    layer = TPAttention(HIDDEN, HEADS, size, head_dim=HEAD, dtype=torch.bfloat16, rope_theta=1e4, **options)
    state = attention_state(HIDDEN, HEADS, size, HEAD, False, torch.bfloat16)
    layer.load_full_state(state)
    return layer, wide(state)


def close(out: torch.Tensor, expected: torch.Tensor, what: str) -> bool:
    error = relative_error(out, expected)
    if not error < NEAR:
        print(f"rank {triton_dist.rank()}: {what}: relative error {error:.3g}", flush=True)
    return error < NEAR


def mlp_in_a_graph() -> bool:
    """Both forms in one graph, replayed with other rows."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    layer, state = make_mlp()
    every = torch.zeros(size * ROWS, HIDDEN, dtype=torch.bfloat16, device="cuda")
    stream, graph, right = torch.cuda.Stream(), torch.cuda.CUDAGraph(), True
    own = slice(rank * ROWS, (rank + 1) * ROWS)
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            layer(every[own])
            layer(every, sequence_parallel=False)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            scattered = layer(every[own])
            replicated = layer(every, sequence_parallel=False)
        for call in range(4):
            x = leaf(call, size * ROWS, HIDDEN, dtype=torch.bfloat16)
            every.copy_(x)
            graph.replay()
            torch.cuda.synchronize()
            expected = mlp_reference(x.double(), state, "silu", True)
            right &= close(scattered, expected[own], "scattered") and close(replicated, expected, "replicated")
    return right


def decoding_in_a_graph() -> bool:
    """A prefill, then one token a replay: each replay goes on where the one before has ended."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    layer, state = make_attention()
    cache = layer.make_cache(2, size * 8 + 6, static=True)
    whole = leaf(1, size * 8 + 6, 2, HIDDEN, dtype=torch.bfloat16)
    expected = attention_reference(whole.double(), state, HEAD, True, 1e4)
    token = torch.zeros(1, 2, HIDDEN, dtype=torch.bfloat16, device="cuda")
    stream, graph, right = torch.cuda.Stream(), torch.cuda.CUDAGraph(), True
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            layer(token, cache=cache, sequence_parallel=False)
            cache.reset()
            first = layer(whole[rank * 8 : rank * 8 + 8].cuda(), cache=cache)
        torch.cuda.synchronize()
        right &= close(first, expected[rank * 8 : rank * 8 + 8], "prefill")
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            out = layer(token, cache=cache, sequence_parallel=False)
        torch.cuda.synchronize()
        for position in range(size * 8, size * 8 + 6):
            token.copy_(whole[position : position + 1])
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            right &= close(out, expected[position : position + 1], f"token {position}")
    return right


def calls_again() -> bool:
    """The same addresses with other values: calls are replayed by the operators. Prints the host's time a call."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    layer, state = make_mlp()
    x, out = (torch.zeros(ROWS, HIDDEN, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    own, right = slice(rank * ROWS, (rank + 1) * ROWS), True
    with torch.no_grad():
        for call in range(6):
            every = leaf(call, size * ROWS, HIDDEN, dtype=torch.bfloat16)
            x.copy_(every[own])
            layer(x, out=out)
            torch.cuda.synchronize()
            right &= close(out, mlp_reference(every.double(), state, "silu", True)[own], f"call {call}")
        begun, calls = time.perf_counter(), 2 if simulated else 200
        for _ in range(calls):
            layer(x, out=out)
        took = time.perf_counter() - begun
        torch.cuda.synchronize()
    if rank == 0:
        print(f"  a call of TPMLP takes the host {took / calls * 1e6:.0f} us", flush=True)
    return right


def compiled_layers() -> bool:
    """Inductor's graphs against the layers as they are: results and gradients."""
    right = True
    for make in (make_mlp, make_attention):
        for form in (True, False):
            layer, _ = make(sequence_parallel=form, group=dist.group.WORLD)
            x = leaf(triton_dist.rank() if form else 0, ROWS, HIDDEN, dtype=torch.bfloat16).cuda().requires_grad_()
            plain = layer(x)
            plain.float().square().sum().backward()
            expected = [x.grad.clone(), *[parameter.grad.clone() for parameter in layer.parameters()]]
            x.grad = None
            layer.zero_grad()
            out = torch.compile(layer, fullgraph=True)(x)
            out.float().square().sum().backward()
            found = [x.grad, *[parameter.grad for parameter in layer.parameters()]]
            what = f"{type(layer).__name__}, {'scattered' if form else 'replicated'}"
            right &= close(out, plain.detach().cpu().double(), what)
            right &= all(close(a, b.cpu().double(), f"{what}, gradient {i}") for i, (a, b) in enumerate(zip(found, expected, strict=True)))
            torch.cuda.synchronize()
    return right


def mesh_of_gpus() -> bool:
    """Layers and the library's methods over a mesh, by all of its names."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    mesh = dist.init_device_mesh("cuda", (1, size), mesh_dim_names=("data", "tensor"))
    line = mesh["tensor"]
    every = leaf(3, size * ROWS, HIDDEN, dtype=torch.bfloat16)
    own, right = slice(rank * ROWS, (rank + 1) * ROWS), True
    for group in (line, (mesh, "tensor"), line.get_group()):
        layer, state = make_mlp(group=group)
        with torch.no_grad():
            right &= close(layer(every[own].cuda()), mlp_reference(every.double(), state, "silu", True)[own], "TPMLP")
        a, b = every.cuda(), leaf(4, HIDDEN, 64, dtype=torch.bfloat16).cuda()
        total = size * (every.double() @ b.cpu().double())
        right &= close(gemm_rs(a, b, group=group, method="library"), total[own], "gemm_rs by the library")
        right &= close(gemm_ar(a, b, group=group, method="library"), total, "gemm_ar by the library")
        right &= close(ag_gemm(a[own], b, group=group, method="nccl"), total / size, "ag_gemm by the library")
    return right


def training() -> bool:
    """An attention and an MLP, some steps of SGD: the losses are those of the full layers."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    attention = TPAttention(HIDDEN, HEADS, size, head_dim=HEAD, bias=True)
    mlp = TPMLP(HIDDEN, INNER, bias=True)
    states = [attention_state(HIDDEN, HEADS, size, HEAD, True, torch.float32), mlp_state(HIDDEN, INNER, True, True, torch.float32)]
    states = [{name: value / 4 for name, value in state.items()} for state in states]
    attention.load_full_state(states[0])
    mlp.load_full_state(states[1])
    full = [{name: value.double().requires_grad_() for name, value in state.items()} for state in states]
    every, target = leaf(5, size * ROWS, HIDDEN), leaf(6, size * ROWS, HIDDEN)
    own = slice(rank * ROWS, (rank + 1) * ROWS)
    x, wanted = every[own].cuda(), target[own].cuda()
    optimizer = torch.optim.SGD([*attention.parameters(), *mlp.parameters()], lr=0.05)
    worst = 0.0
    for _ in range(3):
        hidden = x + attention(x)
        loss = (hidden + mlp(hidden) - wanted).square().sum() / every.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        inner = every.double() + attention_reference(every.double(), full[0], HEAD, True, None)
        expected = (inner + mlp_reference(inner, full[1], "silu", True) - target.double()).square().mean()
        parameters = [*full[0].values(), *full[1].values()]
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(expected, parameters), strict=True):
                parameter -= 0.05 * gradient
        worst = max(worst, abs(total.item() / expected.item() - 1))
    if not worst < 1e-3:
        print(f"rank {rank}: a loss differs by {worst:.3g} of itself", flush=True)
    return worst < 1e-3


PARTS = [mlp_in_a_graph, decoding_in_a_graph, calls_again, mesh_of_gpus, training, compiled_layers]


def main() -> int:
    if not simulated:
        signal.alarm(LIMIT)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=BOUND))
    triton_dist.initialize(wait_timeout=BOUND)
    if simulated:  # whose graphs take no operator of which they do not know the results' shapes
        torch.backends.cuda.enable_flash_sdp(False)
    return run_parts([part for part in PARTS if not (simulated and part is compiled_layers)], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
