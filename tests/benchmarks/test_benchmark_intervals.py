"""Medians, their intervals, and ratios of paired rounds."""

import random

import pytest
from harness.intervals import estimate_median, estimate_ratio, fewest_samples


@pytest.mark.parametrize("count, rank", [(6, 1), (20, 6), (25, 8), (100, 40)])
def test_the_interval_is_that_of_the_tables(count, rank):
    """Ranks of the 95 % interval of a median, as printed in tables of the sign test."""
    samples = list(range(1, count + 1))
    random.Random(0).shuffle(samples)
    estimate = estimate_median(samples)
    assert (estimate.low, estimate.high) == (rank, count + 1 - rank)
    assert estimate.median == (count + 1) / 2


def test_it_holds_the_median_as_often_as_it_says():
    """Of a very skewed distribution, whose median is ln 2."""
    draw = random.Random(1)
    inside = 0
    for _ in range(2000):
        estimate = estimate_median([draw.expovariate(1) for _ in range(25)])
        inside += estimate.low <= 0.6931 <= estimate.high
    assert 0.94 <= inside / 2000 <= 0.975


def test_drift_cancels_in_paired_rounds():
    """Both get slower from round to round by more than they differ."""
    draw = random.Random(2)
    peer = [100 * (1 + 0.1 * index) * draw.uniform(0.99, 1.01) for index in range(25)]
    ours = [0.9 * time * draw.uniform(0.99, 1.01) for time in peer]
    ratio = estimate_ratio(ours, peer)
    assert 0.88 < ratio.low < 0.9 < ratio.high < 0.92
    whole = estimate_median(ours)
    assert whole.high / whole.low > 1.5


def test_too_few_samples():
    assert fewest_samples() == 6
    with pytest.raises(ValueError, match="5 samples can't bound a median with confidence 0.95; take at least 6"):
        estimate_median([1.0] * 5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_sample_that_is_no_time(bad):
    with pytest.raises(ValueError, match="must be finite"):
        estimate_median([1.0] * 9 + [bad])


def test_samples_that_are_no_pairs():
    with pytest.raises(ValueError, match="9 and 10 samples are not pairs"):
        estimate_ratio([1.0] * 9, [1.0] * 10)
    with pytest.raises(ValueError, match="a time of zero"):
        estimate_ratio([1.0] * 9, [1.0] * 8 + [0.0])
