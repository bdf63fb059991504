"""Which method a GEMM + reduce-scatter and a GEMM + all-reduce take. It depends on shapes only, so that every rank chooses the same."""

from __future__ import annotations

import functools

import torch.distributed as dist
import triton

from .plan import H100, Rates, Tiles, library_time

RS_METHODS = ("pipelined", "halves", "direct", "fused", "split", "small", "library", "torch")
AR_METHODS = ("split", "two_shot", "small", "all_reduce", "rs_ag", "library")

MARGIN = 0.9
"""A method of this package is chosen where the model gives it at most this share of the library's time."""
SPLIT_BYTES = 4 << 20
"""Most bytes of a rank's rows that "split" is chosen for."""
_LIBRARY_START = 16.0
_LIBRARY_RATE = 0.254e6
"""Of the library's reduce-scatter: microseconds, and bytes a microsecond."""
_PAIR_BYTES, _WIRE_BYTES, _SUM_BYTES = 1 << 20, 1 << 20, 8 << 20
"""Of a result: up to so many between two ranks ``all_reduce`` is best behind a product (measured), with more ranks up to so many that go to
the peers (as it chooses itself); and the most for "split" and "two_shot", of which only 1 to 3 MiB between two ranks were measured."""
_DEEP, _WIDE = 6144, 8192
"""Of a product between two ranks: from so much K on it takes longer than its copies, and so many columns leave each copy long."""
_FULL_TURNS, _SMS = 0.93, 132
"""Share of the SMs that tiles keep busy, from which on "fused" is worth it; the SMs of an H200."""
_TORCHS_ROWS, _TORCHS_PRODUCT = 1024, 5e10
"""Over more than two ranks torch's fused operator was the fastest (on four) from so many rows of A and multiplications on."""
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


@functools.lru_cache(maxsize=4096)
def pair_rs_method(rows: int, columns: int, depth: int, tma: bool) -> str:
    """The method for ``rows`` on each of two ranks, operands of 16 bits: by what was measured on two H200s, see docs/gemm_rs.md.

    tma: whether "fused" can have the operands. The library was not the fastest for any of the shapes.
    """
    if rows < 512:
        return "split"
    tiles = 2 * triton.cdiv(rows, Tiles.m) * triton.cdiv(columns, Tiles.n)
    full, deep = tiles / (triton.cdiv(tiles, _SMS) * _SMS) >= _FULL_TURNS, depth >= _DEEP
    if rows >= 2048:
        return "direct" if columns >= _WIDE else "halves"
    if rows >= 1024:
        return ("fused" if tma and full and columns < _WIDE else "direct") if deep else "halves" if full else "pipelined"
    if tma and full:
        return "fused"
    return "split" if rows < 768 else "direct" if deep else "pipelined"


def choose_rs_method(
    method: str,
    size: int,
    rows: int,
    columns: int,
    depth: int,
    itemsize: int,
    device_type: str,
    tma: bool = False,
    library: bool | None = None,
) -> str:
    """The method for ``rows`` of the result on each of ``size`` ranks; on the simulator "auto" is "pipelined".

    tma: whether "fused" can have the operands. library: whether there is one for the group; None: if ``torch.distributed`` is
    initialised.
    """
    if method != "auto":
        return method
    if device_type != "cuda":
        return "pipelined"
    if size == 2 and itemsize == 2:
        return pair_rs_method(rows, columns, depth, tma)
    if library is None:
        library = dist.is_initialized()
    if library and size > 2 and itemsize == 2 and size * rows >= _TORCHS_ROWS and size * rows * columns * depth >= _TORCHS_PRODUCT:
        return "torch"
    return _modelled_rs_method(size, rows, columns, depth, itemsize, library)


def choose_ar_method(method: str, size: int = 1, nbytes: int = 0, device_type: str = "cpu") -> str:
    """The method of a GEMM + all-reduce of so many bytes: the product and ``all_reduce``, which has a choice of its own.

    For results too large for its low-latency form, but not for being read and stored again, the kernels that need no copy of the product.
    """
    if method != "auto":
        return method
    if device_type != "cuda" or size == 1 or nbytes > _SUM_BYTES or nbytes <= (_PAIR_BYTES if size == 2 else _WIRE_BYTES // (size - 1)):
        return "all_reduce"
    return "split" if size == 2 else "two_shot"


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
