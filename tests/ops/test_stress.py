"""Thousands of calls with stragglers: kernels that keep a rank's stream or its SMs busy, hosts that sleep; equal inputs, equal bits.

Runs on simulated ranks here, with few calls, and in ``tests/gpu`` on GPUs with as many as ``stress_calls`` says there.
"""

from __future__ import annotations

import random
import time

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from tests.ops.test_ag_gemm import WRONG
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import ag_gemm
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.ops.gemm import ag_gemm as module
from triton_dist.ops.gemm import ag_gemm_kernels
from triton_dist.ops.gemm.plan import OWN_METHODS

INPUTS = 4
"""Different inputs, used again and again in an order that all ranks know."""


@triton.jit(do_not_specialize=["steps"])
def delay_kernel(word, steps):
    """Take about a microsecond of a GPU for each step: atomic additions, each of which needs the result of the one before."""
    value = tl.atomic_add(word, 1)
    for _ in range(steps):
        value = tl.atomic_add(word, (value & 1) + 1)


class Stragglers:
    """Slow this rank down at random moments, which differ from rank to rank.

    longest: steps of the longest delay. sleep: seconds of the longest pause of the host.
    """

    def __init__(self, seed: int, longest: int, sleep: float) -> None:
        self._random = random.Random(1000 * seed + triton_dist.rank())
        self._words = torch.zeros(2, dtype=torch.int32, device=triton_dist.device())
        self._side = triton_dist.Stream()
        self._side.wait_stream(triton_dist.current_stream())
        self._longest, self._sleep = longest, sleep

    def strike(self) -> None:
        """Maybe delay the current stream, maybe keep some SMs busy beside it, maybe pause the host."""
        if self._random.random() < 0.25:
            delay_kernel[(1,)](self._words[0:], self._random.randrange(self._longest))
        if self._random.random() < 0.1:
            with triton_dist.stream(self._side):
                delay_kernel[(self._random.randrange(1, 32),)](self._words[1:], self._random.randrange(self._longest))
        if self._random.random() < 0.05:
            time.sleep(self._random.random() * self._sleep)


def stress(calls: int, longest: int, sleep: float, seed: int = 0, rows: int = 40, columns: int = 96, depth: int = 80) -> tuple[int, int]:
    """One rank: how many calls gave other bits than the first call with the same input; and how many calls were compared."""
    device, rank, size = triton_dist.device(), triton_dist.rank(), triton_dist.world_size()
    generator = torch.Generator().manual_seed(seed)
    matrices = [torch.randn(size * rows, depth, generator=generator).to(device, torch.bfloat16) for _ in range(INPUTS)]
    b = torch.randn(depth, columns, generator=generator).to(device, torch.bfloat16)
    shards = [a[rank * rows : (rank + 1) * rows] for a in matrices]
    # cuBLAS sums in another order than the fused methods' kernels.
    first = {method: [ag_gemm(shard, b, method=method) for shard in shards] for method in OWN_METHODS}
    for outs in first.values():
        for a, out in zip(matrices, outs, strict=True):
            reference = a.double() @ b.double()
            assert ((out.double() - reference).abs().max() / reference.abs().max()).item() < 8e-3
    wrong = torch.zeros(1, dtype=torch.int32, device=device)
    stragglers, plan, compared = Stragglers(seed, longest, sleep), random.Random(seed), 0
    for call in range(calls):
        stragglers.strike()
        if plan.random() < 0.3:
            barrier()
            continue
        number, method = plan.randrange(INPUTS), plan.choice(OWN_METHODS)
        out = ag_gemm(shards[number], b, method=method)
        wrong += (out.view(torch.int16) != first[method][number].view(torch.int16)).any()
        compared += 1
        if call % 1000 == 999 and wrong.item():
            break
    return int(wrong.item()), compared


@pytest.mark.parametrize("world_size", [2, 4])
def test_equal_inputs_give_equal_bits(world, world_size, stress_calls):
    calls, longest, sleep = stress_calls
    results = world(stress, world_size, args=(calls, longest, sleep), timeout=400)
    assert [wrong for wrong, _ in results] == [0] * world_size
    assert min(compared for _, compared in results) > calls // 2


def test_a_call_that_leaves_its_flags_set_is_caught(monkeypatch, tmp_path):
    """The stress sees what it is there for."""
    twin = twin_of(ag_gemm_kernels, tmp_path, *next(iter(WRONG.values())))
    monkeypatch.setattr(module, "any_gemm_kernel", twin.any_gemm_kernel)
    seen = []
    for seed in range(4):
        try:
            results = triton_dist.simulate(stress, 3, args=(12, 8, 0.0), seed=seed, schedule="straggler")
            seen.append(max(wrong for wrong, _ in results))
        except (errors.DeadlockError, AssertionError):
            seen.append(1)
    assert any(seen)
