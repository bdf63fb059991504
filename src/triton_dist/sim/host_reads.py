"""Functions of torch through which a rank's host reads or writes elements, or learns an address, without an operator."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..runtime.symmetric import address_of
from .context import RankContext
from .launch import HOST_MARK
from .torch_accesses import PLAIN, accesses_of
from .torch_mode import register


class HostReads(TorchFunctionMode):
    """Active in each rank's thread: functions that read elements or hand out addresses without an operator."""

    def __init__(self, context: RankContext) -> None:
        super().__init__()
        self._context = context

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        action = _HOST_FUNCTIONS.get(func)
        if action is not None and (action != "set" or self._copies_a_number(*args)):
            context = self._context
            if action == "address":
                register(context, args[0])
            elif action == "storage" and _asked_by_this_package():
                pass
            elif context.busy(context.stream):
                context.synchronize(context.stream, f"torch.Tensor.{getattr(func, '__name__', func)}")
            elif context.machine.races is not None:
                context.machine.races.host_waited(context.rank, context.stream)
            if context.machine.races is not None and action in ("read", "host copy"):
                label = f"torch.Tensor.{getattr(func, '__name__', func)}"
                context.machine.races.host_read(context.rank, label, accesses_of(args[:1], ()))
            if action == "host copy":
                return func(*args, **(kwargs or {})).clone()
        return func(*args, **(kwargs or {}))

    def _copies_a_number(self, tensor: Any, index: Any, value: Any) -> bool:
        """Whether this is ``tensor[i] = number`` for one element of GPU memory: a copy from the host, for which the host waits."""
        numbers = index if isinstance(index, tuple) else (index,)
        if not isinstance(value, (int, float, complex)) or type(tensor) not in PLAIN or len(numbers) != tensor.dim():
            return False
        if any(type(number) is not int for number in numbers) or getattr(tensor, HOST_MARK, False):
            return False
        # Not all tensors are in GPU memory here: those that the machine has heard of are.
        return self._context.machine.memory.find(address_of(tensor)) is not None


def _asked_by_this_package() -> bool:
    """Whether the torch function in hand was called from here; other function modes (``with torch.device(...)``) may stand between."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_MODES):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").startswith("triton_dist.")


_MODES = ("torch.", "triton_dist.sim.cuda_shim.tensors")
"""Modules with function modes."""

_HOST_FUNCTIONS: dict[Any, str] = {
    torch.Tensor.data_ptr: "address",
    torch.Tensor.untyped_storage: "storage",
    torch.Tensor.cpu: "host copy",
    torch.Tensor.__setitem__: "set",
    **dict.fromkeys(
        (
            torch.Tensor.tolist,
            torch.Tensor.numpy,
            torch.Tensor.__array__,
            torch.Tensor.__repr__,
            torch.Tensor.__format__,
            torch.Tensor.__reduce_ex__,
            torch.Tensor.__deepcopy__,
            torch.Tensor.__dlpack__,
            torch.Tensor.storage,
        ),
        "read",
    ),
}
"""What each function does: "read" waits for the stream; "storage" too, unless this package asks; "address" tells the machine of the
memory; "host copy" (``.cpu()``) gives a tensor of its own, as it does on a GPU; "set" waits where it sets one element to a number."""
