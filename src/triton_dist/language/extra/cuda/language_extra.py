"""``triton_dist.language.extra.language_extra`` by the path that kernels for CUDA know."""

from __future__ import annotations

from typing import Any

from triton_dist.language.extra import language_extra

__all__ = list(language_extra.__all__)


def __getattr__(name: str) -> Any:
    return getattr(language_extra, name)
