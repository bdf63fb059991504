"""The doctor on a machine with GPUs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

GPUS = torch.cuda.device_count()


@pytest.mark.skipif(GPUS == 0, reason="needs a GPU")
def test_the_doctor_finds_nothing_missing():
    done = subprocess.run([sys.executable, "-m", "triton_dist.tools.doctor"], capture_output=True, text=True, timeout=400)
    told = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in told["findings"]}
    assert done.returncode == 0 and told["ok"], [finding for finding in told["findings"] if finding["status"] == "missing"]
    wanted = ["GPU 0", "reservation", "heap test", "simulator", "compilation"]  # the simulator may be a warning: run from a folder
    if GPUS > 1:
        wanted += ["peer access", "peer atomics", "signal latency", "copy engine", "push by SMs"]
    print("\n" + "\n".join(f"{name}: {found[name]['value']}" for name in wanted))
    assert [name for name in wanted if found[name]["status"] not in ("ok", "warn")] == []
