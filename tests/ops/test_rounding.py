"""Sums are rounded to an element as torch rounds, whatever the GPU's own conversion does."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_dist
from triton_dist.ops import all_reduce, reduce_scatter
from triton_dist.ops.collectives.reduction import rounded

FP8 = (torch.float8_e5m2, torch.float8_e4m3fn)


@triton_dist.jit
def round_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + offset, mask=offset < count, other=0.0)
    tl.store(out + offset, rounded(total, out.dtype.element_ty), mask=offset < count)


def of_bits(bits: torch.Tensor) -> torch.Tensor:
    return bits.to(torch.int32).view(torch.float32)


def numbers_of(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of ``dtype``, what lies halfway between two of them, the neighbours of both, and any others; infinities and NaN."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = values[values.isfinite()].abs().unique()
    finite = torch.cat([finite, finite[-1:] * 2 - finite[-2:-1]])  # the first that is too large
    exact = torch.cat([finite, (finite[1:] + finite[:-1]) / 2])
    around = torch.cat([exact, exact.nextafter(torch.tensor(torch.inf)), exact.nextafter(torch.tensor(0.0))])
    any_bits = of_bits(torch.randint(-(1 << 31), 1 << 31, (4096,), generator=torch.Generator().manual_seed(5)))
    special = torch.tensor([0.0, torch.inf, torch.nan, 1e-45, 3e38])
    return torch.cat([around, -around, special, -special, any_bits])


def as_torch(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Older versions of torch make NaN of what is too large for e4m3fn."""
    return (values if dtype == torch.float8_e5m2 else values.clamp(-448, 448)).to(dtype)


def agrees(made: torch.Tensor, truth: torch.Tensor) -> bool:
    """Bit by bit, but for the bits of a NaN."""
    both_nan = made.float().isnan() & truth.float().isnan()
    return bool((both_nan | (made.view(torch.uint8) == truth.view(torch.uint8))).all())


def body(dtype: torch.dtype) -> bool:
    x = numbers_of(dtype).to(triton_dist.device())
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    round_kernel[(triton.cdiv(len(x), 1024),)](x, out, len(x), BLOCK=1024)
    triton_dist.synchronize()
    return agrees(out.cpu(), as_torch(numbers_of(dtype), dtype))


@pytest.mark.parametrize("dtype", FP8)
def test_sums_become_fp8_as_torchs(world, dtype):
    assert world(body, 1, args=(dtype,)) == [True]


def reduced(dtype: torch.dtype, op: str) -> list[str]:
    """Infinities, and sums that are too large for the dtype."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    largest = torch.finfo(dtype).max
    everyone = [
        torch.tensor([torch.inf, -torch.inf, 1, largest, -largest, torch.nan, 0.0, 2.0] * size).to(dtype) if rank_of == 0
        else torch.tensor([1.0, 2, 2, largest, -largest, 1, 0.0, largest] * size).to(dtype)
        for rank_of in range(size)
    ]  # fmt: skip
    steps = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}
    total = everyone[0].float()
    for other in everyone[1:]:
        total = steps[op](total, other.float())
    truth, mine = as_torch(total, dtype), everyone[rank].to(triton_dist.device())
    calls = {method: (all_reduce(mine, op=op, method=method), truth) for method in ("ll", "one_shot", "two_shot")}
    part = truth.view(torch.uint8).chunk(size)[rank].view(dtype)
    calls |= {f"part {method}": (reduce_scatter(mine, op=op, method=method), part) for method in ("ll", "one_shot")}
    triton_dist.synchronize()
    return [name for name, (made, expected) in calls.items() if not agrees(made.cpu(), expected)]


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", FP8)
@pytest.mark.parametrize("world_size", [1, 3])
def test_what_is_too_large_is_not_hidden(world, world_size, dtype, op):
    assert world(reduced, world_size, args=(dtype, op)) == [[]] * world_size


@pytest.mark.parametrize(("capability", "element"), [(80, "fp8e5"), (90, "fp8e5"), (90, "fp8e4nv"), (100, "fp8e5")])
def test_it_compiles(capability, element):
    """Without a conversion to e5m2 of the GPU's, which hides infinities, or goes by way of a truncated fp16."""
    source = ASTSource(round_kernel, {"x": "*fp32", "out": f"*{element}", "count": "i32"}, {"BLOCK": 256})
    ptx = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    assert "e5m2" not in ptx and "cvt.rz.f16" not in ptx and ("satfinite.e4m3" in ptx) is (element == "fp8e4nv")
