"""How far results are from what is expected."""

from __future__ import annotations

import math

import torch


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, in units of the largest element that is expected; in float64.

    Infinite where a difference is NaN, as where nothing was written: ``max`` of several errors would lose a NaN.
    """
    assert found.shape == expected.shape, f"{tuple(found.shape)} is not {tuple(expected.shape)}"
    wanted = expected.detach().cpu().double()
    differences = (found.detach().cpu().double() - wanted).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    largest = differences.max().item()
    scale = wanted.abs().max().item()
    return largest / scale if scale else math.inf if largest else 0.0
