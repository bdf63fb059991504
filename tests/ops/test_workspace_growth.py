"""What an operator keeps between calls stays when a larger call needs more: a CUDA graph that was captured before uses it by address."""

from __future__ import annotations

import gc

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import triton_dist
from triton_dist import ops
from triton_dist.errors import HeapFullError
from triton_dist.ops.team import GrowingBuffer
from triton_dist.runtime.world import require_world
from triton_dist.sim import context
from triton_dist.sim.launch import Launcher


def _rows(count, dtype=torch.float32):
    return torch.ones((count, 64), dtype=dtype)


def _gemm(op, method, dtype=torch.float32):
    def call(rows):
        op(_rows(rows, dtype), torch.ones((64, 64), dtype=dtype).t(), method=method)

    return call


def _gather_gemm(method):
    return lambda rows: ops.ag_gemm(_rows(rows, torch.bfloat16), torch.ones((64, 32), dtype=torch.bfloat16), method=method)


def _all_to_all_of_splits(rows):
    size = triton_dist.world_size()
    ops.all_to_all(_rows(rows), splits=torch.full((size,), rows // size, dtype=torch.int32), capacity=rows)


CALLS = {
    "all_reduce one_shot": lambda rows: ops.all_reduce(_rows(rows), method="one_shot"),
    "all_reduce two_shot": lambda rows: ops.all_reduce(_rows(rows), method="two_shot"),
    "all_reduce ll": lambda rows: ops.all_reduce(_rows(rows), method="ll"),
    "all_gather": lambda rows: ops.all_gather(_rows(rows)),
    "all_gather ll": lambda rows: ops.all_gather(_rows(rows), method="ll"),
    "reduce_scatter": lambda rows: ops.reduce_scatter(_rows(rows)),
    "reduce_scatter ll": lambda rows: ops.reduce_scatter(_rows(rows), method="ll"),
    "broadcast": lambda rows: ops.broadcast(_rows(rows), src=0),
    "broadcast ll": lambda rows: ops.broadcast(_rows(rows), src=0, method="ll"),
    "all_to_all": lambda rows: ops.all_to_all(_rows(rows)),
    "all_to_all of splits": _all_to_all_of_splits,
    "barrier": lambda rows: ops.barrier(),
    **{f"gemm_ar {method}": _gemm(ops.gemm_ar, method) for method in ("small", "split", "two_shot", "pipelined", "all_reduce")},
    **{f"gemm_rs {method}": _gemm(ops.gemm_rs, method) for method in ("small", "split", "direct", "pipelined")},
    "gemm_rs fused": _gemm(ops.gemm_rs, "fused", torch.bfloat16),
    **{f"ag_gemm {method}": _gather_gemm(method) for method in ("fused", "fused_kernel", "split")},
}
"""Each method, for so many rows."""


@pytest.fixture
def launched(monkeypatch):
    """The storages that kernels of rank 0 were given, without a hold on them."""
    seen: dict[StorageWeakRef, str] = {}
    original = Launcher._launch

    def launch(self, kernel, grid, arguments, machine):
        if context.current().rank == 0:
            for name, argument in zip(self.names, arguments, strict=True):
                tensor = getattr(argument, "base", argument)
                if isinstance(tensor, torch.Tensor):
                    seen[StorageWeakRef(tensor.untyped_storage())] = f"{name} of {self.name}, {tensor.dtype}[{tuple(tensor.shape)}]"
        return original(self, kernel, grid, arguments, machine)

    monkeypatch.setattr(Launcher, "_launch", launch)
    return seen


@pytest.mark.parametrize("name", CALLS)
def test_what_was_kept_stays(name, launched):
    kept: dict[StorageWeakRef, str] = {}

    def body():
        calls = []
        for rows in (8, 8, 128 if name.endswith(("ll", "small")) else 2048):
            if triton_dist.rank() == 0:
                launched.clear()
            CALLS[name](rows)
            triton_dist.synchronize()
            gc.collect()
            calls.append(dict(launched))
        if triton_dist.rank() == 0:
            kept.update({storage: what for storage, what in calls[1].items() if storage in calls[0]})
        return [what for storage, what in kept.items() if storage.expired()]

    gone, _ = triton_dist.simulate(body, world_size=2)
    assert kept and not gone


def test_calls_that_grow_a_little_each_time_do_not_fill_the_heap():
    """An evaluation sorted by length: all that was outgrown is kept, so each buffer is twice the one before."""

    def body():
        x = torch.ones(1 << 17)
        for rows in range(1, 65):
            ops.all_reduce(x[: rows * 2048], method="one_shot")
        triton_dist.synchronize()
        kept = next(value for key, value in require_world("a test").workspaces.items() if key[0].startswith("all_reduce"))
        return sum(buffer.numel() for buffer in kept.buffer._buffers)

    assert max(triton_dist.simulate(body, world_size=2, heap_size=8 << 20)) <= 4 * 2 * (1 << 19)


def test_a_buffer_takes_what_there_is():
    made, most = [], 1000

    def make(nbytes):
        if nbytes > most:
            raise HeapFullError("no room")
        made.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    def body():
        buffer = GrowingBuffer("op", make)
        sizes = [buffer.at_least(nbytes).numel() for nbytes in (100, 150, 700, 900, 950)]
        with pytest.raises(HeapFullError):
            buffer.at_least(1001)
        return sizes

    assert triton_dist.simulate(body, world_size=1) == [[100, 200, 700, 900, 950]] and made == [100, 200, 700, 900, 950]
