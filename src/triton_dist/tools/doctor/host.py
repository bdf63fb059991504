"""Limits of this host's processes, and the environment variables that change what triton_dist does."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from .finding import Finding, Status

LIMITS = "limits"
ENVIRONMENT = "environment"
PREFIXES = ("TRITON_DIST_", "NCCL_", "NVSHMEM_")
NAMES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_MODULE_LOADING", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF",
    "TRITON_CACHE_DIR", "TRITON_INTERPRET", "TRITON_PTXAS_PATH",
)  # fmt: skip
SHARED_MEMORY_LEAST = 64 << 20
"""Bytes of /dev/shm below which other libraries (NCCL, torch's data loaders) run into trouble: the size that containers give by default."""
LOCKED_LEAST = 64 << 10
DESCRIPTORS_LEAST = 1024


def locked_memory(soft: int | None = None) -> Finding:
    """``ulimit -l``; the symmetric heap itself locks none. soft: bytes, by default the process's limit."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if soft is None else soft
    if soft == resource.RLIM_INFINITY:
        return Finding(LIMITS, "locked memory", Status.OK, "unlimited")
    small = soft <= LOCKED_LEAST
    advice = "ulimit -l unlimited, if NCCL or NVSHMEM over InfiniBand complain; the symmetric heap of one host needs none" if small else ""
    return Finding(LIMITS, "locked memory", Status.WARN if small else Status.OK, f"{soft >> 10} KiB", advice)


def open_files(soft: int | None = None) -> Finding:
    """``ulimit -n``: initializing passes a descriptor from each rank to each."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    if soft == resource.RLIM_INFINITY:
        return Finding(LIMITS, "open files", Status.OK, "unlimited")
    few = soft < DESCRIPTORS_LEAST
    return Finding(LIMITS, "open files", Status.WARN if few else Status.OK, str(soft), f"ulimit -n {DESCRIPTORS_LEAST}" if few else "")


def shared_memory(path: str = "/dev/shm") -> Finding:
    """Size and free part of /dev/shm."""
    try:
        seen = os.statvfs(path)
    except OSError as error:
        return Finding(LIMITS, path, Status.WARN, f"not there: {error}", "mount a tmpfs there; NCCL needs one")
    size, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
    small = size <= SHARED_MEMORY_LEAST
    advice = "start the container with --shm-size=1g or --ipc=host, for NCCL and data loaders" if small else ""
    return Finding(LIMITS, path, Status.WARN if small else Status.OK, f"{size >> 20} MiB, {free >> 20} MiB free", advice)


def variables(environment: Mapping[str, str]) -> list[Finding]:
    """The variables that matter and are set, with a warning for those that rarely are what is wanted."""
    chosen = sorted(name for name in environment if name in NAMES or name.startswith(PREFIXES))
    findings = [_variable(name, environment[name]) for name in chosen]
    return findings or [Finding(ENVIRONMENT, "variables", Status.OK, "none that matters is set")]


def _variable(name: str, value: str) -> Finding:
    advice = ""
    if name == "TRITON_DIST_HEAP_SIZE" and not value.strip().isdigit():
        advice = "a number of bytes, such as 1073741824"
    elif name == "CUDA_LAUNCH_BLOCKING" and value == "1":
        advice = "unset it: a kernel that waits for another one of the same process would hang"
    elif name == "CUDA_DEVICE_MAX_CONNECTIONS" and value == "1":
        advice = "unset it, or a kernel that waits may keep the one that it waits for from starting"
    elif name == "TRITON_INTERPRET" and value not in ("", "0"):
        advice = "unset it: Triton's interpreter runs one program after the other, so a wait never ends; use triton_dist.simulate"
    return Finding(ENVIRONMENT, name, Status.WARN if advice else Status.OK, value, advice)
