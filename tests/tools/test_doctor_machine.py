"""What the doctor says of versions, limits and variables, what it measures, and how it prints."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import sys
import time
import tomllib
import types
from pathlib import Path

import pytest
import torch
import triton.backends

import triton_dist
from tests.tools.fake_cuda import FakeDriver, FakeNvml
from triton_dist.runtime.cuda import driver
from triton_dist.tools.doctor import examine, host, links, ranks, render, simulator, slots, software
from triton_dist.tools.doctor.finding import Finding, Status, by_pair
from triton_dist.tools.doctor.measure import Sizes, measure

ROOT = Path(__file__).parents[2]
TRITON = software.PACKAGES[0]
BINDINGS = software.PACKAGES[-1]


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.6.0", Status.OK), ("3.9.1+git", Status.OK), ("3.5.1", Status.MISSING), ("3.10.0", Status.WARN), (None, Status.MISSING)],
)
def test_versions_are_judged(version, status):
    finding = software.package_version(TRITON, version, has_gpu=False)
    assert finding.status is status
    assert ("pip install" in finding.advice) == (status is not Status.OK)


def test_cuda_bindings_are_needed_with_a_gpu_only():
    assert software.package_version(BINDINGS, None, has_gpu=False).status is Status.NOT_TESTED
    assert software.package_version(BINDINGS, None, has_gpu=True).status is Status.MISSING
    assert software.package_version(BINDINGS, "13.0.3", has_gpu=True).status is Status.OK


def test_the_table_of_versions_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["cuda"]
    written = {}
    for requirement in asked:
        name, least, below = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,<([\d.]+))?", requirement).groups()
        written[name] = (software.parse_version(least), software.parse_version(below) if below else None)
    assert written == {package.name: (package.least, package.below) for package in software.PACKAGES}


def test_versions_of_this_machine():
    findings = {finding.name: finding for finding in software.package_versions(has_gpu=False)}
    # A wheel may say on which CUDA it was built in one of the two only.
    assert torch.__version__.startswith(findings["torch"].value) and findings["triton"].status is Status.OK
    assert software.installed_version("no-such-package-here") is None
    assert software.ptxas_version(software.ptxas_path()).status is Status.OK
    assert software.ptxas_version("/no/such/ptxas").status is Status.MISSING
    assert software.ptxas_version("/bin/false").status is Status.MISSING


def test_other_versions():
    assert software.python_version((3, 12, 1)).status is Status.OK
    assert software.python_version((3, 14, 0)).status is Status.WARN
    assert software.own_version("0.1.0", None).status is Status.WARN
    assert software.own_version("0.1.0", "0.1.0").status is Status.OK
    assert software.nvshmem_wheel(lambda name: "3.4" if name.endswith("cu12") else None).name == "nvidia-nvshmem-cu12"
    assert software.nvshmem_wheel(lambda name: None).status is Status.NOT_TESTED
    assert software.parse_version("unknown") == ()


def test_driver_and_cuda():
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun\nGCC version: gcc 12.3.0\n"
    assert software.driver_version(text).value == "570.133.20"
    assert software.driver_version(None).status is Status.NOT_TESTED
    assert [finding.status for finding in software.cuda_versions(12080, "12.8")] == [Status.OK, Status.OK]
    old = software.cuda_versions(12080, "13.0")[1]
    assert old.status is Status.WARN and old.value == "12.8 is older than torch's" and "CUDA 12" in old.advice
    assert len(software.cuda_versions(None, None)) == 1


def test_limits():
    assert host.locked_memory(resource.RLIM_INFINITY).status is Status.OK
    assert "ulimit -l" in host.locked_memory(64 << 10).advice
    assert host.open_files(256).status is Status.WARN and host.open_files(resource.RLIM_INFINITY).status is Status.OK
    assert host.shared_memory("/no/such/folder").status is Status.WARN
    assert host.shared_memory().value.endswith("MiB free")
    assert host.locked_memory().group == host.open_files().group


def test_small_shared_memory(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: type("", (), {"f_blocks": 16384, "f_frsize": 4096, "f_bavail": 100})())
    assert "--shm-size" in host.shared_memory().advice


@pytest.mark.parametrize(
    ("name", "value", "warned"),
    [
        ("TRITON_DIST_HEAP_SIZE", "1073741824", False),
        ("TRITON_DIST_HEAP_SIZE", "1G", True),
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "1", True),
        ("TRITON_INTERPRET", "1", True),
        ("NCCL_DEBUG", "INFO", False),
        ("CUDA_VISIBLE_DEVICES", "0,1", False),
    ],
)
def test_variables(name, value, warned):
    (finding,) = host.variables({name: value, "HOME": "/root", "SECRET": "x"})
    assert (finding.name, finding.value, finding.status is Status.WARN) == (name, value, warned)
    assert bool(finding.advice) == warned


def test_no_variable_that_matters():
    assert host.variables({"HOME": "/root"})[0].value == "none that matters is set"


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_what_ranks_measure(world, world_size):
    """On simulated ranks the numbers are the simulator's; the data is checked all the same."""
    results = world(measure, world_size, args=(Sizes(rounds=5, elements=20_000, repeats=2),))
    assert all(result == results[0] for result in results)
    measured = results[0]
    assert measured["wrong"] == [0] * world_size
    assert len(measured["latency"]) == world_size * (world_size - 1) // 2
    assert len(measured["push"]) == len(measured["copy_engine"]) == world_size * (world_size - 1)
    assert all(value > 0 for kind in ("latency", "push", "copy_engine") for _, _, value in measured[kind])
    findings = ranks.judge_measured(json.loads(json.dumps(measured)))
    assert findings[0].status is Status.OK
    # How fast a GPU is that others use, too, is not judged here.
    assert {finding.status for finding in findings[1:]} <= ({Status.OK, Status.WARN} if world_size > 1 else {Status.NOT_TESTED})


def test_bad_measurements_are_told():
    measured = {
        "wrong": [0, 7],
        "latency": [[0, 1, 80.0]],
        "copy_engine": [[0, 1, 370.0], [1, 0, 25.0]],
        "push": [[0, 1, 350.0], [1, 0, 340.0]],
    }
    heap, latency, engine, push = ranks.judge_measured(measured)
    assert heap.status is Status.MISSING and "[1]" in heap.value
    assert latency.status is Status.WARN and "80.00" in latency.value
    assert engine.status is Status.WARN and "GPU 1 to 0 is the slowest" in engine.advice
    assert push.status is Status.OK and push.value == "340 to 350 GB/s, 2 directions, one at a time"


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_ranks_give_a_result():
    code = f"import os, json; print('noise'); print({ranks.MARK!r} + json.dumps([os.environ['RANK'], os.environ['WORLD_SIZE']]))"
    assert ranks.run_ranks(2, 30, command(code)) == ["0", "2"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os, sys; sys.exit('no heap' if os.environ['RANK'] == '1' else 0)", "rank 1 ended with code 1: no heap"),
        ("print('hello')", "rank 0 printed no result: hello"),
        ("", "printed nothing"),
    ],
)
def test_ranks_that_fail_are_told(code, text):
    with pytest.raises(ranks.RanksError, match=text):
        ranks.run_ranks(2, 30, command(code))


def test_ranks_that_hang_are_killed(tmp_path):
    code = f"import os, time; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w'); time.sleep(600)"
    began = time.monotonic()
    with pytest.raises(ranks.RanksError, match="rank 0 had not ended after 6 s"):
        ranks.run_ranks(2, 6, command(code))
    assert time.monotonic() - began < 60
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_ranks_without_a_gpu_say_so():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (finding,) = examine._measured(1, quick=False, timeout=60)
    assert finding.status is Status.MISSING and "no GPU here" in finding.value
    assert examine._measured(1, quick=True, timeout=60)[0].status is Status.NOT_TESTED


def test_simulator_and_compilation_are_really_tried(monkeypatch):
    assert simulator.check_simulator().status is Status.OK
    assert simulator.check_compilation().status is Status.OK
    monkeypatch.setattr(triton_dist, "simulate", lambda fn, world_size: [[1], [2]])
    assert simulator.check_simulator().status is Status.MISSING


def test_a_package_that_is_only_on_the_path(monkeypatch):
    others = {name: backend for name, backend in triton.backends.backends.items() if name != "sim"}
    monkeypatch.setattr(triton.backends, "backends", others)
    finding = simulator.check_simulator()
    assert finding.status is Status.WARN and "pip install" in finding.advice


def test_why_there_is_no_gpu():
    assert examine.no_gpu(False, None).status is Status.NOT_TESTED
    assert "built without CUDA" in examine.no_gpu(True, None).value
    assert "CUDA_VISIBLE_DEVICES" in examine.no_gpu(True, "13.0").advice


def test_a_probe_that_raises_hides_nothing(monkeypatch):
    def broken():
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(host, "locked_memory", broken)
    findings = {finding.name: finding for finding in examine.examine(quick=True)}
    assert findings["locked memory"].status is Status.NOT_TESTED and findings["locked memory"].value == "ZeroDivisionError: oh"
    assert findings["open files"].value


def test_a_machine_with_gpus(monkeypatch):
    """All that is asked of GPUs but what is measured, on a machine that a fake driver describes."""
    fake = FakeDriver(2)
    monkeypatch.setattr(driver, "bindings", fake.bindings)
    monkeypatch.setattr(driver, "call", fake.call)
    monkeypatch.setattr(software, "installed_version", lambda name: "13.0.3")
    monkeypatch.setattr(links, "load_nvml", lambda: FakeNvml([18, 18]))
    monkeypatch.setattr(slots, "probe_slots", lambda count: slots.judge_slots(count, {}))
    gpus_of_torch = types.SimpleNamespace(
        cuda=types.SimpleNamespace(mem_get_info=lambda index: (70 << 30, 80 << 30), device_count=lambda: 2)
    )
    findings = {finding.name: finding for finding in examine._gpus(gpus_of_torch, quick=True, timeout=1)}
    assert {name for name, finding in findings.items() if finding.status is not Status.OK} == {"heap test"}
    assert set(findings) >= {"GPU 0", "GPU 1", "multicast", "NVLinks", "paths", "peer access", "peer atomics", "reservation"}
    monkeypatch.setattr(software, "installed_version", lambda name: None)
    (finding,) = examine._gpus(gpus_of_torch, quick=True, timeout=1)
    assert finding.status is Status.NOT_TESTED and "pip install" in finding.advice


def test_a_driver_that_fails(monkeypatch):
    def call(name, *arguments):
        raise driver.CudaDriverError(f"{name}: unknown error")

    monkeypatch.setattr(driver, "call", call)
    monkeypatch.setattr(software, "installed_version", lambda name: "13.0.3")
    (finding,) = examine._gpus(None, quick=True, timeout=1)
    assert finding.status is Status.NOT_TESTED and "cuInit: unknown error" in finding.value


FINDINGS = [
    Finding("one", "first", Status.OK, "fine [not markup]"),
    Finding("two", "second", Status.WARN, "so so", "do something"),
    Finding("one", "third", Status.NOT_TESTED, "unknown", data=[[1, 2]]),
]


def test_rendering():
    pytest.importorskip("rich")
    out = io.StringIO()
    render.print_tables(FINDINGS, out)
    text = out.getvalue()
    assert "fine [not markup]" in text and "→ do something" in text
    assert text.index("third") < text.index("two") and "1 ok, 1 warn, 1 not tested" in text
    told = json.loads(render.to_json(FINDINGS))
    assert told["ok"] is True and told["findings"][1]["status"] == "warn" and told["findings"][2]["data"] == [[1, 2]]


def test_pairs_are_shown_as_a_matrix():
    rows = [[0, 1, 370.123], [1, 0, 36.0]]
    assert render.matrix(rows) == [["", "to 0", "to 1"], ["GPU 0", "", "370"], ["GPU 1", "36", ""]]
    assert render.matrix([[0, 2, True], [2, 0, False]])[1:] == [["GPU 0", "", "yes"], ["GPU 2", "no", ""]]
    pytest.importorskip("rich")
    out = io.StringIO()
    render.print_tables([Finding("measured", "copy engine", Status.OK, "fine", data=by_pair(rows, "GB/s"))], out)
    assert "copy engine, GB/s" in out.getvalue() and re.search(r"GPU 1\s+36\s", out.getvalue())


def test_exit_codes():
    assert render.exit_code(FINDINGS) == 0
    assert render.exit_code([*FINDINGS, Finding("x", "y", Status.MISSING, "z")]) == 1
