"""What a torch operator reads and writes, for the race check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..runtime.symmetric import address_of
from .check.history import READ, WRITE

Access = tuple[str, int, tuple[int, ...], tuple[int, ...], int]

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors whose memory is looked at."""


def accesses_of(read: Iterable[Any], written: Iterable[Any]) -> list[Access]:
    """The accesses of ordinary CPU tensors, as ``check.checker`` takes them; anything else is left out."""
    found = [(READ, tensor) for tensor in read] + [(WRITE, tensor) for tensor in written]
    return [(kind, *_geometry(tensor)) for kind, tensor in found if _has_memory(tensor)]


def _has_memory(tensor: Any) -> bool:
    return type(tensor) in PLAIN and tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.numel() > 0


def _geometry(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    size = tensor.element_size()
    return address_of(tensor), tuple(tensor.shape), tuple(stride * size for stride in tensor.stride()), size


def tensors_of(func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any, *, reads_arguments: bool) -> tuple[list[Any], list[Any]]:
    """The tensors that an operator reads, and those that it writes: arguments that its schema says so of, and its new outputs."""
    read, written = [], []
    for position, argument in enumerate(func._schema.arguments):
        by_name = argument.kwarg_only or position >= len(args)
        value = kwargs.get(argument.name) if by_name else args[position]
        tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += tensors
            if argument.name == "out" or func._schema.name in _ONLY_WRITE:
                continue
        if reads_arguments:
            read += tensors
    given = {id(tensor) for tensor in read + written}
    if not func.is_view and "empty" not in func._schema.name:
        for leaf, returned in zip(_outputs(outputs), func._schema.returns, strict=False):
            if returned.alias_info is None:
                written += [tensor for tensor in pytree.tree_leaves(leaf) if isinstance(tensor, torch.Tensor) and id(tensor) not in given]
    return read, written


def _outputs(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


_ONLY_WRITE = {"aten::fill_", "aten::zero_", "aten::copy_", "aten::normal_", "aten::uniform_", "aten::random_", "aten::bernoulli_"}
"""Operators that do not read the argument that they overwrite."""
