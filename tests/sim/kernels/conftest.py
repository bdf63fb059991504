"""What the kernel tests share: random operands, and an allocator for descriptors made in kernels."""

from __future__ import annotations

import importlib.metadata

import pytest
import torch
import triton

import triton_dist  # noqa: F401  (its import makes the simulator the active driver)


@pytest.fixture
def randn():
    """``randn(shape, dtype, seed)``: the same numbers on every machine."""

    def make(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)

    return make


@pytest.fixture(autouse=True)
def scratch_allocator():
    """A GPU needs scratch memory for descriptors that a kernel makes."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))


@pytest.fixture
def triton_version() -> tuple[int, int]:
    """Major and minor version of the installed Triton."""
    major, minor = importlib.metadata.version("triton").split(".")[:2]
    return int(major), int(minor)
