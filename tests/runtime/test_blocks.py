"""Blocks of worlds that have ended, of which tensors still speak."""

from __future__ import annotations

import pytest

from triton_dist.runtime.arena import Arena
from triton_dist.runtime.cuda import blocks
from triton_dist.runtime.cuda.blocks import Block, leave_behind, left_over_in, left_over_ranges
from triton_dist.runtime.offsets import OffsetAllocator


@pytest.fixture
def arena(monkeypatch):
    monkeypatch.setattr(blocks, "_left_over", [])
    return Arena((0,), [OffsetAllocator()], 1 << 30, from_top=False)


def live(arena, number, offset):
    block = Block(number, offset, 4096, 4096, arena, "x")
    block.references = 1
    return block


def one_world(arena, *own):
    """What a heap does from its start to its end: it keeps clear of what is left over."""
    clear = []
    for start, end in left_over_ranges():
        clear.append(
            Block(0, start, end - start, end - start, arena, "ended", freed=True, world_ended=True, before=left_over_in(start, end))
        )
    leave_behind([*clear, *own])


def test_a_tensor_that_outlives_many_worlds_stays_one_block(arena):
    first, second = live(arena, 0, 0), live(arena, 1, 4096)
    one_world(arena, first, second)
    for _ in range(50):
        one_world(arena)
        assert blocks._left_over == [first, second]
    assert left_over_ranges() == [(0, 8192)]
    first.references = 0
    assert left_over_ranges() == [(4096, 8192)]
    one_world(arena)
    second.references = 0
    assert left_over_ranges() == [] == blocks._left_over
