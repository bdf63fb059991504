"""Operators that ``torch.library.custom_op`` makes of Python functions, such as this package's for ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def python_body(operator: Any, arguments: tuple) -> Callable[..., Any] | None:
    """The function that an operator runs for the device of its arguments; None if it is not such an operator.

    torch calls it with dispatch modes switched off, so that the streams would not order what it does.
    """
    if operator.namespace in ("aten", "prims"):
        return None
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(operator._schema.name)
    if definition is None:
        return None
    device = next((leaf.device.type for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)), None)
    return definition._backend_fns.get(device) or definition._backend_fns.get(None)
