"""Operators that ``torch.library.custom_op`` made, on simulated ranks: what they do has its place in the stream."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import triton_dist
from triton_dist.ops import all_reduce
from triton_dist.sim.python_operators import python_body


@torch.library.custom_op("triton_dist_test::sum_and_copy", mutates_args=())
def sum_and_copy(x: torch.Tensor) -> torch.Tensor:
    """A kernel, then operators of torch that need what it stores."""
    total = all_reduce(x)
    out = torch.zeros_like(x)
    out[:4].copy_(total[:4])
    return out + total.max()


@sum_and_copy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def behind_other_work() -> bool:
    right = True
    for call in range(3):
        x = torch.arange(8.0) + triton_dist.rank() + call
        total = sum(torch.arange(8.0) + rank + call for rank in range(triton_dist.world_size()))
        expected = torch.cat([total[:4], torch.zeros(4)]) + total.max()
        right = right and torch.equal(sum_and_copy(all_reduce(x) / triton_dist.world_size() * 0 + x), expected)
    return right


def test_what_a_body_does_is_in_order():
    for seed in range(3):
        assert all(triton_dist.simulate(behind_other_work, 2, seed=seed, check="race"))


def faked() -> tuple[int, ...]:
    with FakeTensorMode() as mode:
        return tuple(sum_and_copy(mode.from_tensor(torch.zeros(3, 5))).shape)


def test_fake_tensors_get_the_fake_form():
    assert triton_dist.simulate(faked, 2) == [(3, 5)] * 2


def test_which_operators_have_a_body():
    operator, x = torch.ops.triton_dist_test.sum_and_copy.default, torch.zeros(3)
    assert python_body(operator, (x,)) is not None
    assert python_body(operator, (x.to("meta"),)) is None
    assert python_body(torch.ops.aten.add.Tensor, (x, x)) is None
    assert python_body(torch.ops._c10d_functional.wait_tensor.default, (x,)) is None
