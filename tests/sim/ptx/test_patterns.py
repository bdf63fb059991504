"""Patterns of torch's symmetric-memory recipes: right ones give the sum and stay silent, each wrong one is named."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.sim.ptx.patterns import WORLD, meet, one_shot, two_shot
from triton_dist.errors import DataRaceError, DeadlockError, SimulationError
from triton_dist.language.extra import libshmem_device as shmem


@pytest.mark.parametrize("count", [8, 1000, 1536])
def test_one_shot_all_reduce(count):
    expected = [sum(torch.arange(count) % 32 + rank + call for rank in range(WORLD)) for call in range(2)]
    for outs in triton_dist.simulate(one_shot, WORLD, args=(count,), check="race"):
        for out, want in zip(outs, expected, strict=True):
            assert torch.equal(out.float(), want.float())


@pytest.mark.parametrize("missing", ["first", "last"])
def test_one_shot_without_one_of_its_barriers(missing):
    with pytest.raises(DataRaceError, match=r"source\[") as raised:
        triton_dist.simulate(one_shot, WORLD, args=(1536,), kwargs={missing: False}, check="race")
    assert "one_shot_kernel at" in str(raised.value)


def test_multimem_all_reduce():
    expected = sum(torch.arange(512) % 16 + rank for rank in range(WORLD)).float()
    for out in triton_dist.simulate(two_shot, WORLD, check="race"):
        assert torch.equal(out.float(), expected)


@pytest.mark.parametrize("missing", ["first", "last"])
def test_multimem_all_reduce_without_one_of_its_barriers(missing):
    with pytest.raises(DataRaceError, match=r"source\["):
        triton_dist.simulate(two_shot, WORLD, kwargs={missing: False}, check="race")


def test_multimem_all_reduce_whose_first_barrier_releases_nothing():
    """Sending relaxed, as in the recipe for what was written by an earlier kernel: here the same kernel wrote it."""
    with pytest.raises(DataRaceError, match="relaxed, with no fence before it"):
        triton_dist.simulate(two_shot, WORLD, kwargs={"releases": False}, check="race")


@triton.jit
def lonely_kernel(pads, RANKS: tl.constexpr):
    if dl.rank() != 3:
        meet(pads, RANKS, True, True)


def test_a_rank_that_does_not_come_is_named():
    def alone():
        lonely_kernel[(1,)](triton_dist.symm_zeros((64,), torch.int32, name="pads"), WORLD)

    with pytest.raises(DeadlockError) as raised:
        triton_dist.simulate(alone, WORLD)
    text = str(raised.value)
    for rank in range(3):
        assert f"rank {rank}, program (0, 0, 0) of lonely_kernel at" in text
        assert f"pads[3] of rank {rank} == 1; it is 0; nobody wrote it" in text


@triton.jit
def ordinary_kernel(data):
    tl.inline_asm_elementwise(
        "multimem.red.release.sys.global.add.u32 [$1], 1; mov.u32 $0, 0;", "=r,l", [data], dtype=tl.int32, is_pure=False, pack=1
    )


def test_an_ordinary_address_is_no_multicast_address():
    with pytest.raises(SimulationError, match=r"(?s)no multicast address.*line 1 of the assembly, 'multimem.red"):
        triton_dist.simulate(lambda: ordinary_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32)), 2)


@triton.jit
def count_kernel(words, out):
    """Every thread adds to the words of all ranks; a barrier of a switch."""
    everywhere = shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, words)
    seen = tl.inline_asm_elementwise(
        """
        {
            .reg .pred %p;
            .reg .u32 %t;
            mov.u32 %t, %tid.x;
            setp.eq.u32 %p, %t, 0;
            bar.sync 0;
            @%p multimem.red.release.sys.global.add.u32 [$1], 1;
            @!%p bra done;
        poll:
            ld.acquire.sys.global.u32 $0, [$2];
            setp.lt.u32 %p, $0, 4;
            @%p bra poll;
        done:
            bar.sync 0;
            ld.relaxed.sys.global.u32 $0, [$2];
        }
        """,
        "=r,l,l",
        [everywhere, words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out, seen)


def test_a_barrier_by_a_multicast_reduction():
    def counts():
        words, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
        count_kernel[(1,)](words, out)
        return out.item()

    assert triton_dist.simulate(counts, WORLD, check="race") == [WORLD] * WORLD
