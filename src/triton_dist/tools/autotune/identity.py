"""What of an operator's Python a choice depends on, as text that is the same in every process."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, tl.dtype)


class NoIdentityError(Exception):
    """Something has no such text."""


def identity_of(function: Callable[..., Any]) -> str | None:
    """The source of a function, the defaults of its parameters and what it closes over; None where some of it can't be told.

    Functions that it closes over count by their own identity, other functions, classes and modules by name.
    """
    try:
        return _function(function, [])
    except NoIdentityError:
        return None


def _function(function: Any, outer: list[Any]) -> str:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        raise NoIdentityError from None
    if function in outer:
        return function.__qualname__
    within = [*outer, function]
    defaults = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closed = [f"{name}={_value(_contents(cell), within)}" for name, cell in cells]
    return "\n".join([source, *(_value(value, within) for value in defaults), *closed])


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        raise NoIdentityError from None


def _value(value: Any, outer: list[Any]) -> str:
    if isinstance(value, types.FunctionType):
        return _function(value, outer)
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(_value(item, outer) for item in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{_value(name, outer)}: {_value(item, outer)}' for name, item in value.items())})"
    if isinstance(value, types.ModuleType):
        return value.__name__
    name = getattr(value, "__qualname__", None) or getattr(getattr(value, "fn", None), "__qualname__", None)  # kernels
    if callable(value) and isinstance(name, str):
        return f"{getattr(value, '__module__', '')}.{name}"
    raise NoIdentityError
