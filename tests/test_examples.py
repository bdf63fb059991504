"""Every example runs to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name], cwd=tmp_path, env=os.environ.copy(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if name == "04_profiler.py":
        assert "rank 3: " in done.stdout and "% of " in done.stdout and (tmp_path / "out" / "profiler.json").exists()
    if name == "demo.py":
        assert "nobody wrote it" in done.stdout and "every tile arrived" in done.stdout
        assert (tmp_path / "out" / "ag_gemm_timeline.png").stat().st_size > 10_000
    if name == "22_aot.py":
        assert "built libpushes.so" in done.stdout and "load_push: " in done.stdout
    if name == "23_inspect.py":
        assert "narrowest remote access 4 bytes" in done.stdout and "narrowest remote access 16 bytes" in done.stdout
    if name == "25_inductor_pass.py":
        assert done.stdout.count("2 of 2 collectives are part of an operator") == 2 and " are gemm_rs of " in done.stdout
    if name == "05_torch_symmetric_memory.py":
        assert done.stdout.count(": done") == 4 and "data race on buffer" in done.stdout


UNDER_TORCHRUN = [
    ("01_producer_consumer.py", 4), ("02_ag_gemm.py", 1), ("02_ag_gemm.py", 3), ("04_profiler.py", 2), ("20_autotune.py", 2),
    ("06_tensor_parallel.py", 2), ("21_torch_symm.py", 3), ("24_build_extern.py", 2), ("25_inductor_pass.py", 2),
    ("26_mega_kernel.py", 2), ("demo.py", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ranks"), UNDER_TORCHRUN)
def test_example_under_torchrun_without_a_gpu(name, ranks, tmp_path):
    before = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), ROOT / "examples" / name],
        cwd=tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = {
        "01_producer_consumer.py": "every tile arrived", "02_ag_gemm.py": "on rank ", "demo.py": "CPU processes",
        "06_tensor_parallel.py": "trained weights",
        "04_profiler.py": "on rank ", "20_autotune.py": "* chunk=", "21_torch_symm.py": "returned [0, 0]",
        "24_build_extern.py": "the largest error is ",
        "25_inductor_pass.py": "2 of 2 collectives are part of an operator",
        "26_mega_kernel.py": "three tokens through two layers",
    }[name]  # fmt: skip
    assert done.stdout.count(said) == (1 if name in ("demo.py", "20_autotune.py") else ranks)
    if name == "demo.py":
        assert all(f"rank {rank}, host: synchronize() waits for all its streams" in done.stdout for rank in range(ranks))
    assert set(Path("/dev/shm").iterdir()) <= before, "something is left in shared memory"


def test_the_readme_kernel_runs(tmp_path):
    """The kernel printed in the README, as it stands there."""
    text = (ROOT / "README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    script = tmp_path / "readme.py"
    script.write_text(
        code + "\nfor rank, out in enumerate(results):\n    assert (out == 2 * ((rank - 1) % 4)).all(), rank\nprint('right')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "right", done.stderr
