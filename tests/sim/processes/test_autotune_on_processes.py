"""Tuning on CPU processes, where each rank measures for itself and a hang is found by all of them."""

from __future__ import annotations

from tests.tools.autotune import bodies


def test_operator(world):
    assert world(bodies.operator, 2, timeout=120) == ["chunk=16, extra=0"] * 2


def test_kernel(world):
    results = world(bodies.kernel, 2, timeout=120)
    assert results[0] == results[1]


def test_times_that_diverge_among_ranks(world):
    """Each process measures other times, and would choose another config."""
    first, second = world(bodies.divergent_times, 2)
    assert first[0] == 50 and first == second
