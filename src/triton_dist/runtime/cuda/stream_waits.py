"""Waits of streams in a world whose waits have a bound: by a kernel of one warp, which the bound ends, and which says for what it waits.

The driver's own wait is cheaper, but nothing can make it go on but the value, and nobody knows what a stream waits for.
"""

from __future__ import annotations

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from ..preload import Launch, preload

LEAST_OF_64_BITS = 1 << 31
"""From here on Triton takes an integer for one of 64 bits, and compiles a kernel of its own."""


@triton_dist.jit(do_not_specialize=["value"], do_not_specialize_on_alignment=["word"])
def stream_wait_kernel(word, value, COMPARISON: tl.constexpr):
    """One program. word: int32 or int64."""
    dl.wait(word, 1, "sys", "acquire", waitValue=tl.cast(value, word.dtype.element_ty), cmp=COMPARISON)


def wait(word: torch.Tensor, value: int, comparison: str, stream: torch.cuda.Stream) -> None:
    """Make ``stream`` wait until ``word``, one element of 32 or 64 bits, compares to ``value``: "ge" or "eq"."""
    launch = _loaded(word.view(torch.int32 if word.element_size() == 4 else torch.int64).view(1), value, comparison)
    with torch.cuda.stream(stream):
        launch.run()


def load_waits(device: torch.device) -> None:
    """Compile and load the usual ones, before a kernel of somebody waits for what comes behind one of them."""
    for dtype in (torch.int32, torch.int64):
        for comparison in ("ge", "eq"):
            _loaded(torch.empty(1, dtype=dtype, device=device), 1, comparison)


def _loaded(word: torch.Tensor, value: int, comparison: str) -> Launch:
    launch = Launch.of(stream_wait_kernel, 1)(word, value, COMPARISON=comparison, num_warps=1)
    preload("wait_value", (word.dtype, comparison, abs(value) >= LEAST_OF_64_BITS), lambda: [launch])
    return launch
