"""What goes between the test process and its workers: functions and kernels by name, everything else pickled by value."""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Job:
    """A function of a module that every rank calls."""

    body: Callable[..., Any]
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What became of a job on one rank: its result, or the error with its traceback as text.

    usable: the worker can take the next job; a device that has faulted can't.
    """

    result: Any = None
    error: BaseException | None = None
    traceback: str = ""
    usable: bool = True


def find(module: str, path: str) -> Any:
    """The object of this name."""
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, JITFunction):
            return find, (value.fn.__module__, value.fn.__qualname__)
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return _identity, (value.cpu(),)
        return NotImplemented


def _identity(value: Any) -> Any:
    return value


def pack(message: Any) -> bytes:
    """Raises an error that names what can't be sent: a lambda or a function inside a function, say."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"can't be sent between processes ({error}); bodies are functions of a module, and arguments plain values"
        ) from error
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """The message that ``pack`` made."""
    return pickle.loads(data)


def pack_answer(answer: Answer) -> bytes:
    """An answer always gets through: what can't be pickled goes as text."""
    try:
        data = pack(answer)
        unpack(data)  # some exceptions pickle, and can't be made again
    except Exception as problem:
        if answer.error is None:
            failed = TypeError(f"the result of type {type(answer.result).__name__} {problem}")
        else:
            failed = RuntimeError(f"{type(answer.error).__name__}: {answer.error}")
        data = pack(Answer(error=failed, traceback=answer.traceback, usable=answer.usable))
    return data
