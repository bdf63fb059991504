"""Tests here run on the GPUs of this machine: ``world`` is a pool of worker processes that stays from test to test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.worlds import gpus
from tests.worlds.world import GpuWorld

GPUS = torch.cuda.device_count()
PLACEMENTS = ("gpu_each", "one_gpu")


def pytest_configure(config: pytest.Config) -> None:
    gpus.start_at_own(os.environ.get("PYTEST_XDIST_WORKER", ""))


@pytest.fixture(scope="session", params=PLACEMENTS)
def gpu_world(request) -> Iterator[GpuWorld]:
    """Each rank on a GPU of its own, or two ranks on one."""
    made = GpuWorld(GPUS, shared=request.param == "one_gpu")
    yield made
    made.close()


@pytest.fixture
def world(gpu_world: GpuWorld) -> GpuWorld:
    """Stands in for the simulated world of ``tests/conftest.py``."""
    if GPUS == 0:
        pytest.skip("needs a GPU")
    return gpu_world


@pytest.fixture
def stress_calls(request) -> tuple[int, int, float]:
    """Ranks that share a GPU take turns of many milliseconds, so they make few calls."""
    shared = request.node.callspec.params["gpu_world"] == "one_gpu"
    return (100 if shared else 10_000), 200, 1e-3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this machine has no GPUs for, and, of ranks that share one GPU, all but pairs."""
    kept, left_out = [], []
    for item in items:
        placement, size = _world_of(item)
        fits = not placement or GPUS == 0 or (size == 2 if placement == "one_gpu" else size <= GPUS)
        (kept if fits else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    spread_programs(items)


def spread_programs(items: list[pytest.Item]) -> None:
    """Order tests so that those of one world follow each other, and those that run whole programs, which take minutes, lie evenly between.

    Each of several workers is given a run of them, so that it starts few worlds.
    """
    short = sorted((item for item in items if "world" in getattr(item, "fixturenames", ())), key=_world_of)
    long = [item for item in items if "world" not in getattr(item, "fixturenames", ())]
    place = {item: number / len(group) for group in (long, short) for number, item in enumerate(group)}
    items.sort(key=place.__getitem__)


def _world_of(item: pytest.Item) -> tuple[str, int]:
    """Its placement, empty where it makes no choice, and number of ranks."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return str(parameters.get("gpu_world", "")), parameters.get("world_size", 2)
