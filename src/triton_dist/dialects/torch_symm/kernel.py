"""``requires_torch_symm``: a kernel whose launches link what its symmetric functions are made of, if that is a library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction, KernelInterface

from ...errors import InvalidArgumentError, MissingCapabilityError
from ...primitives.nvshmem import LIBRARY as NVSHMEM
from ...runtime.world import current_world
from .constants import BACKEND_DEFAULT, BACKEND_NCCL, BACKEND_NVSHMEM
from .device import LIBRARY

TORCH_SYMM_LIB_PATH = "TORCH_SYMM_LIB_PATH"
"""Environment variable: torch's ``torch_symm.bc``. With it ``symm_all_reduce`` is that library's, on GPUs."""

NVSHMEM_LIB_DIR = "NVSHMEM_LIB_DIR"
"""Environment variable: the folder with ``libnvshmem_device.bc``; by default that of ``initialize(shmem="nvshmem")``."""

_BACKENDS = {BACKEND_DEFAULT.value: "BACKEND_DEFAULT", BACKEND_NCCL.value: "BACKEND_NCCL", BACKEND_NVSHMEM.value: "BACKEND_NVSHMEM"}


class SymmKernel(KernelInterface):
    """A kernel under ``requires_torch_symm``; launched as the kernel itself. fn: that. backend: the number of the hint."""

    def __init__(self, fn: Any, backend: int) -> None:
        self.fn = fn
        self.backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch. Raises MissingCapabilityError for a library that an environment variable names and that is not there."""
        libraries = libraries_for(self.backend)
        if libraries:
            kwargs["extern_libs"] = {**libraries, **dict(kwargs.get("extern_libs") or {})}
        return self.fn.run(*args, **kwargs)


def requires_torch_symm(kernel: Any = None, backend: Any = BACKEND_DEFAULT) -> Any:
    """Decorator over ``triton.jit`` or ``triton_dist.jit``: the kernel calls functions of torch's symmetric library.

    backend: BACKEND_DEFAULT, BACKEND_NVSHMEM or BACKEND_NCCL, as the kernel passes it on as hint. Without libraries the functions work over
    this package's heap, and with ``initialize(shmem="nvshmem")`` their barriers are NVSHMEM's; with BACKEND_NCCL they answer -2.
    Environment: TORCH_SYMM_LIB_PATH links that library on GPUs, with NVSHMEM's device library, which it calls: from NVSHMEM_LIB_DIR, or
    the one of the world. Raises InvalidArgumentError.
    """
    if kernel is not None and not _is_kernel(kernel):
        if isinstance(kernel, (int, tl.constexpr)):
            kernel, backend = None, kernel  # as in requires_torch_symm(BACKEND_NVSHMEM)
        else:
            raise InvalidArgumentError(f"requires_torch_symm decorates a kernel by triton.jit, not {kernel!r}")
    number = backend.value if isinstance(backend, tl.constexpr) else backend
    if not isinstance(number, int) or isinstance(number, bool) or number not in _BACKENDS:
        raise InvalidArgumentError(f"requires_torch_symm: backend={backend!r} is not one of {', '.join(_BACKENDS.values())}")

    def decorate(fn: Any) -> SymmKernel:
        if not _is_kernel(fn):
            raise InvalidArgumentError(f"requires_torch_symm decorates a kernel by triton.jit, not {fn!r}")
        return SymmKernel(fn, number)

    return decorate(kernel) if kernel is not None else decorate


def _is_kernel(value: Any) -> bool:
    return isinstance(value, (KernelInterface, JITFunction))


def libraries_for(backend: int) -> dict[str, str]:
    """What launches link on this rank's device: name to path. Nothing on the simulator."""
    world: Any = current_world()
    if world is None or world.device.type != "cuda":
        return {}
    libraries = {}
    path = os.environ.get(TORCH_SYMM_LIB_PATH, "")
    if path and backend != BACKEND_NCCL.value:
        libraries[LIBRARY] = str(_existing(TORCH_SYMM_LIB_PATH, path, Path(path)))
    if libraries or getattr(world, "uses_nvshmem", False):
        libraries[NVSHMEM] = str(_nvshmem(world))
    return libraries


def _nvshmem(world: Any) -> Path:
    folder = os.environ.get(NVSHMEM_LIB_DIR, "")
    if folder:
        return _existing(NVSHMEM_LIB_DIR, folder, Path(folder) / "libnvshmem_device.bc")
    if not getattr(world, "uses_nvshmem", False):
        raise MissingCapabilityError(
            f'{TORCH_SYMM_LIB_PATH} is set, and that library calls NVSHMEM: call triton_dist.initialize(shmem="nvshmem"), which starts it, '
            f"or unset {TORCH_SYMM_LIB_PATH} for the functions of triton_dist"
        )
    from ...runtime.cuda.nvshmem import library_in_use

    library = library_in_use()
    if library is None:
        raise MissingCapabilityError('NVSHMEM is not in use any more; call triton_dist.initialize(shmem="nvshmem") again')
    return Path(library)


def _existing(variable: str, value: str, path: Path) -> Path:
    if not path.is_file():
        raise MissingCapabilityError(f"{variable}={value!r}: there is no file {path}; correct the variable, or unset it")
    return path
