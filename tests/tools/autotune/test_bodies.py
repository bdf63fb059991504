"""The bodies for CPU processes and GPUs, on simulated ranks."""

from __future__ import annotations

import pytest

from tests.tools.autotune import bodies
from triton_dist.errors import AutotuneWarning


def test_operator(world):
    with pytest.warns(AutotuneWarning, match="2 of 3"):
        assert world(bodies.operator, 2) == ["chunk=16, extra=0"] * 2


def test_kernel(world):
    results = world(bodies.kernel, 3)
    assert results[0] == results[1] == results[2]
