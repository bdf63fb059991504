"""Versions of what is installed, beside what is supported."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .finding import Finding, Status

GROUP = "versions"
Version = tuple[int, ...]
Installed = Callable[[str], str | None]
"""The version of a distribution, or None if it is not installed."""


@dataclass(frozen=True)
class Package:
    """A distribution that is needed: ``least`` is supported, ``below`` is not. gpu_only: ranks on GPUs need it, nothing else does."""

    name: str
    least: Version
    below: Version | None
    advice: str
    gpu_only: bool = False


PACKAGES = (
    Package("triton", (3, 6), (3, 10), "pip install 'triton>=3.6,<3.10'"),
    Package("torch", (2, 9), None, "pip install 'torch>=2.9'"),
    Package("numpy", (2, 0), None, "pip install 'numpy>=2.0'"),
    Package("ml_dtypes", (0, 5), None, "pip install 'ml_dtypes>=0.5'"),
    Package("cuda-bindings", (12, 8), None, "pip install 'triton-dist[cuda]'", gpu_only=True),
)
PYTHON_LEAST, PYTHON_BELOW = (3, 11), (3, 13)
NVSHMEM_WHEELS = ("nvidia-nvshmem-cu13", "nvidia-nvshmem-cu12")


def installed_version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def parse_version(text: str) -> Version:
    """The leading numbers: "2.11.0+cu130" is (2, 11, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def python_version(version: Version = sys.version_info[:3]) -> Finding:
    """Python itself."""
    supported = PYTHON_LEAST <= version < PYTHON_BELOW
    return Finding(
        GROUP, "python", Status.OK if supported else Status.WARN, ".".join(map(str, version)),
        "" if supported else "tested with Python 3.11 and 3.12; use one of them",
    )  # fmt: skip


def own_version(version: str, installed: str | None) -> Finding:
    """triton_dist: the source that is imported, and whether Triton finds its simulator, which needs the package to be installed."""
    if installed is None:
        return Finding(
            GROUP, "triton_dist", Status.WARN, f"{version}, imported from a folder",
            "pip install it: Triton finds the simulator by the entry point of an installed package",
        )  # fmt: skip
    return Finding(GROUP, "triton_dist", Status.OK, version)


def package_versions(has_gpu: bool, installed: Installed = installed_version, packages: Sequence[Package] = PACKAGES) -> list[Finding]:
    """Each needed distribution."""
    return [package_version(package, installed(package.name), has_gpu) for package in packages]


def package_version(package: Package, version: str | None, has_gpu: bool) -> Finding:
    """One distribution: missing, of a supported version, or not."""
    if version is None:
        if package.gpu_only and not has_gpu:
            return Finding(GROUP, package.name, Status.NOT_TESTED, "not installed; only ranks on GPUs need it", package.advice)
        return Finding(GROUP, package.name, Status.MISSING, "not installed", package.advice)
    seen = parse_version(version)
    if seen < package.least:
        return Finding(GROUP, package.name, Status.MISSING, f"{version} is too old", package.advice)
    if package.below is not None and seen >= package.below:
        return Finding(GROUP, package.name, Status.WARN, f"{version} is newer than what is tested", package.advice)
    return Finding(GROUP, package.name, Status.OK, version)


def nvshmem_wheel(installed: Installed = installed_version) -> Finding:
    """NVSHMEM, for several hosts; torch's GPU wheels for Linux depend on it."""
    for name in NVSHMEM_WHEELS:
        version = installed(name)
        if version is not None:
            return Finding(GROUP, name, Status.OK, version)
    return Finding(
        GROUP, NVSHMEM_WHEELS[0], Status.NOT_TESTED, "not installed; only several hosts would need it", f"pip install {NVSHMEM_WHEELS[0]}"
    )


def cuda_versions(driver_api: int | None, torch_cuda: str | None) -> list[Finding]:
    """The CUDA version that the driver speaks (as ``cuDriverGetVersion`` numbers it) and the one that torch was built for."""
    findings = []
    if torch_cuda is None:
        findings.append(Finding(GROUP, "CUDA of torch", Status.NOT_TESTED, "torch was built without CUDA"))
    else:
        findings.append(Finding(GROUP, "CUDA of torch", Status.OK, torch_cuda))
    if driver_api is None:
        return findings
    speaks = driver_api // 1000, driver_api % 1000 // 10
    text = f"{speaks[0]}.{speaks[1]}"
    if torch_cuda is not None and parse_version(torch_cuda)[:1] > speaks[:1]:
        advice = f"install a driver for CUDA {torch_cuda}, or a torch for CUDA {speaks[0]}"
        findings.append(Finding(GROUP, "CUDA of the driver", Status.WARN, f"{text} is older than torch's", advice))
    else:
        findings.append(Finding(GROUP, "CUDA of the driver", Status.OK, text))
    return findings


def driver_version(text: str | None) -> Finding:
    """The kernel driver. text: what /proc/driver/nvidia/version holds, or None."""
    if text is None:
        return Finding(GROUP, "driver", Status.NOT_TESTED, "no NVIDIA driver here", "install NVIDIA's driver to use GPUs")
    match = re.search(r"\b(\d{3,}\.\d+(\.\d+)?)\b", text)
    return Finding(GROUP, "driver", Status.OK, match.group(1) if match else text.splitlines()[0])


def read_driver_version(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """What the kernel driver says of itself."""
    try:
        return path.read_text()
    except OSError:
        return None


def ptxas_version(path: str) -> Finding:
    """The assembler that Triton brings. path: where it is."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(GROUP, "ptxas", Status.MISSING, f"{path} does not run: {error}", "reinstall triton, or set TRITON_PTXAS_PATH")
    match = re.search(r"release (\S+?),", done.stdout)
    return Finding(GROUP, "ptxas", Status.OK, match.group(1) if match else done.stdout.strip().splitlines()[-1])


def ptxas_path() -> str:
    """Where Triton takes ptxas from."""
    from triton import knobs

    return str(knobs.nvidia.ptxas.path)
