"""Tests here run on CPU processes: ``world`` is a pool of workers that stays from test to test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.world import CpuProcessWorld


@pytest.fixture(scope="package")
def cpu_processes() -> Iterator[CpuProcessWorld]:
    """The workers."""
    made = CpuProcessWorld()
    yield made
    made.close()


@pytest.fixture
def world(cpu_processes: CpuProcessWorld) -> CpuProcessWorld:
    """Stands in for the simulated world of ``tests/conftest.py``."""
    return cpu_processes


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the shared tests take two ranks only, and of each test the first case that has them, unless all are asked for."""
    kept, left_out, seen = [], [], set()
    for item in items:
        module = getattr(item, "module", None)
        if getattr(module, "TAKES_ALL", True):
            kept.append(item)
            continue
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        name = getattr(item, "originalname", item.name)
        if parameters.get("world_size", 2) == 2 and name not in seen:
            seen.add(name)
            kept.append(item)
        else:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
