"""A bounded run of the differential fuzzer; ``python -m tests.fuzz.run --cases 2000`` runs as many as you like."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.case import run_case
from tests.gpu.programs import simulated

EXAMPLES = 180


@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False))
def test_random_kernels_compute_what_the_reference_does(rng):
    """Hypothesis draws every choice of the kernel, so a failure comes out as a small kernel."""
    with simulated():
        run_case(rng)
