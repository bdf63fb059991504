"""What a case says: the best peer, the ratio to it, and the share of the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .intervals import estimate_ratio
from .results import Comparison, MethodResult


def compare(methods: Sequence[MethodResult], bounds: Mapping[str, float | None]) -> Comparison:
    """The comparison of one case.

    bounds: microseconds below which nothing can be, by what sets them; None where it was not measured. Without all of them the
    largest of the others would be too weak a bound, so there is none then.
    """
    result = Comparison()
    if bounds and all(bound is not None for bound in bounds.values()):
        result.bound_by, result.bound_us = max(bounds.items(), key=lambda item: item[1] or 0.0)
    ours = next((method for method in methods if method.kind == "ours" and method.counts), None)
    peers = [method for method in methods if method.kind == "peer" and method.counts]
    best = min(peers, key=lambda method: method.median_us or 0.0, default=None)
    if best is not None:
        result.best_peer = best.name
    if ours is None or not ours.median_us:
        return result
    if result.bound_us is not None:
        result.share = result.bound_us / ours.median_us
    if best is not None:
        ratio = estimate_ratio(ours.samples_us, best.samples_us)
        result.ratio, result.ratio_low, result.ratio_high = ratio.median, ratio.low, ratio.high
    return result
