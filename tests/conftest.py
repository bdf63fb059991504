"""The world that bodies of tests run on; ``tests/gpu/conftest.py`` has another one."""

from __future__ import annotations

import pytest

from tests.worlds.world import World, simulated_world


@pytest.fixture
def world() -> World:
    """Simulated ranks."""
    return simulated_world


@pytest.fixture
def stress_calls() -> tuple[int, int, float]:
    """Calls of the stress test, steps of its longest delay kernel, and seconds of its longest pause."""
    return 16, 8, 0.0
