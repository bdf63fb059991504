"""Aggregates and annotated arguments.

Triton needs the annotations themselves here, not their text: so no ``from __future__ import annotations``.
"""

import torch
import triton
import triton.language as tl


@tl.core._aggregate
class Accumulator:
    total: tl.tensor
    count: tl.tensor

    @triton.constexpr_function
    def __init__(self, total, count):
        self.total = total
        self.count = count

    @triton.jit
    def add(self, value):
        return Accumulator(self.total + value, self.count + 1)

    @triton.jit
    def mean(self):
        return self.total / self.count


@triton.jit
def aggregate_kernel(out, x, count, N: tl.constexpr):
    offsets = tl.arange(0, N)
    state = Accumulator(tl.zeros((N,), tl.float32), tl.program_id(0) * 0)
    for index in range(count):
        state = state.add(tl.load(x + index * N + offsets))
    tl.store(out + offsets, state.mean())


def test_aggregates_carried_by_a_loop():
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(8)
    aggregate_kernel[(1,)](out, x, 5, 8)
    torch.testing.assert_close(out, x.mean(0))


@triton.jit
def annotated_kernel(out, small: "i8", wide: tl.int64, number: "fp64"):  # noqa: F821  (Triton reads the annotation's text)
    tl.store(out, small + 1)
    tl.store(out + 1, wide * 2)
    tl.store(out + 2, (number * 8).to(tl.int64))


def test_annotated_arguments_have_the_width_asked_for():
    out = torch.zeros(3, dtype=torch.int64)
    annotated_kernel[(1,)](out, 127, 2**31 - 1, 0.1)
    assert out.tolist() == [-128, 2**32 - 2, 0]
