"""Which arguments hold symmetric memory, and putting its contents back before every run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ...runtime.symmetric import is_symmetric

_DEEPEST = 4


def tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in a value: itself, and what is in lists, tuples, dicts and dataclasses, ``_DEEPEST`` deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < _DEEPEST:
        inner: Iterable[Any] = ()
        if isinstance(value, Mapping):
            inner = value.values()
        elif isinstance(value, (list, tuple)):
            inner = value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        for item in inner:
            yield from tensors_in(item, depth + 1)


def symmetric_tensors(arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """The symmetric tensors among arguments, each place once."""
    found: dict[Any, torch.Tensor] = {}
    for tensor in tensors_in(dict(arguments)):
        if tensor.numel() and is_symmetric(tensor):
            found.setdefault((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()), tensor)
    return list(found.values())


class Contents:
    """What tensors hold now. Made with the device idle on all ranks; takes a copy of each."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._kept = [(tensor, tensor.clone()) for tensor in tensors]

    def put_back(self) -> None:
        """Write it into the tensors again, on the current stream; no rank may use them meanwhile."""
        for tensor, before in self._kept:
            tensor.copy_(before)
