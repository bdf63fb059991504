"""All questions of the doctor, in order. A probe that raises becomes a finding: one broken thing must not hide the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from . import gpus, host, links, slots, software
from .finding import Finding, Status, failed

Answer = Finding | list[Finding]


def examine(quick: bool = False, timeout: float = 180.0) -> list[Finding]:
    """Everything about this machine. quick: without what is measured. timeout: seconds for the measured part."""
    torch = _import_torch()
    count = torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0
    findings = list(_versions(torch, count > 0))
    if count:
        findings += _gpus(torch, quick, timeout)
    else:
        findings.append(no_gpu(software.read_driver_version() is not None, getattr(getattr(torch, "version", None), "cuda", None)))
    if torch is not None and software.installed_version("triton") is not None:
        findings += _anywhere()
    findings += _ask(host.LIMITS, "locked memory", host.locked_memory)
    findings += _ask(host.LIMITS, "open files", host.open_files)
    findings += _ask(host.LIMITS, "/dev/shm", host.shared_memory)
    findings += _ask(host.ENVIRONMENT, "variables", lambda: host.variables(os.environ))
    return findings


def no_gpu(has_driver: bool, torch_cuda: str | None) -> Finding:
    """Why there is no GPU to use, which is an error only where one is there and torch does not see it."""
    if not has_driver:
        value = "none here: kernels run on simulated ranks (triton_dist.simulate), and compile for GPUs"
        return Finding(gpus.GPUS, "GPU", Status.NOT_TESTED, value)
    if torch_cuda is None:
        advice = "install a torch with CUDA: see https://pytorch.org/get-started/locally"
        return Finding(gpus.GPUS, "GPU", Status.MISSING, "there is an NVIDIA driver, but torch was built without CUDA", advice)
    advice = "look at CUDA_VISIBLE_DEVICES, and whether nvidia-smi shows GPUs"
    return Finding(gpus.GPUS, "GPU", Status.MISSING, "there is an NVIDIA driver, but torch sees no GPU", advice)


def _import_torch() -> Any | None:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _ask(group: str, name: str, probe: Callable[[], Answer]) -> list[Finding]:
    try:
        found = probe()
    except Exception as error:
        return [failed(group, name, error)]
    return found if isinstance(found, list) else [found]


def _versions(torch: Any | None, has_gpu: bool) -> Iterator[Finding]:
    from ... import __version__

    yield software.python_version()
    yield software.own_version(__version__, software.installed_version("triton-dist"))
    yield from software.package_versions(has_gpu)
    yield software.nvshmem_wheel()
    yield software.driver_version(software.read_driver_version())
    api = _driver_api() if has_gpu else None
    yield from software.cuda_versions(api, getattr(getattr(torch, "version", None), "cuda", None))
    if software.installed_version("triton") is not None:
        yield from _ask(software.GROUP, "ptxas", lambda: software.ptxas_version(software.ptxas_path()))


def _driver_api() -> int | None:
    from ...errors import TritonDistError
    from ...runtime.cuda import driver

    try:
        return int(driver.call("cuDriverGetVersion"))
    except TritonDistError:
        return None


def _gpus(torch: Any, quick: bool, timeout: float) -> Iterator[Finding]:
    """What needs a GPU. Without cuda-bindings only torch can be asked, and the missing package is among the versions."""
    from ...runtime.cuda import driver

    if software.installed_version("cuda-bindings") is None:
        count = torch.cuda.device_count()
        yield Finding(
            gpus.GPUS, "GPU", Status.NOT_TESTED, f"{count}, of which cuda-bindings would tell more", "pip install 'triton-dist[cuda]'"
        )
        return
    try:
        seen = gpus.list_gpus(driver, lambda index: int(torch.cuda.mem_get_info(index)[0]))
    except Exception as error:
        yield failed(gpus.GPUS, "GPU", error, "look at nvidia-smi and dmesg")
        return
    count = len(seen)
    yield from (gpus.describe_gpu(gpu) for gpu in seen)
    yield from _ask(gpus.GPUS, "attributes", lambda: gpus.device_attributes(driver, count))
    yield from _ask(links.LINKS, "links", lambda: links.link_findings(seen, links.load_nvml(), links.read_topology()))
    yield from _ask(gpus.PEERS, "peers", lambda: gpus.peer_matrices(driver, count))
    yield from _ask(slots.GROUP, "reservation", lambda: slots.probe_slots(count))
    yield from _measured(count, quick, timeout)


def _measured(count: int, quick: bool, timeout: float) -> list[Finding]:
    from . import ranks

    if quick:
        return [Finding(ranks.GROUP, "heap test", Status.NOT_TESTED, "skipped by --quick")]
    try:
        return ranks.judge_measured(ranks.run_ranks(count, timeout))
    except ranks.RanksError as error:
        advice = "ranks on GPUs do not work here as it is: the message says why; --timeout gives them more time"
        return [Finding(ranks.GROUP, "heap test", Status.MISSING, str(error), advice)]


def _anywhere() -> Iterator[Finding]:
    from . import simulator

    yield from _ask(simulator.GROUP, "simulator", simulator.check_simulator)
    yield from _ask(simulator.GROUP, "compilation", simulator.check_compilation)
