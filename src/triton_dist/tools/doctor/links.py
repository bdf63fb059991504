"""How the GPUs are connected: by NVML where nvidia-ml-py is installed, else by what nvidia-smi prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Any

from .finding import Finding, Status, by_pair
from .gpus import GPU

LINKS = "links"
MOST_LINKS = 18
ADVICE = "pip install nvidia-ml-py, or put nvidia-smi on the PATH"
_PATHS = {0: "same board", 10: "one PCIe switch", 20: "PCIe switches", 30: "host bridge", 40: "one NUMA node", 50: "between sockets"}
"""NVML's common ancestors of two devices."""


def link_findings(gpus: Sequence[GPU], nvml: Any | None, topology: str | None) -> list[Finding]:
    """From NVML if there is one, else from the text of ``nvidia-smi topo -m``, else a finding that says how to get one of them."""
    if len(gpus) < 2:
        return [Finding(LINKS, "links", Status.NOT_TESTED, "there is one GPU")]
    if nvml is not None:
        return links_by_nvml(gpus, nvml)
    if topology is not None:
        return [links_by_topology(topology)]
    return [Finding(LINKS, "links", Status.NOT_TESTED, "neither nvidia-ml-py nor nvidia-smi is there", ADVICE)]


def links_by_nvml(gpus: Sequence[GPU], nvml: Any) -> list[Finding]:
    """Active NVLinks of each GPU, and the path between each pair."""
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByPciBusId(gpu.bus) for gpu in gpus]
        counts = [_active_links(nvml, handle) for handle in handles]
        pairs = {
            (gpus[i].index, gpus[j].index): _path(nvml, handles[i], handles[j]) for i in range(len(gpus)) for j in range(i + 1, len(gpus))
        }
    finally:
        nvml.nvmlShutdown()
    findings = []
    if len(set(counts)) == 1:
        findings.append(Finding(LINKS, "NVLinks", Status.OK if counts[0] else Status.WARN, f"{counts[0]} active on each GPU", data=counts))
    else:
        advice = "a link may be down: look at nvidia-smi nvlink --status"
        findings.append(Finding(LINKS, "NVLinks", Status.WARN, f"active on GPU 0, 1, ...: {counts}", advice, counts))
    slow = {pair: path for pair, path in pairs.items() if path != "NVLink"}
    data = by_pair((one, other, path) for (one, other), path in pairs.items())
    if slow:
        value = "; ".join(f"GPU {one} and {other}: {path}" for (one, other), path in slow.items())
        findings.append(Finding(LINKS, "paths", Status.WARN, value, "pairs without NVLink are many times slower", data))
    else:
        findings.append(Finding(LINKS, "paths", Status.OK, "NVLink between every pair", data=data))
    return findings


def _active_links(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(MOST_LINKS):
        try:
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link)) == 1
        except nvml.NVMLError:  # this GPU has no such link
            break
    return active


def _path(nvml: Any, one: Any, other: Any) -> str:
    try:
        if int(nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)) == int(nvml.NVML_P2P_STATUS_OK):
            return "NVLink"
    except nvml.NVMLError:
        pass  # an older driver: the common ancestor still says how far they are
    try:
        return _PATHS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)), "unknown")
    except nvml.NVMLError as error:
        return f"unknown ({error})"


def links_by_topology(text: str) -> Finding:
    """The matrix that ``nvidia-smi topo -m`` prints; its numbers are nvidia-smi's, whatever CUDA_VISIBLE_DEVICES says."""
    cells = parse_topology(text)
    if not cells:
        return Finding(LINKS, "paths", Status.NOT_TESTED, "nvidia-smi topo -m printed no matrix", ADVICE)
    slow = {pair: cell for pair, cell in cells.items() if not cell.startswith("NV")}
    data = by_pair((one, other, cell) for (one, other), cell in cells.items())
    if slow:
        value = "; ".join(f"GPU{one} and GPU{other}: {cell}" for (one, other), cell in slow.items())
        return Finding(LINKS, "paths", Status.WARN, value, "pairs without NVLink are many times slower", data)
    return Finding(LINKS, "paths", Status.OK, f"NVLink between every pair ({', '.join(sorted(set(cells.values())))})", data=data)


def parse_topology(text: str) -> dict[tuple[int, int], str]:
    """{(0, 1): "NV18", ...} for each pair of GPUs once, from the table with colours or without."""
    rows: dict[int, list[str]] = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        match = re.match(r"\s*GPU(\d+)\s+(.*)", line)
        if match and not match.group(2).lstrip().startswith("GPU"):
            rows[int(match.group(1))] = match.group(2).split()
    order = sorted(rows)
    return {
        (one, other): rows[one][order.index(other)]
        for one in order
        for other in order
        if one < other and order.index(other) < len(rows[one])
    }


def load_nvml() -> Any | None:
    """The module of nvidia-ml-py, or None."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    return pynvml


def read_topology() -> str | None:
    """What ``nvidia-smi topo -m`` prints, or None where it can't be run."""
    try:
        return subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
