"""``device="cuda"`` on the simulator, whose tensors are all CPU tensors: where a tensor is, as the script sees it.

Every tensor counts as one on the rank's GPU unless it was made on the host: by a factory without a device, by ``.cpu()``, or from such
tensors alone. The mark stands on the tensor object, so what is lost on ways that torch does not show counts as being on the GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors

from ...errors import UnsupportedOperationError
from ..context import RankContext
from ..launch import HOST_MARK, PINNED_MARK
from . import tensor_types

_CPU = torch.device("cpu")


def on_host(tensor: torch.Tensor) -> bool:
    """Whether a script sees ``tensor`` on the CPU."""
    return getattr(tensor, HOST_MARK, False)


def mark_host(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, seen on the CPU from now on."""
    setattr(tensor, HOST_MARK, True)
    return tensor


class DeviceMode(TorchFunctionMode):
    """Active in each rank's thread under ``triton-dist run``."""

    def __init__(self, context: RankContext) -> None:
        super().__init__()
        self.device = torch.device("cuda", context.local_rank)
        self.loads_onto: torch.device | None = None
        """Where tensors are made while ``torch.load`` reads a file for one device."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs = _with_default_device(kwargs)
        if _asked_by_this_package():
            return func(*args, **self._without_cuda(kwargs)[0])
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        pinned = bool(kwargs.get("pin_memory"))
        if pinned:
            kwargs = {**kwargs, "pin_memory": False}
        kwargs, where = self._without_cuda(kwargs)
        if any(type(arg) is torch.device for arg in args):
            where = next(arg for arg in args if type(arg) is torch.device)
            args = tuple(self.real_device(arg) if type(arg) is torch.device else arg for arg in args)
        result = func(*args, **kwargs)
        if isinstance(result, (torch.Tensor, tuple, list)):
            self._mark_results(result, where, args, kwargs)
        if pinned and on_host(result):
            setattr(result, PINNED_MARK, True)
        return result

    def real_device(self, device: Any) -> torch.device:
        """Where a tensor that the script wants on ``device`` is made. Raises UnsupportedOperationError for another rank's GPU."""
        device = self.named_device(device)
        if device.type != "cuda":
            return device
        if device.index not in (None, self.device.index):
            raise UnsupportedOperationError(
                f"a tensor was asked for on {device}, but a simulated rank has one GPU, {self.device}; use device='cuda' or the rank's own"
            )
        return _CPU

    @staticmethod
    def named_device(device: Any) -> torch.device:
        """``device`` as a torch.device; an index alone is a GPU's."""
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)

    def _without_cuda(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], torch.device | None]:
        """The same keywords with a device that exists here, and the device that was asked for."""
        device = kwargs.get("device")
        if device is None:
            return kwargs, None
        where = self.named_device(device)
        return {**kwargs, "device": self.real_device(where)}, where

    def _mark_results(self, result: Any, where: torch.device | None, args: tuple, kwargs: dict[str, Any]) -> None:
        inputs = list(_tensors((args, tuple(kwargs.values()))))
        where = self.loads_onto or where
        if where is not None:
            host = where.type == "cpu"
        elif inputs:
            host = all(on_host(tensor) for tensor in inputs)
        else:
            host = True
        if host:
            known = {id(tensor) for tensor in inputs}
            for tensor in _tensors((result,)):
                if id(tensor) not in known:
                    setattr(tensor, HOST_MARK, True)


def _with_default_device(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a factory, with the device that ``with torch.device(...)`` or ``torch.set_default_device`` asks for, if any.

    Their own mode stands beneath ours, so that it would name a device that does not exist here.
    """
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, DeviceContext):
            return {**kwargs, "device": mode.device}
    return kwargs


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _asked_by_this_package() -> bool:
    """Whether the caller of the torch function is this package, which wants to know where tensors really are."""
    return sys._getframe(2).f_globals.get("__name__", "").startswith("triton_dist.")


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, new and not seen by the script yet, as one on the GPU."""
    if on_host(tensor):
        delattr(tensor, HOST_MARK)
    return tensor


def _device(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.device:
    real = func(*args)
    return mode.device if real.type == "cpu" and not on_host(args[0]) else real


def _is_cuda(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    return _device(mode, torch.Tensor.device.__get__, args, {}).type == "cuda"  # type: ignore[attr-defined]


def _is_cpu(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    return _device(mode, torch.Tensor.device.__get__, args, {}).type == "cpu"  # type: ignore[attr-defined]


def _get_device(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> int:
    return mode.device.index if _is_cuda(mode, func, args, kwargs) else -1


def _cuda(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    tensor = args[0]
    device = args[1] if len(args) > 1 else kwargs.get("device")
    mode.real_device("cuda" if device is None else device)
    return torch.Tensor.clone(tensor) if on_host(tensor) else tensor


def _cpu(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    if on_host(args[0]):
        return args[0]
    copied = torch.Tensor.cpu(args[0])
    setattr(copied, HOST_MARK, True)
    return copied


def _to(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    tensor, others = args[0], list(args[1:])
    other = kwargs.get("other", others[0] if others and isinstance(others[0], torch.Tensor) else None)
    where: torch.device | None = None
    if other is not None:
        where = _CPU if on_host(other) else mode.device
    elif "device" in kwargs and kwargs["device"] is not None:
        where = mode.named_device(kwargs["device"])
        kwargs = {**kwargs, "device": mode.real_device(where)}
    elif others and isinstance(others[0], (str, int, torch.device)):
        where = mode.named_device(others[0])
        others[0] = mode.real_device(where)
    if where is None:
        return _like(tensor, func(tensor, *others, **kwargs))
    if where.type == "cpu" and not on_host(tensor):
        # As .cpu(): the script reads it at once, so it is a copy of what the stream has computed.
        tensor = _cpu(mode, torch.Tensor.cpu, (tensor,), {})
    moved = func(tensor, *others, **kwargs)
    if where.type == "cuda" and on_host(tensor):
        return _on_device(torch.Tensor.clone(moved) if moved is tensor else moved)
    return _like(tensor, moved)


def _like(tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """``result``, made from ``tensor`` where it lies."""
    if result is not tensor and on_host(tensor):
        setattr(result, HOST_MARK, True)
    return result


def _pin_memory(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    pinned = args[0].clone()
    setattr(pinned, HOST_MARK, True)
    setattr(pinned, PINNED_MARK, True)
    return pinned


def _is_pinned(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    return getattr(args[0], PINNED_MARK, False)


def _set_data(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    func(*args)
    if on_host(args[1]):
        setattr(args[0], HOST_MARK, True)
    else:
        _on_device(args[0])


def _type(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """``tensor.type()`` and ``tensor.type("torch.cuda.HalfTensor")``."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if wanted is None:
        return tensor_types.name_of(args[0])
    place = tensor_types.place_of(wanted)
    if place is None:
        return _like(args[0], func(*args, **kwargs))
    return _to(mode, torch.Tensor.to, (args[0], *place), {})


def _reduce(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A tensor as pickle takes it: without the marks, which are not for files."""
    marks = {name: args[0].__dict__.pop(name) for name in (HOST_MARK, PINNED_MARK) if name in args[0].__dict__}
    try:
        return func(*args, **kwargs)
    finally:
        args[0].__dict__.update(marks)


def _make_device(mode: DeviceMode, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.device:
    """``torch.device(...)`` is seen here, too; it names a device and makes nothing."""
    return torch.device("cuda", args[0]) if len(args) == 1 and isinstance(args[0], int) else func(*args, **kwargs)


_SPECIAL: dict[Any, Callable[[DeviceMode, Any, tuple, dict[str, Any]], Any]] = {
    torch.device: _make_device,
    torch.Tensor.device.__get__: _device,  # type: ignore[attr-defined]
    torch.Tensor.is_cuda.__get__: _is_cuda,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: _is_cpu,  # type: ignore[attr-defined]
    torch.Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    torch.Tensor.get_device: _get_device,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.to: _to,
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.is_pinned: _is_pinned,
    torch.Tensor.type: _type,
    torch.Tensor.__reduce_ex__: _reduce,
}
