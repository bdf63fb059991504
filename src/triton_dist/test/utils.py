"""Comparisons of tensors for test scripts."""

from __future__ import annotations

import torch

from ..errors import TensorMismatchError

LAYER_CONFIGS = {
    "LLaMA-7B": {"N": 11008, "K": 4096},
    "LLaMA-3.1-8B": {"N": 14336, "K": 4096},
    "LLaMA-3.1-70B": {"N": 28672, "K": 8192},
    "LLaMA-3.1-405B": {"N": 53248, "K": 16384},
    "Mistral-7B": {"N": 14336, "K": 4096},
    "Qwen2-72B": {"N": 29568, "K": 8192},
    "GPT-3-175B": {"N": 49152, "K": 12288},
}
"""Columns and depth of the first MLP product of known models."""

_SHOWN = 5
"""Differences that an error lists."""


def assert_allclose(
    x: torch.Tensor,
    y: torch.Tensor,
    rtol: float,
    atol: float,
    verbose: bool = True,
    allow_nan: bool = False,
    allow_inf: bool = False,
    fail_if_too_small: bool = False,
) -> None:
    """Raise TensorMismatchError, listing where, unless ``|x - y| <= atol + rtol |y|`` everywhere.

    allow_nan, allow_inf: whether there may be any. fail_if_too_small: also refuse tensors whose mean magnitude is below ``5 atol``, which
    any other small tensor would equal. verbose: print a line when all is well.
    """
    if x.shape != y.shape:
        raise TensorMismatchError(f"shapes differ: {list(x.shape)} and {list(y.shape)}")
    for name, tensor in (("x", x), ("y", y)):
        if tensor.is_floating_point():
            _check_special("NaN", name, torch.isnan(tensor.float()), allow_nan)
            _check_special("infinite", name, torch.isinf(tensor.float()), allow_inf)
        mean = float(tensor.float().abs().mean()) if fail_if_too_small and tensor.numel() else float("inf")
        if mean < 5 * atol:
            raise TensorMismatchError(f"the mean magnitude of {name}, {mean:.3g}, is below 5 atol; scale the data up")
    close = torch.isclose(x, y, rtol=rtol, atol=atol, equal_nan=allow_nan)
    if not bool(close.all()):
        raise TensorMismatchError(_differences(x, y, ~close, f"rtol={rtol:g}, atol={atol:g}"))
    if verbose:
        print(f"all close: {list(x.shape)}, rtol={rtol:g}, atol={atol:g}")


def _check_special(word: str, name: str, found: torch.Tensor, allowed: bool) -> None:
    if not allowed and bool(found.any()):
        raise TensorMismatchError(f"{name} has {int(found.sum())} elements that are {word}, the first at {_places(found)[0]}")


def bitwise_equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors have the same shape, dtype and bits; two NaNs with the same bits are equal, 0.0 and -0.0 are not."""
    return x.shape == y.shape and x.dtype == y.dtype and bool((_bytes(x) == _bytes(y)).all())


def assert_bitwise_equal(x: torch.Tensor, y: torch.Tensor, verbose: bool = True) -> None:
    """Raise TensorMismatchError, listing where, unless ``bitwise_equal(x, y)``."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise TensorMismatchError(f"x is {x.dtype} {list(x.shape)}, y is {y.dtype} {list(y.shape)}")
    different = (_bytes(x) != _bytes(y)).reshape(*x.shape, x.element_size()).any(-1)
    if bool(different.any()):
        raise TensorMismatchError(_differences(x, y, different, "bit by bit"))
    if verbose:
        print(f"bitwise equal: {list(x.shape)}")


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _places(mask: torch.Tensor) -> list[list[int]]:
    return mask.nonzero()[:_SHOWN].tolist()


def _differences(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor, how: str) -> str:
    count = int(mask.sum())
    lines = [f"{count} of {x.numel()} elements differ ({how}), shape {list(x.shape)}:"]
    lines += [f"  at {place}: {x[tuple(place)].item()} and {y[tuple(place)].item()}" for place in _places(mask)]
    if x.dtype != torch.bool:
        lines.append(f"  greatest difference {float((x.double() - y.double()).abs().max()):g}")
    return "\n".join(lines)
