"""Views that torch negates or conjugates when they are read: their memory holds something else."""

from __future__ import annotations

import torch


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory holds what the tensor reads as."""
    return not (tensor.is_neg() or tensor.is_conj())


def lazily_like(view: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The plain ``view``, read as lazily as ``like`` is."""
    view = torch._neg_view(view) if like.is_neg() else view
    return view.conj() if like.is_conj() else view
