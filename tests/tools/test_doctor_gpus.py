"""What the doctor says of GPUs, links, peers and addresses, on machines that a fake driver describes."""

from __future__ import annotations

import subprocess

import pytest
import torch

from tests.tools.fake_cuda import FakeDriver, FakeNvml
from triton_dist.errors import AddressInUseError
from triton_dist.runtime.address_map import CONTEXT, STRIDE, heap_base
from triton_dist.tools.doctor import gpus, links, slots
from triton_dist.tools.doctor.finding import Status

TOPOLOGY = """\
\x1b[4m\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0
GPU1\tNV18\t X \tNV18\tSYS\t0-47\t0
GPU2\tSYS\tNV18\t X \tSYS\t48-95\t1
NIC0\tPIX\tSYS\tSYS\t X

Legend:
  X    = Self
"""


def seen(count: int) -> list[gpus.GPU]:
    return gpus.list_gpus(FakeDriver(count), lambda index: 70 << 30)


def test_gpus_are_described():
    first, second = seen(2)
    assert (first.name, first.capability, first.sms, second.bus) == ("Test GPU", (9, 0), 132, "0000:01:00.0")
    finding = gpus.describe_gpu(second)
    assert finding.status is Status.OK and finding.name == "GPU 1"
    assert finding.value == "Test GPU, sm_90, 132 SMs, 80.0 GiB, 70.0 GiB free, 0000:01:00.0"


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"capability": (7, 5)}, Status.WARN, "sm_80"),
        ({"free": 1 << 30}, Status.WARN, "TRITON_DIST_HEAP_SIZE"),
        ({"free": None}, Status.OK, ""),
    ],
)
def test_old_and_full_gpus(change, status, text):
    (gpu,) = seen(1)
    finding = gpus.describe_gpu(gpus.GPU(**{**vars(gpu), **change}))
    assert finding.status is status and text in finding.advice


def test_attributes_of_all_gpus():
    assert [finding.status for finding in gpus.device_attributes(FakeDriver(3), 3)] == [Status.OK] * 4


@pytest.mark.parametrize(
    ("attribute", "name", "status"),
    [
        ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "virtual memory", Status.MISSING),
        ("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", "memory handles as file descriptors", Status.MISSING),
        ("CAN_USE_64_BIT_STREAM_MEM_OPS", "64-bit signals of streams", Status.WARN),
        ("MULTICAST_SUPPORTED", "multicast", Status.WARN),
    ],
)
def test_an_attribute_that_a_gpu_lacks(attribute, name, status):
    driver = FakeDriver(3, lacks={attribute: {1}})
    (finding,) = [finding for finding in gpus.device_attributes(driver, 3) if finding.status is not Status.OK]
    assert (finding.name, finding.status, finding.data) == (name, status, {"without": [1]})
    assert not [call for call in driver.calls if "Multicast" in call]  # asked for, never made


def test_peers_that_all_reach_each_other():
    access, atomics = gpus.peer_matrices(FakeDriver(4), 4)
    assert access.status is atomics.status is Status.OK
    assert access.data["pairs"] == [[i, j, True] for i in range(4) for j in range(4) if i != j]


def test_peers_that_do_not_reach_each_other():
    driver = FakeDriver(3, apart={"ACCESS_SUPPORTED": {(0, 2), (2, 0)}, "NATIVE_ATOMIC_SUPPORTED": {(1, 2)}})
    access, atomics = gpus.peer_matrices(driver, 3)
    assert access.status is Status.MISSING and access.value == "not from GPU 0 to 2, 2 to 0"
    assert atomics.status is Status.WARN and [1, 2, False] in atomics.data["pairs"] and [2, 1, True] in atomics.data["pairs"]
    assert [finding.status for finding in gpus.peer_matrices(FakeDriver(1), 1)] == [Status.NOT_TESTED] * 2


def test_many_pairs_are_cut_short():
    finding = gpus.judge_matrix("peer access", [[i == j for j in range(4)] for i in range(4)], Status.MISSING, "")
    assert finding.value.endswith(", ...") and finding.value.count("to") == 8


def test_links_by_nvml():
    nvml = FakeNvml([18, 18, 18])
    count, paths = links.link_findings(seen(3), nvml, None)
    assert (count.status, count.value) == (Status.OK, "18 active on each GPU")
    assert (paths.status, paths.value) == (Status.OK, "NVLink between every pair")
    assert nvml.open == 0


def test_links_that_are_down_or_missing():
    count, paths = links.link_findings(seen(3), FakeNvml([18, 17, 0], {(0, 2): 50, (1, 2): -1}), None)
    assert count.status is Status.WARN and "[18, 17, 0]" in count.value and "nvlink --status" in count.advice
    assert paths.status is Status.WARN and paths.value == "GPU 0 and 2: between sockets; GPU 1 and 2: unknown (unknown)"
    assert links.link_findings(seen(2), FakeNvml([0, 0], {(0, 1): 10}), None)[0].status is Status.WARN


def test_links_by_nvidia_smi():
    assert links.parse_topology(TOPOLOGY) == {(0, 1): "NV18", (0, 2): "SYS", (1, 2): "NV18"}
    (finding,) = links.link_findings(seen(3), None, TOPOLOGY)
    assert finding.status is Status.WARN and finding.value == "GPU0 and GPU2: SYS"
    (finding,) = links.link_findings(seen(3), None, TOPOLOGY.replace("SYS", "NV18"))
    assert finding.status is Status.OK
    assert links.links_by_topology("Failed to initialize NVML").status is Status.NOT_TESTED


def test_links_of_one_gpu_and_without_any_tool():
    assert links.link_findings(seen(1), FakeNvml([18]), TOPOLOGY)[0].status is Status.NOT_TESTED
    assert "nvidia-ml-py" in links.link_findings(seen(2), None, None)[0].advice


def test_reading_the_topology(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert links.read_topology() is None
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho GPU0 X\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert links.read_topology() == "GPU0 X\n"


def test_slots_that_are_free():
    reserved: list[tuple[int, int]] = []
    freed: list[tuple[int, int]] = []
    problems = slots.try_slots(3, lambda *slot: reserved.append(slot), lambda *slot: freed.append(slot))
    assert reserved == freed == [(address, STRIDE) for address in (CONTEXT, heap_base(0), heap_base(1), heap_base(2))]
    finding = slots.judge_slots(3, problems)
    assert finding.status is Status.OK and finding.value == f"context and 3 ranks, {CONTEXT:#x} to {heap_base(3):#x}"


def test_a_slot_that_is_taken():
    freed: list[int] = []

    def reserve(address: int, size: int) -> None:
        if address == heap_base(1):
            raise AddressInUseError("something else is there")

    problems = slots.try_slots(2, reserve, lambda address, size: freed.append(address))
    assert problems == {"rank 1": "something else is there"} and freed == [CONTEXT, heap_base(0)]
    finding = slots.judge_slots(2, problems)
    assert finding.status is Status.MISSING and "rank 1: something else is there" in finding.value


def test_slots_are_asked_for_in_a_fresh_process():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    finding = slots.probe_slots(2)
    assert finding.status is Status.MISSING  # no driver here: the process says so, and nothing is raised
    assert "cuda-bindings" in finding.value or "libcuda" in finding.value


def test_a_fresh_process_that_hangs(monkeypatch):
    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", run)
    assert "within 5 s" in slots.probe_slots(2, timeout=5).value
