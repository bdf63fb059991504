"""The Inductor pass on GPUs; started by torchrun, prints ``name: right`` for each part on rank 0.

``torchrun --nproc-per-node 2 tests/gpu/inductor_program.py`` runs all parts, or those that are named as arguments. Each compiles functions
of torch's collectives with the pass and compares them with the same in eager torch; the graphs have to hold this package's operators.
``times`` prints how long a call takes without the pass and with it. It ends after ``LIMIT`` seconds whatever happens.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch._inductor.config as inductor_config
import torch.distributed as dist
from torch import nn
from torch._inductor.utils import run_and_get_code

sys.path.insert(0, str(Path(__file__).parents[2]))

import triton_dist
from tests.gpu.parts import run_parts
from tests.ops.inductor import models
from triton_dist.ops import inductor_pass

LIMIT = 420
BOUND = 60.0
FP8 = torch.float8_e4m3fn


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, shared: bool = False) -> list[torch.Tensor]:
    """Of this rank, or the same on all ranks; small enough for sums over ranks."""
    generator = torch.Generator().manual_seed(0 if shared else 1 + triton_dist.rank())
    return [(torch.randn(shape, generator=generator) / shape[-1] ** 0.5).to(triton_dist.device(), dtype) for shape in shapes]


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-2) -> bool:
    error = ((found.float() - expected.float()).abs().max() / expected.float().abs().max().clamp(min=1e-9)).item()
    if error >= tolerance or found.shape != expected.shape:
        print(f"rank {triton_dist.rank()}: {tuple(found.shape)}, relative error {error:.3g}", flush=True)
    return error < tolerance and found.shape == expected.shape


def agrees(function: Callable, operators: Sequence[str], *inputs: torch.Tensor, **options: object) -> bool:
    """Whether a compiled function gives what the eager one gives, twice, and its code calls the operators, and no collective of torch."""
    torch._dynamo.reset()
    with torch.no_grad(), inductor_pass() as used:
        compiled = torch.compile(function, fullgraph=True, **options)  # type: ignore[call-overload]
        out, codes = run_and_get_code(compiled, *inputs)
        again = compiled(*inputs)
        expected = function(*inputs)
    called = codes[0].split("def call(")[1]
    right = all(f"triton_dist.{name}.default(" in called for name in operators) and "_c10d_functional." not in called
    if not right or [entry.operator for entry in used.report] != list(operators):
        print(f"rank {triton_dist.rank()}, {getattr(function, '__name__', function)}:\n{used.report}", flush=True)
        return False
    pairs = [(out, expected), (again, expected)] if isinstance(out, torch.Tensor) else [*zip(out, expected, strict=True)]
    return all(close(*pair) for pair in pairs)


def rows() -> bool:
    x, w, bias = tensors((256, 512), (384, 512), (384,))
    return agrees(models.gathered_linear, ["ag_gemm"], x, w, bias) and agrees(models.scattered_product, ["gemm_rs"], x, w.t().contiguous())


def sequences() -> bool:
    """A batch of sequences, which is gathered and scattered along its second dimension."""
    for batch in (1, 2):
        x, w = tensors((batch, 128, 512), (384, 512))
        if not agrees(models.gathered_sequence, ["ag_gemm"], x, w) or not agrees(models.scattered_sequence, ["gemm_rs"], x, w):
            return False
    return True


def several_products() -> bool:
    x, q, k, v = tensors((256, 512), (512, 512), (128, 512), (128, 512))
    return agrees(models.projections, ["ag_gemm_gathered"], x, q, k, v)


def whole_block() -> bool:
    x, gate, up, down = tensors((2, 128, 512), (768, 512), (768, 512), (512, 768))
    return agrees(models.block, ["ag_gemm_gathered", "gemm_rs"], x, gate, up, down)


def reduced() -> bool:
    """Few rows, as in decoding, and many."""
    return all(agrees(models.reduced_product, ["gemm_ar"], *tensors((count, 512), (512, 1024))) for count in (1, 8, 1024))


def number_formats() -> bool:
    """fp32 and fp16, and fp8 with a scale for each tensor."""
    for dtype in (torch.float32, torch.float16):
        x, w = tensors((128, 256), (256, 128), dtype=dtype)
        if not agrees(models.gathered_product, ["ag_gemm"], x, w):
            return False

    def fp8(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        gathered = models.gather(a.view(torch.uint8)).view(FP8)
        return torch._scaled_mm(gathered, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    a, b = [each.to(FP8) for each in tensors((128, 256), (128, 256))]
    scales = [torch.tensor(value, device=a.device) for value in (0.5 + triton_dist.rank(), 2.0)]
    return agrees(fp8, ["ag_gemm"], a, b, *scales)


def symbols() -> bool:
    """One graph for any number of rows."""
    torch._dynamo.reset()
    (up, down) = tensors((512, 384), (384, 512))
    with torch.no_grad(), inductor_pass() as used:
        compiled = torch.compile(models.mlp, dynamic=True, fullgraph=True)
        right = True
        for count in (64, 96, 200, 1024):
            (x,) = tensors((count, 512))
            right = close(compiled(x, up, down), models.mlp(x, up, down)) and right
    return right and used.graphs <= 2 and len(used.report.matched) == 2 * used.graphs


def training() -> bool:
    """Forward and backward: results and all gradients."""
    torch._dynamo.reset()
    found = []
    with inductor_pass() as used:
        for function in (models.mlp, torch.compile(models.mlp, fullgraph=True)):
            leaves = [each.requires_grad_() for each in tensors((256, 512), (512, 768), (768, 512))]
            out = function(*leaves)
            (out.float() * torch.linspace(-1, 1, out.shape[1], device=out.device)).sum().backward()
            found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    expected = ["ag_gemm_gathered", "gemm_rs", "ag_gemm_gathered", "gemm_rs"]
    if [entry.operator for entry in used.report] != expected:
        print(f"rank {triton_dist.rank()}:\n{used.report}", flush=True)
        return False
    return all(close(compiled, eager, 4e-2) for eager, compiled in zip(*found, strict=True))


def parallel_modules() -> bool:
    """DTensor's plan for a block with biases: sequence parallel, and with an all-reduce."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    size, device = triton_dist.world_size(), triton_dist.device()
    mesh = init_device_mesh(device.type, (size,))
    for sequence, operators in ((True, {"ag_gemm", "ag_gemm_gathered", "gemm_rs"}), (False, {"gemm_ar"})):
        torch._dynamo.reset()
        torch.manual_seed(0)
        up, down = nn.Linear(512, 768), nn.Linear(768, 512)
        module = nn.Sequential(up, nn.ReLU(), down).to(device, torch.bfloat16)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        if sequence:
            plan = {"0": ColwiseParallel(input_layouts=Shard(1)), "2": RowwiseParallel(output_layouts=Shard(1))}
        module = parallelize_module(module, mesh, plan)
        (x,) = tensors((2, 64, 512), shared=not sequence)
        with torch.no_grad(), inductor_pass() as used:
            out, expected = torch.compile(module)(x), module(x)
        if used.report.skipped or not {entry.operator for entry in used.report} <= operators or not used.report.matched:
            print(f"rank {triton_dist.rank()}, sequence={sequence}:\n{used.report}", flush=True)
            return False
        if not close(out, expected):
            return False
    return True


def left_alone() -> bool:
    """A maximum over the ranks, and a gather by columns, are torch's still."""
    torch._dynamo.reset()

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return models.reduce(x @ w, "max"), models.gather(x, 1) @ torch.cat([w] * triton_dist.world_size())

    x, w = tensors((64, 128), (128, 64))
    with torch.no_grad(), inductor_pass() as used:
        found, expected = torch.compile(function)(x, w), function(x, w)
    return not used.report.matched and len(used.report) == 2 and all(close(*pair) for pair in zip(found, expected, strict=True))


def captured() -> bool:
    """The compiled function in a CUDA graph, replayed with other inputs."""
    torch._dynamo.reset()
    x, up, down = tensors((256, 512), (512, 768), (768, 512))
    stream = torch.cuda.Stream()
    with torch.no_grad(), inductor_pass():
        compiled = torch.compile(models.mlp, fullgraph=True)
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(x, up, down)
            torch.cuda.synchronize()
            dist.barrier()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                out = compiled(x, up, down)
            right = True
            for _ in range(3):
                x.mul_(-1.5)
                graph.replay()
                torch.cuda.synchronize()
                dist.barrier()
                right = close(out, models.mlp(x, up, down)) and right
    return right


def times() -> bool:
    """Prints, of an MLP of 4096 rows in eager order, the time a call takes without and with the pass; right if both give the same."""
    size = triton_dist.world_size()
    x, up, down = tensors((4096 // size, 8192), (8192, 28672 // size), (28672 // size, 8192))

    def milliseconds(function: Callable) -> float:
        for _ in range(5):
            function(x, up, down)
        torch.cuda.synchronize()
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            function(x, up, down)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 20

    with torch.no_grad():
        torch._dynamo.reset()
        plain = torch.compile(models.mlp, fullgraph=True)
        without, expected = milliseconds(plain), plain(x, up, down)
        torch._dynamo.reset()
        with inductor_pass():
            ours = torch.compile(models.mlp, fullgraph=True)
            with_pass, out = milliseconds(ours), ours(x, up, down)
    if triton_dist.rank() == 0:
        print(f"  MLP of 4096 x 8192 x 28672: {without:.3f} ms without the pass, {with_pass:.3f} ms with it", flush=True)
    return close(out, expected)


PARTS = [
    rows, sequences, several_products, whole_block, reduced, number_formats, symbols, training, parallel_modules, left_alone, captured,
    times,
]  # fmt: skip


def main() -> int:
    signal.alarm(LIMIT)
    warnings.filterwarnings("ignore", category=FutureWarning)  # newer torch has new names for collectives
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    triton_dist.initialize(wait_timeout=BOUND)
    inductor_config.force_disable_caches = True
    return run_parts(PARTS, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
