"""Comparisons that test scripts import."""

import pytest
import torch

from triton_dist.errors import TensorMismatchError
from triton_dist.test.utils import assert_allclose, assert_bitwise_equal, bitwise_equal


def test_close_tensors(capsys):
    x = torch.tensor([1.0, 2.0])
    assert_allclose(x, x + 1e-4, rtol=1e-3, atol=0)
    assert capsys.readouterr().out == "all close: [2], rtol=0.001, atol=0\n"
    assert_allclose(x, x, rtol=0, atol=0, verbose=False)
    assert_allclose(torch.tensor([1, 2]), torch.tensor([1, 2]), rtol=0, atol=0, verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_where_they_differ(dtype):
    x = torch.zeros(3, 4, dtype=dtype)
    y = x.clone()
    y[1, 2] = 8
    with pytest.raises(
        TensorMismatchError, match=r"(?s)1 of 12 elements differ \(rtol=0, atol=0.1\).*at \[1, 2\]: 0.* and 8.*difference 8"
    ):
        assert_allclose(x, y, rtol=0, atol=0.1)


@pytest.mark.parametrize("value, word, allow", [(float("nan"), "NaN", "allow_nan"), (float("inf"), "infinite", "allow_inf")])
def test_special_values_are_refused_unless_allowed(value, word, allow):
    x = torch.tensor([1.0, value])
    with pytest.raises(TensorMismatchError, match=rf"x has 1 elements that are {word}, the first at \[1\]"):
        assert_allclose(x, x, rtol=0, atol=0)
    assert_allclose(x, x, rtol=0, atol=0, verbose=False, **{allow: True})


def test_other_shapes_and_small_data_are_refused():
    with pytest.raises(TensorMismatchError, match="shapes differ"):
        assert_allclose(torch.zeros(2), torch.zeros(1, 2), rtol=0, atol=0)
    small = torch.full((4,), 1e-3)
    assert_allclose(small, small, rtol=0, atol=1e-3, verbose=False)
    with pytest.raises(TensorMismatchError, match="mean magnitude of x"):
        assert_allclose(small, small, rtol=0, atol=1e-3, fail_if_too_small=True)


def test_bits():
    zero, minus = torch.zeros(3), -torch.zeros(3)
    nan = torch.full((2, 2), float("nan"), dtype=torch.bfloat16)
    assert bitwise_equal(nan, nan.clone()) and bitwise_equal(nan.t(), nan)
    assert not bitwise_equal(zero, minus) and not bitwise_equal(zero, zero.to(torch.int32)) and not bitwise_equal(zero, zero[:2])
    assert_bitwise_equal(nan, nan, verbose=False)
    with pytest.raises(TensorMismatchError, match=r"3 of 3 elements differ \(bit by bit\)"):
        assert_bitwise_equal(zero, minus)
    with pytest.raises(TensorMismatchError, match="torch.int32"):
        assert_bitwise_equal(zero, zero.to(torch.int32))
