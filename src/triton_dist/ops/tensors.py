"""What every operator asks of a tensor: that it is one, with memory of its own, on this rank's device, and apart from what is written."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..errors import InvalidArgumentError
from ..runtime.world import require_world

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def check_tensor(what: str, name: str, value: object) -> torch.Tensor:
    """``value``. Raises InvalidArgumentError unless it is a tensor whose elements lie at an address: no DTensor, sparse or nested one."""
    if not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(f"{what}: {name} has to be a tensor, got {value!r}")
    if type(value) not in _PLAIN and is_traceable_wrapper_subclass(value):
        raise InvalidArgumentError(
            f"{what}: {name} is a {type(value).__name__}, which stands for other tensors; pass the one that this rank has, such as "
            "x.to_local() of a DTensor and x.wait() of a result that torch.distributed still works on"
        )
    if value.layout is not torch.strided or value.is_nested:
        seen = "nested" if value.is_nested else str(value.layout)
        raise InvalidArgumentError(f"{what}: {name} is a {seen} tensor; pass a dense one")
    return value


def check_here(what: str, name: str, value: object) -> None:
    """``check_tensor``, and that it is on the device of this rank's kernels. Raises InvalidArgumentError, NotInitializedError."""
    tensor, device = check_tensor(what, name, value), require_world(what).device
    if tensor.device != device:
        raise InvalidArgumentError(
            f"{what}: {name} is on {tensor.device}, and this rank's kernels run on {device}: move it there, .to(triton_dist.device())"
        )


def check_output(what: str, out: object, shape: Sequence[int], x: torch.Tensor) -> None:
    """Raises InvalidArgumentError unless ``out`` has this shape, x's dtype and device, and is written as it lies in memory."""
    out = check_tensor(what, "out", out)
    if out.shape != shape or out.dtype != x.dtype or out.device != x.device or not out.is_contiguous():
        raise InvalidArgumentError(
            f"{what}: out is {tuple(out.shape)} {out.dtype} on {out.device}; "
            f"it has to be {tuple(shape)} {x.dtype} on {x.device}, contiguous"
        )
    if out.is_neg() or out.is_conj():
        raise InvalidArgumentError(f"{what}: out is a lazily negated or conjugated view, which no kernel writes; pass what it is a view of")


def filled(what: str, made: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """The result of a traced call, in ``out`` if that is given. Raises InvalidArgumentError where that has another shape or dtype."""
    if out is None:
        return made
    if out.shape != made.shape or out.dtype != made.dtype:
        raise InvalidArgumentError(f"{what}: out is {tuple(out.shape)} {out.dtype}; it has to be {tuple(made.shape)} {made.dtype}")
    return out.copy_(made)


def check_written(what: str, out: torch.Tensor) -> None:
    """Raises InvalidArgumentError where autograd would have to know that ``out`` is written."""
    if out.requires_grad and torch.is_grad_enabled():
        raise InvalidArgumentError(
            f"{what}: out requires a gradient, of which an operator that writes to it knows nothing; pass out.detach()"
        )


def overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors share memory; of matrices with rows in line and the same distance between them it is seen by columns.

    Of other tensors that lie in each other's span it is said that they do.
    """
    if not x.numel() or not y.numel() or x.device != y.device:
        return False
    begins, spans = (x.data_ptr(), y.data_ptr()), (_span(x), _span(y))
    if begins[0] + spans[0] <= begins[1] or begins[1] + spans[1] <= begins[0]:
        return False
    lines = _lines(x), _lines(y)
    if lines[0] is None or lines[1] is None or lines[0][0] != lines[1][0]:
        return True
    distance, widths = lines[0][0], (lines[0][1], lines[1][1])
    place = (begins[1] - begins[0]) % distance
    return place < widths[0] or place + widths[1] > distance


def _span(x: torch.Tensor) -> int:
    """Bytes from its first element to the end of its last one."""
    return (sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) + 1) * x.element_size()


def _lines(x: torch.Tensor) -> tuple[int, int] | None:
    """Of a matrix whose rows, or columns, are in line: bytes from one to the next, and of one; None of others."""
    if x.dim() != 2:
        return None
    inner = 1 if x.stride(1) == 1 else 0
    distance, width = x.stride(1 - inner) * x.element_size(), x.shape[inner] * x.element_size()
    return (distance, width) if x.stride(inner) == 1 and distance >= width else None
