"""Where NVSHMEM is: its host library and its device library, of one version."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...errors import MissingCapabilityError

LEAST_VERSION = (3, 4, 0)
"""The first that knows memory which it did not allocate itself (``nvshmemx_buffer_register_symmetric``)."""

_HOW_TO_GET = "pip install nvidia-nvshmem-cu13 (or -cu12), which torch for CUDA depends on, or set NVSHMEM_HOME to an installation"
_LIBRARY_WITH_ARCH = re.compile(r"libnvshmem_device_sm_(\d+)\.bc")


@dataclass(frozen=True)
class NvshmemFiles:
    """folder: that the libraries are in. host: the shared library of the host's functions."""

    folder: Path
    host: Path

    def device_library(self, capability: int) -> Path:
        """The bitcode for kernels of a GPU of this compute capability times ten. Raises MissingCapabilityError."""
        found = {int(match[1]): path for path in self.folder.iterdir() if (match := _LIBRARY_WITH_ARCH.fullmatch(path.name))}
        fitting = [arch for arch in found if arch <= capability]
        if fitting:
            return found[max(fitting)]
        plain = self.folder / "libnvshmem_device.bc"
        if plain.exists():
            return plain
        raise MissingCapabilityError(
            f"NVSHMEM in {self.folder} has no device library in bitcode for sm_{capability}; take version 3.4 or later: {_HOW_TO_GET}"
        )


def find() -> NvshmemFiles:
    """The installation that NVSHMEM_HOME names, else the wheel beside torch. Raises MissingCapabilityError."""
    home = os.environ.get("NVSHMEM_HOME", "")
    folders = [Path(home) / "lib"] if home else []
    if not home:
        try:
            package = importlib.util.find_spec("nvidia.nvshmem")
        except ImportError:
            package = None
        folders = [Path(place) / "lib" for place in (package.submodule_search_locations or ())] if package is not None else []
    for folder in folders:
        hosts = sorted(folder.glob("libnvshmem_host.so*"))
        if hosts:
            return NvshmemFiles(folder, hosts[0])
    where = f"no libnvshmem_host.so in {', '.join(map(str, folders))}" if folders else "the package nvidia-nvshmem is not installed"
    raise MissingCapabilityError(f'shmem="nvshmem": {where}; {_HOW_TO_GET}, or leave shmem out')


def load(files: NvshmemFiles) -> ctypes.CDLL:
    """The host library. Raises MissingCapabilityError where it can't be loaded or is too old."""
    try:
        library = ctypes.CDLL(str(files.host), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingCapabilityError(f"NVSHMEM's host library {files.host} can't be loaded: {error}") from None
    version = version_of(library)
    if version < LEAST_VERSION:
        raise MissingCapabilityError(
            f"NVSHMEM in {files.folder} is {_dotted(version)}; {_dotted(LEAST_VERSION)} or later is needed: {_HOW_TO_GET}"
        )
    return library


def version_of(library: ctypes.CDLL) -> tuple[int, int, int]:
    """The version that the host library says it is."""
    parts = [ctypes.c_int(0) for _ in range(3)]
    library.nvshmemx_vendor_get_version_info(*(ctypes.byref(part) for part in parts))
    return parts[0].value, parts[1].value, parts[2].value


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
