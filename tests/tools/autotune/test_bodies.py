"""The bodies for CPU processes and GPUs, on simulated ranks."""

from __future__ import annotations

import pytest

from tests.tools.autotune import bodies
from triton_dist.errors import AutotuneWarning


def test_operator(world):
    with pytest.warns(AutotuneWarning, match="2 of 3"):
        assert world(bodies.operator, 2) == ["chunk=16, extra=0"] * 2


def test_times_that_diverge_among_ranks(world):
    first, *others = world(bodies.divergent_times, 3)
    assert first[0] == 50 and all(other == first for other in others)
    assert first[1][0] > first[1][1] > first[1][2]


def test_kernel(world):
    results = world(bodies.kernel, 3)
    assert results[0] == results[1] == results[2]
