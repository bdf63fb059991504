"""Medians with intervals that assume nothing about how times are distributed, only that rounds are independent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median and the two-sided interval that holds the true one with probability ``CONFIDENCE`` or more."""

    median: float
    low: float
    high: float


def fewest_samples(confidence: float = CONFIDENCE) -> int:
    """The fewest samples whose smallest and largest bound the median with this confidence: 6 for 0.95."""
    return math.ceil(1 - math.log2(1 - confidence))


def estimate_median(samples: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Median of ``samples`` and its interval, by order statistics.

    How many of n samples lie below the true median is binomial(n, 1/2), so the k-th smallest and the k-th largest hold it between
    them with probability 1 - 2 P(binomial < k). The largest k that keeps the confidence is used.
    Raises ValueError for fewer than ``fewest_samples`` samples, and for values that are not finite.
    """
    count = len(samples)
    if count < fewest_samples(confidence):
        raise ValueError(f"{count} samples can't bound a median with confidence {confidence}; take at least {fewest_samples(confidence)}")
    if not all(math.isfinite(sample) for sample in samples):
        raise ValueError(f"samples must be finite, not {[sample for sample in samples if not math.isfinite(sample)][0]}")
    ordered = sorted(samples)
    outside, rank = 0.0, 0
    while True:
        outside += math.comb(count, rank) / 2**count
        if 2 * outside > 1 - confidence:
            break
        rank += 1
    return Estimate(statistics.median(ordered), ordered[rank - 1], ordered[count - rank])


def estimate_ratio(ours: Sequence[float], peer: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Median, with interval, of ``ours[i] / peer[i]``: the two samples of a round ran side by side, so drift of the clock cancels.

    Raises ValueError if the samples are not paired, as ``estimate_median``, and for a time of zero.
    """
    if len(ours) != len(peer):
        raise ValueError(f"{len(ours)} and {len(peer)} samples are not pairs of the same rounds")
    if not all(time > 0 for time in peer):
        raise ValueError("a time of zero or less has no ratio; measure more calls in a span")
    return estimate_median([mine / other for mine, other in zip(ours, peer, strict=True)], confidence)
