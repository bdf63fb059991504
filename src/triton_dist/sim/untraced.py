"""Keeping ``torch.compile`` out of the simulator, without importing it (most of a second)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """Decorator: ``torch.compile`` looks neither into the function nor into what it calls, and runs it as it is.

    Nothing on a torch that has another interface for that: there it tries, and gives up.
    """
    compiler: Any = torch._C._dynamo.eval_frame
    try:
        skip = compiler._FrameAction.SKIP
        compiler.set_code_exec_strategy(function.__code__, compiler._FrameExecStrategy(skip, skip))
    except (AttributeError, TypeError):
        pass
    return function
