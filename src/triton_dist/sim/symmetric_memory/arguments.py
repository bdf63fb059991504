"""What arguments of torch's symmetric memory have to be."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import SymmetricMemoryError


def whole_number(value: Any, what: str, name: str) -> int:
    """An argument that counts something. what: the call. Raises SymmetricMemoryError."""
    try:
        return operator.index(value)
    except TypeError:
        raise SymmetricMemoryError(f"{what}: {name}={value!r} is not a whole number") from None


def sizes_of(values: Sequence[Any] | Any, what: str) -> tuple[int, ...]:
    """A tensor's shape. Raises SymmetricMemoryError."""
    if not isinstance(values, Sequence):
        raise SymmetricMemoryError(f"{what}: sizes={values!r} is not a sequence of whole numbers")
    sizes = tuple(whole_number(value, what, "size") for value in values)
    if min(sizes, default=0) < 0:
        raise SymmetricMemoryError(f"{what}: the shape {sizes} has a negative size")
    return sizes


def dtype_of(value: Any, what: str) -> torch.dtype:
    """A tensor's dtype. Raises SymmetricMemoryError."""
    if not isinstance(value, torch.dtype):
        raise SymmetricMemoryError(f"{what}: dtype={value!r} is no dtype of torch")
    return value


def dimension(dim: Any, count: int, what: str, name: str) -> int:
    """A dimension of ``count``, from 0 on. Raises SymmetricMemoryError."""
    number = whole_number(dim, what, name)
    if not -count <= number < count:
        raise SymmetricMemoryError(f"{what}: {name}={number} is none of the {count} dimensions")
    return number % count
