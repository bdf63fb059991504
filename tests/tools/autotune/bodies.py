"""Bodies of tests that run on CPU processes and on GPUs, too."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.tools.autotune.operators import buffers, is_right, rotate
from triton_dist.tools.autotune import TuneReport


@triton_dist.autotune([{"chunk": 16, "extra": 0}, {"chunk": 64, "extra": 0}, {"chunk": 32, "extra": 1}], ["x"], timeout=15, cache=False)
def rotate_tuned(x: torch.Tensor, inbox: torch.Tensor, arrived: torch.Tensor, chunk: int, extra: int) -> torch.Tensor:
    """``rotate``, of which one config hangs on rank 1 and another fails on rank 0."""
    if chunk == 64 and triton_dist.rank() == 0:
        raise RuntimeError("not on this rank")
    return rotate(x, inbox, arrived, chunk, extra if triton_dist.rank() == 1 else 0)


def operator() -> str:
    """The one config that is left is chosen everywhere, twice in one world."""
    for _ in range(2):
        x, inbox, arrived = buffers()
        assert is_right(rotate_tuned(x, inbox, arrived))
        report = rotate_tuned.tune(*buffers())
        reasons = {row.label: row.reason for row in report.failed}
        assert set(reasons) == {"chunk=32, extra=1", "chunk=64, extra=0"}, report.table()
        assert "RuntimeError: not on this rank" in reasons["chunk=64, extra=0"], reasons
        assert "DeadlockError" in reasons["chunk=32, extra=1"] or "WaitTimeoutError" in reasons["chunk=32, extra=1"], reasons
    return report.chosen


@triton_dist.tuned_together(timeout=15)
@triton.autotune([triton.Config({"CHUNK": chunk, "WANTED": wanted}) for chunk, wanted in ((32, 1), (64, 9), (128, 1))], ["count"])
@triton_dist.jit
def rotate_kernel(x, inbox, arrived, out, count, CHUNK: tl.constexpr, WANTED: tl.constexpr):
    """One program: sends, says so, waits for ``WANTED``, which nobody sends if it is not 1."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
    dl.notify(arrived, peer, signal=1, sig_op="set", comm_scope="intra_node")
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=WANTED)
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset, mask=offset < count), mask=offset < count)


def kernel() -> tuple[str, TuneReport]:
    """``triton.autotune`` over a kernel one of whose configs hangs."""
    x, inbox, arrived = buffers(300)
    out = torch.zeros_like(x)
    rotate_kernel[(1,)](x, inbox, arrived, out, 300)
    assert is_right(out)
    (failed,) = rotate_kernel.report.failed
    assert failed.label.startswith("CHUNK: 64") and rotate_kernel.best_config.kwargs["CHUNK"] != 64
    return str(rotate_kernel.best_config), rotate_kernel.report


@triton.autotune([triton.Config({"A": a, "B": b}) for a, b in ((1, 90), (80, 2), (50, 50))], [])
@triton_dist.jit
def skewed_kernel(words, out, A: tl.constexpr, B: tl.constexpr):
    """The first rank goes A rounds, the others B."""
    offset = tl.arange(0, 64)
    rounds = A if dl.rank() == 0 else B
    for _ in range(rounds):
        tl.store(out + offset, tl.load(out + offset) + 1)
    dl.notify(words, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="set", comm_scope="intra_node")


def divergent_times() -> tuple[int, list[float | None]]:
    """Each rank alone would choose another config: A is fast on rank 0, B on the others. Together they take what suits the slower one."""
    skewed_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32), torch.zeros(64, device=triton_dist.device()))
    return skewed_kernel.best_config.kwargs["A"], [row.milliseconds for row in skewed_kernel.report.rows]
