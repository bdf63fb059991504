"""What the collectives check of their arguments, and whether the library can take a call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...errors import InvalidArgumentError
from ...runtime.world import current_world, require_world

METHODS = ("auto", "ll", "one_shot", "library")
"""Of the collectives but all_reduce: the low-latency kernel, the one that stages, and torch.distributed."""
LIBRARY_DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8,
)  # fmt: skip
"""What NCCL reduces on every GPU."""
LIBRARY_OPERATIONS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


def check_device(what: str, x: torch.Tensor, method: str) -> None:
    """Raises InvalidArgumentError where x is not where this rank's kernels run; ``torch.distributed`` may be asked for it all the same."""
    device = require_world(what).device
    if x.device != device and method != "library":
        raise InvalidArgumentError(
            f"{what}: x is on {x.device}, and this rank's kernels run on {device}: move it there, x.to(triton_dist.device()), "
            "or leave it to torch.distributed by method='library'"
        )


def rows_of_ranks(what: str, x: torch.Tensor, size: int) -> int:
    """Rows of x for each of ``size`` ranks. Raises InvalidArgumentError where they are not the same number."""
    if x.dim() == 0 or x.shape[0] % size:
        raise InvalidArgumentError(
            f"{what}: x is {tuple(x.shape)}; its first dimension is split evenly over the {size} ranks of the group, so it has to be a "
            f"multiple of {size}: pad x, or call it on fewer ranks"
        )
    return x.shape[0] // size


def made(shape: Sequence[int], x: torch.Tensor) -> torch.Tensor:
    """New memory of this shape for a result, of x's dtype, where x is."""
    return torch.empty(shape, dtype=x.dtype, device=x.device)


def check_apart(what: str, x: torch.Tensor, out: torch.Tensor, same_at: int | None) -> None:
    """Raises InvalidArgumentError where ``out`` shares memory with ``x``, both contiguous, unless it begins at byte ``same_at`` of x."""
    begin, end = x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()
    first, last = out.data_ptr(), out.data_ptr() + out.numel() * out.element_size()
    if first < end and begin < last and (same_at is None or first != begin + same_at):
        allowed = "no memory with x" if same_at is None else f"memory with x only where it begins at byte {same_at} of it"
        raise InvalidArgumentError(
            f"{what}: out begins at byte {first - begin} of x, and is written while x is read; let it share {allowed}, or pass x.clone()"
        )


def check_method(what: str, method: str, exact: bool, group: object, methods: Sequence[str] = METHODS) -> None:
    """Raises InvalidArgumentError for a method that is not one of ``methods``, or that can't be had for these arguments."""
    if method not in methods:
        raise InvalidArgumentError(f"{what}: method={method!r}; it has to be one of {methods}")
    if method != "library":
        return
    if exact:
        raise InvalidArgumentError(f"{what}: exact=True keeps to this package's kernels; leave it out for method='library'")
    if not dist.is_initialized():
        raise InvalidArgumentError(f"{what}: method='library' needs torch.distributed; call dist.init_process_group first")
    if not _has_process_group(group):
        raise InvalidArgumentError(f"{what}: method='library' needs a torch.distributed process group, a DeviceMesh or None, not {group!r}")


def library_can(group: object, device: torch.device) -> bool:
    """Whether ``method="auto"`` may leave a call to ``torch.distributed``: on GPUs to NCCL only, which wants a GPU for each rank."""
    if not dist.is_initialized() or not _has_process_group(group):
        return False
    if device.type != "cuda":
        return True
    return "nccl" in dist.get_backend_config(process_group_of(group)) and not getattr(current_world(), "has_shared_gpus", False)


def library_reduces(group: object, x: torch.Tensor, op: str) -> bool:
    """Whether ``method="auto"`` may leave a reduction of ``x`` to ``torch.distributed``: not where a NaN might get lost in it.

    NCCL's "max" and "min" keep the number beside a NaN; this package's give the NaN, as ``torch.maximum`` does.
    """
    keeps_nan = op not in ("max", "min") or not x.dtype.is_floating_point
    return x.dtype in LIBRARY_DTYPES and keeps_nan and library_can(group, x.device)


def process_group_of(group: object) -> dist.ProcessGroup | None:
    """The process group of what ``find_team`` takes but a Team."""
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if isinstance(group, tuple):
        return group[0].get_group(group[1])
    return group  # type: ignore[return-value]


def _has_process_group(group: object) -> bool:
    return group is None or isinstance(group, dist.ProcessGroup | DeviceMesh | tuple)
