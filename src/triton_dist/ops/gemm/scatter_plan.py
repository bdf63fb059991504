"""Which method a GEMM + reduce-scatter and a GEMM + all-reduce take. It depends on shapes only, so that every rank chooses the same."""

from __future__ import annotations

import functools

import torch.distributed as dist

from .plan import H100, Rates, library_time

RS_METHODS = ("pipelined", "direct", "fused", "split", "small", "library", "torch")
AR_METHODS = ("split", "two_shot", "small", "all_reduce", "pipelined", "library")

MARGIN = 0.9
"""A method of this package is chosen where the model gives it at most this share of the library's time."""
SPLIT_BYTES, _PAIR_ROWS = 4 << 20, 512
"""Most bytes of a rank's rows that "split" is chosen for; between two ranks it is for all results of fewer rows, too."""
_LIBRARY_START = 16.0
_LIBRARY_RATE = 0.254e6
"""Of the library's reduce-scatter: microseconds, and bytes a microsecond."""
_PAIR_BYTES, _WIRE_BYTES, _SUM_BYTES = 1 << 20, 1 << 20, 8 << 20
"""Of a result: up to so many between two ranks ``all_reduce`` is best behind a product (measured), with more ranks up to so many that go to
the peers (as it chooses itself); and the most for "split" (measured)."""
MAX_PIECES = 8
"""Most pieces, each with its signal, that a rank's rows are cut into."""
PIECE_BYTES, DEEP_BYTES = 8 << 20, 8192
"""The least bytes of a piece of "pipelined" in ``gemm_ar``, where a row of A has so many bytes; else twice as many, since such a product
takes less time than its copies (measured on two H200s)."""
_DEEPEST_BYTES = 40 << 10
"""From so many bytes of a row of A on, a product takes so much longer than the sum that its pieces, which are slower than the whole, lose
more than is hidden (measured on two H200s: 28 KiB gains 3 to 5 %, 48 KiB loses 4 to 6 %)."""
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


def choose_rs_method(
    method: str,
    size: int,
    rows: int,
    columns: int,
    depth: int,
    itemsize: int,
    device_type: str,
    library: bool | None = None,
) -> str:
    """The method for ``rows`` of the result on each of ``size`` ranks; on the simulator "auto" is "pipelined".

    library: whether there is one for the group; None: if ``torch.distributed`` is initialised.
    """
    if method != "auto":
        return method
    if device_type != "cuda":
        return "pipelined"
    if size == 2 and itemsize == 2:  # measured: the library was not the fastest for any shape
        return "split" if rows < _PAIR_ROWS or rows * columns * 2 <= SPLIT_BYTES else "pipelined"
    if library is None:
        library = dist.is_initialized()
    if library and size > 2 and itemsize == 2 and size * rows >= _TORCHS_ROWS and size * rows * columns * depth >= _TORCHS_PRODUCT:
        return "torch"
    return _modelled_rs_method(size, rows, columns, depth, itemsize, library)


def choose_ar_method(
    method: str, size: int = 1, rows: int = 0, row_bytes: int = 0, device_type: str = "cpu", heap: int = 1 << 40, depth_bytes: int = 0
) -> str:
    """The method of a GEMM + all-reduce with ``rows`` of so many bytes: for the smallest the product and ``all_reduce``, which has a choice
    of its own; then the kernels that need no copy of the product; for large ones what sends pieces while others are multiplied, unless
    the product is far the longest part. For large ones all of the symmetric ``heap`` has to have room for four such results (they take
    two, and keep what earlier calls took). depth_bytes: of a row of A.
    """
    if method != "auto":
        return method
    nbytes = rows * row_bytes
    if device_type != "cuda" or size == 1 or nbytes <= (_PAIR_BYTES if size == 2 else _WIRE_BYTES // (size - 1)):
        return "all_reduce"
    if nbytes > size * PIECE_BYTES and rows >= size:
        if 4 * nbytes > heap:
            return "all_reduce"
        return "two_shot" if depth_bytes >= _DEEPEST_BYTES else "pipelined"
    return "split" if size == 2 and nbytes <= _SUM_BYTES else "two_shot"


def pieces_of_sum(size: int, row_bytes: int, rows: int, depth_bytes: int) -> int:
    """In how many pieces "pipelined" cuts each rank's rows of a GEMM + all-reduce. row_bytes: of the result; depth_bytes: of a row of A."""
    least = PIECE_BYTES if depth_bytes >= DEEP_BYTES else 2 * PIECE_BYTES
    return max(1, min(MAX_PIECES, rows * row_bytes // (size * least)))


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
