"""The symmetric heap on real GPUs: ``heap_program.py`` under torchrun, and one kernel cache for worlds of several sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.worlds import gpus

GPUS = torch.cuda.device_count()
PROGRAM = Path(__file__).parent / "heap_program.py"

pytestmark = pytest.mark.skipif(GPUS == 0, reason="needs a GPU")


def run(ranks: int, *parts: str, **environment: str) -> dict[str, str]:
    """What the program prints of its parts, on ``ranks`` ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(PROGRAM), *parts]
    environment = {**os.environ, **environment, "PYTHONFAULTHANDLER": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if (
        "Segmentation fault" in done.stderr
        and "/torch/distributed/_symmetric_memory/" in done.stderr.split("most recent call first")[1][:400]
    ):
        pytest.skip("torch's own rendezvous crashes here")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.split(": ", 1) for line in done.stdout.splitlines())
    outcomes = {line[0]: line[1] for line in lines if len(line) == 2 and line[1].startswith(("right", "wrong on", "skipped"))}
    assert outcomes, done.stdout + done.stderr
    assert not any(said.startswith("wrong") for said in outcomes.values()), done.stdout + done.stderr
    return outcomes


def need(gpus: int) -> None:
    if gpus > GPUS:
        pytest.skip(f"needs {gpus} GPUs")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_one_rank_a_gpu(ranks):
    need(ranks)
    outcomes = run(ranks)
    if ranks == 4:
        assert {said for part, said in outcomes.items() if part not in ("torch_memory_pool", "torch_other_backend")} == {"right"}


def test_two_ranks_share_a_gpu():
    assert run(2, CUDA_VISIBLE_DEVICES=gpus.first())["teams"] == "right"


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_process_sees_one_gpu(ranks):
    need(ranks)
    assert run(ranks, ONE_GPU_EACH="1")["teams"] == "right"


@pytest.mark.parametrize("backend", ["NVSHMEM", "NCCL"])
def test_other_backends_of_torch(backend):
    need(2)
    run(2, "torch_other_backend", TORCH_SYMM_BACKEND=backend)


def test_expandable_segments():
    """Where torch's ordinary tensors are mapped memory, too, they are adopted rightly or refused by name."""
    need(2)
    assert run(2, "ordinary_memory", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True") == {"ordinary_memory": "right"}


def test_kernels_are_compiled_once_for_all_worlds(tmp_path):
    """Rank, world size and heap size are read when a kernel runs: worlds of other sizes find their kernels in the cache, and are right."""
    parts = ("context_page", "joined_again")

    def compiled() -> set[str]:
        return {str(path) for path in tmp_path.rglob("*.cubin")}

    def use(ranks: int, heap_size: int) -> None:
        outcomes = run(ranks, *parts, TRITON_CACHE_DIR=str(tmp_path), TRITON_DIST_HEAP_SIZE=str(heap_size))
        assert outcomes == dict.fromkeys(parts, "right")

    use(1, 64 << 20)
    use(min(GPUS, 2), 64 << 20)  # what depends on the team's size as a constant is compiled here
    sizes = [size for size in (1, 2, 4) if size <= GPUS]
    for size in sizes[2:]:
        use(size, 64 << 20)
    after_first_runs = compiled()
    assert after_first_runs
    for size in sizes:
        use(size, 96 << 20)
    assert compiled() == after_first_runs, "the second runs compile nothing"
    cached_once = [path for path in after_first_runs if Path(path).stem == "identity_kernel"]
    assert len(cached_once) == 1, "one kernel for all world sizes"
