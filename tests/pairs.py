"""Cases that cover every pair of values, where the full grid of them takes long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any


def every_pair(*axes: Sequence[Any]) -> list[tuple]:
    """Rows of one value of each axis: any two values of different axes are together in one row at least. The same rows each time.

    Of two axes that is the full grid. Values of an axis may be equal or not hashable.
    """
    missing = {pair for first, second in itertools.combinations(range(len(axes)), 2) for pair in _grid(axes, first, second)}
    rows = []
    while missing:
        row = max(itertools.product(*map(range, map(len, axes))), key=lambda row: len(missing.intersection(_pairs(row))))
        missing.difference_update(_pairs(row))
        rows.append(tuple(axis[at] for axis, at in zip(axes, row, strict=True)))
    return rows


def _grid(axes: Sequence[Sequence[Any]], first: int, second: int) -> Iterator[tuple]:
    return (((first, at), (second, other)) for at in range(len(axes[first])) for other in range(len(axes[second])))


def _pairs(row: Sequence[int]) -> Iterator[tuple]:
    return itertools.combinations(enumerate(row), 2)
