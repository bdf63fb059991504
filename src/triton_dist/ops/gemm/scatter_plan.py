"""Which method a GEMM + reduce-scatter and a GEMM + all-reduce take. It depends on shapes only, so that every rank chooses the same."""

from __future__ import annotations

import functools

import torch.distributed as dist

from .plan import H100, Rates, library_time

RS_METHODS = ("pipelined", "halves", "direct", "fused", "split", "small", "library", "torch")
AR_METHODS = ("split", "small", "all_reduce", "rs_ag", "library")

MARGIN = 0.9
"""A method of this package is chosen where the model gives it at most this share of the library's time."""
SPLIT_BYTES = 4 << 20
"""Most bytes of a rank's rows that "split" is chosen for."""
_LIBRARY_START = 16.0
_LIBRARY_RATE = 0.254e6
"""Of the library's reduce-scatter: microseconds, and bytes a microsecond."""
_PUSH_START = 6.0
_PUSH_RATE = 0.2e6


@functools.lru_cache(maxsize=4096)
def _modelled_rs_method(size: int, rows: int, columns: int, depth: int, itemsize: int, library: bool, rates: Rates = H100) -> str:
    """library: whether there is one to go to where little is won."""
    times = {
        "pipelined": pipelined_time(size, rows, columns, depth, itemsize, rates),
        "split": split_time(size, rows, columns, depth, itemsize, rates),
    }
    if rows * columns * 2 > SPLIT_BYTES:
        del times["split"]
    best = min(times, key=lambda name: times[name])
    won = times[best] <= MARGIN * reduce_scatter_time(size, rows, columns, depth, itemsize, rates)
    return best if won or not library else "library"


def choose_rs_method(method: str, size: int, rows: int, columns: int, depth: int, itemsize: int, device_type: str) -> str:
    """The method for ``rows`` of the result on each of ``size`` ranks; on the simulator "auto" is "pipelined"."""
    if method != "auto":
        return method
    if device_type != "cuda":
        return "pipelined"
    return _modelled_rs_method(size, rows, columns, depth, itemsize, dist.is_initialized())


def choose_ar_method(method: str) -> str:
    """The method of a GEMM + all-reduce: the product and ``all_reduce``, which has a choice of its own, until the others are measured."""
    return "all_reduce" if method == "auto" else method


def pipelined_time(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of products that are copied to their owners one after the other, and of adding them up."""
    product = library_time(rows, columns, depth, itemsize, rates)
    copy = rates.copy_start + rows * columns * 2 / rates.link
    finished = copied = rates.start
    for _ in range(size - 1):
        finished += product + rates.call
        copied = max(copied, finished) + copy
    return max(finished + product, copied) + rates.gather_start + (size + 1) * rows * columns * 2 / rates.memory


def split_time(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of a whole product and of the kernel that pushes its rows to their owners and adds them up."""
    moved = (size - 1) * rows * columns * 2
    return library_time(size * rows, columns, depth, itemsize, rates) + _PUSH_START + moved / _PUSH_RATE


def reduce_scatter_time(size: int, rows: int, columns: int, depth: int, itemsize: int, rates: Rates = H100) -> float:
    """Microseconds of a whole product followed by the library's reduce-scatter."""
    moved = (size - 1) * rows * columns * 2
    return library_time(size * rows, columns, depth, itemsize, rates) + _LIBRARY_START + moved / _LIBRARY_RATE
