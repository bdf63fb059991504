"""A launch uses the memory that its tensors had then, as on a GPU, whose allocator gives it to nobody before the kernel ends."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.errors import UseAfterFreeError
from triton_dist.ops import all_reduce


@triton.jit
def double_kernel(x, out, N: tl.constexpr):
    offset = tl.arange(0, N)
    tl.store(out + offset, tl.load(x + offset) * 2)


def other_memory(tensor):
    tensor.data = torch.zeros(3)


def other_storage(tensor):
    tensor.set_(torch.zeros(3))


@pytest.mark.parametrize("change", [other_memory, other_storage])
@pytest.mark.parametrize("call", ["kernel", "operator"])
def test_a_tensor_that_gets_other_memory(change, call):
    def body():
        x, out = torch.ones(64), torch.empty(64)
        if call == "kernel":
            double_kernel[(1,)](x, out, 64)
        else:
            all_reduce(x, out=out)
        change(x)
        triton_dist.synchronize()
        return out[5].item()

    assert triton_dist.simulate(body, world_size=2) == [2.0] * 2


@triton.jit
def address_kernel(addresses, out, N: tl.constexpr):
    offset = tl.arange(0, N)
    tl.store(out + offset, tl.load(tl.load(addresses).to(tl.pointer_type(tl.float32)) + offset))


def test_memory_that_a_kernel_only_knows_by_a_number_may_be_gone():
    def body():
        x, out = torch.ones(64), torch.empty(64)
        addresses = torch.tensor([x.data_ptr()])
        address_kernel[(1,)](addresses, out, 64)
        del x
        triton_dist.synchronize()

    with pytest.raises(UseAfterFreeError):
        triton_dist.simulate(body, world_size=1)
