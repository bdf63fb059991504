"""Which layouts NCCL takes in a collective; the simulator moves any, so it looks for what would be refused on GPUs."""

from __future__ import annotations

import torch

from ..errors import InvalidArgumentError
from .collectives import Call, Tensor
from .context import RankContext
from .launch import HOST_MARK

_GATHERED = {"all_gather": "receives", "all_gather_coalesced": "receives", "reduce_scatter": "sends"}
"""Collectives with a side of one tensor for each rank that NCCL copies to or from: there it only has to be dense."""

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def check_layouts(call: Call, backend: str, rank: RankContext) -> None:
    """Raises InvalidArgumentError for a tensor of a collective that is not contiguous, if NCCL would be asked to move it."""
    for part in call.parts:
        for side, tensors in (("sends", part.sends), ("receives", part.receives)):
            fits = _is_dense if _GATHERED.get(call.name) == side else _is_contiguous
            for tensor in tensors:
                if tensor is not None and not fits(tensor) and _goes_by_nccl(tensor, backend, rank):
                    raise InvalidArgumentError(
                        f"dist.{call.name}: a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} is not contiguous, "
                        "and NCCL refuses those; pass tensor.contiguous(), and copy a result back"
                    )


def _goes_by_nccl(tensor: Tensor, backend: str, rank: RankContext) -> bool:
    """Whether the group is one of NCCL, or has NCCL for the tensors that the script sees on the GPU, of which this is one."""
    if backend == "nccl":
        return True
    on_gpu = rank.shown_device is not None and rank.shown_device.type == "cuda" and not getattr(tensor, HOST_MARK, False)
    return on_gpu and backend != "gloo"


def _is_contiguous(tensor: Tensor) -> bool:
    """As NCCL asks: channels-last tensors count, too."""
    other = _CHANNELS_LAST.get(tensor.dim())
    return tensor.is_contiguous() or (other is not None and tensor.is_contiguous(memory_format=other))


def _is_dense(tensor: Tensor) -> bool:
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()
