"""Operators that ``torch.library.custom_op`` makes of Python functions, such as this package's for ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def python_body(operator: Any, arguments: tuple) -> Callable[..., Any] | None:
    """The function that an operator runs for the device of its arguments; None if it is no such operator, or is only traced.

    torch calls it with dispatch modes switched off, so that the streams would not order what it does.
    """
    if operator.namespace in ("aten", "prims"):
        return None
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(operator._schema.name)
    if definition is None:
        return None
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.is_meta for tensor in tensors):
        return None  # a fake tensor or another one that has a way of its own
    device = tensors[0].device.type if tensors else None
    return definition._backend_fns.get(device) or definition._backend_fns.get(None)
