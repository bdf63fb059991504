"""Extra language modules: ``language_extra`` (per-thread primitives) and ``libshmem_device`` (the SHMEM names)."""

from triton_dist.language.extra import language_extra, libshmem_device

__all__ = ["language_extra", "libshmem_device"]
