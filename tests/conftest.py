"""The world that bodies of tests run on; ``tests/gpu/conftest.py`` has another one."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from tests.worlds.world import World, simulated_world

GPUS = torch.cuda.device_count()
GPU_TESTS = Path(__file__).parent / "gpu"


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection of garbage, of which some tests ask for many, looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests outside tests/gpu, and the processes that they start, see none, whatever the machine has."""
    if GPUS and GPU_TESTS not in request.node.path.parents:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.fixture
def world() -> World:
    """Simulated ranks."""
    return simulated_world


@pytest.fixture
def stress_calls() -> tuple[int, int, float]:
    """Calls of the stress test, steps of its longest delay kernel, and seconds of its longest pause."""
    return 16, 8, 0.0
