"""How the tests compare: what is wrong anywhere shows in the largest of several errors."""

from __future__ import annotations

import math

import pytest
import torch

from tests.differences import relative_error


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_what_is_not_written_is_infinite(dtype):
    right = torch.tensor([1.0, -4.0])
    assert relative_error(right.to(dtype), right) == 0.0
    assert max([0.0, relative_error(torch.tensor([1.0, math.nan]).to(dtype), right)]) == math.inf


def test_the_unit_is_the_largest_element():
    assert relative_error(torch.tensor([1.0, -3.0]), torch.tensor([1.0, -4.0])) == 0.25
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0.0
    assert relative_error(torch.ones(2), torch.zeros(2)) == math.inf
    with pytest.raises(AssertionError, match="is not"):
        relative_error(torch.zeros(2), torch.zeros(2, 1))
