"""``triton_dist.language.extra.libshmem_device`` by the path that kernels for CUDA know."""

from __future__ import annotations

from typing import Any

from triton_dist.language.extra import libshmem_device

__all__ = list(libshmem_device.__all__)


def __getattr__(name: str) -> Any:
    return getattr(libshmem_device, name)
