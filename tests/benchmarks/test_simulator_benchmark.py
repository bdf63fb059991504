"""The simulator's own benchmark runs to its end; its times are looked at by people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_runs(tmp_path):
    output = tmp_path / "simulator.json"
    command = [sys.executable, ROOT / "benchmarks" / "simulator.py", "--quick", "--most-ranks", "4", "--output", output]
    done = subprocess.run(command, cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())
    assert [row["ranks"] for row in results["ranks"]] == [1, 4]
    assert len(results["checked"]) == 2 and all(min(row["ms"], row["checked_ms"], row["all_ms"]) > 0 for row in results["checked"])
    assert all(row["ms"] > 0 and row["numpy_ms"] > 0 for row in results["kernels"])
    # NaN: what Triton's interpreter can't run (its version 3.6 fails in ``dot``).
    assert all(not row["interpreter_ms"] <= 0 for row in results["kernels"]) and results["kernels"][0]["interpreter_ms"] > 0
    assert {row["kernel"] for row in results["kernels"] if row.get("us_per_op", 0) > 0} >= {"softmax 1024 x 1024"}
