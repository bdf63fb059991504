"""Tests here run on CPU processes: ``world`` is a pool of workers that stays from test to test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.world import CpuProcessWorld


@pytest.fixture(scope="session")
def cpu_processes() -> Iterator[CpuProcessWorld]:
    """The workers."""
    made = CpuProcessWorld()
    yield made
    made.close()


@pytest.fixture
def world(cpu_processes: CpuProcessWorld) -> CpuProcessWorld:
    """Stands in for the simulated world of ``tests/conftest.py``."""
    return cpu_processes
