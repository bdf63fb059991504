"""Whether a product is right: some rows of every shard against fp64, and every element finite."""

from __future__ import annotations

import math
import random

import torch

_COLUMNS_AT_ONCE = 4096


def sample_rows(rows_per_shard: int, shards: int, count: int, seed: int) -> list[int]:
    """Up to ``count`` rows of each shard, its first and last among them: where a wrong offset shows."""
    choose = random.Random(seed)
    chosen = []
    for shard in range(shards):
        inner = choose.sample(range(rows_per_shard), min(count, rows_per_shard))
        ends = {0, rows_per_shard - 1}
        kept = sorted(ends | set(inner[: max(0, count - len(ends))]))
        chosen += [shard * rows_per_shard + row for row in kept]
    return chosen


def reference_rows(rows: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``rows @ b`` in fp64; rows (n, K), b (K, N). Some columns at a time: b in fp64 is four times bf16's size."""
    left = rows.double()
    return torch.cat([left @ part.double() for part in b.split(_COLUMNS_AT_ONCE, dim=1)], dim=1)


def tolerance_of(dtype: torch.dtype) -> float:
    """Largest relative error (see ``relative_error``) of a right result that was rounded to ``dtype``.

    Rounding moves an element by half an eps of itself at most, and of many thousand normal ones the largest is 5 to 6 times their
    root mean square: 3 eps. As much again is left for libraries that add partial sums in ``dtype``.
    """
    return 6 * torch.finfo(dtype).eps


def relative_error(result: torch.Tensor, sampled: list[int], expected: torch.Tensor) -> float:
    """Largest difference in the sampled rows, in units of the expected elements' root mean square; NaN if any element of the result is.

    A single wrong element of these rows shows. expected: (len(sampled), N) in fp64.
    """
    if not bool(torch.isfinite(result).all()):
        return math.nan
    index = torch.tensor(sampled, device=result.device)
    difference = (result.index_select(0, index).double() - expected).abs().max()
    return float(difference / expected.square().mean().sqrt())
