"""``torch.autocast``: layers compute in its dtype, as torch's do; operators compute in the dtype of what they are given."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import overload

import torch


def without_autocast(device_type: str) -> AbstractContextManager:
    """For products that have a dtype already, and an output of that dtype."""
    return torch.autocast(device_type, enabled=False) if _is_on(device_type) else contextlib.nullcontext()


def dtype_here(tensor: torch.Tensor) -> torch.dtype:
    """The dtype in which a layer with this parameter computes now."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if _is_on(kind) else tensor.dtype


def autocasted(x: object, weight: torch.Tensor) -> torch.Tensor:
    """x as a layer with this weight takes it. What is no tensor is left to its checks."""
    if isinstance(x, torch.Tensor) and x.is_floating_point() and _is_on(weight.device.type):
        return x.to(dtype_here(weight))
    return x  # type: ignore[return-value]


@overload
def in_dtype(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor: ...


@overload
def in_dtype(parameter: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None: ...


def in_dtype(parameter: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """The parameter as a layer that computes in ``dtype`` takes it: itself where there is no autocast, without a call of torch."""
    return parameter if parameter is None or parameter.dtype == dtype else parameter.to(dtype)


def _is_on(device_type: str) -> bool:
    return device_type != "meta" and torch.is_autocast_enabled(device_type)  # which meta is an error for
