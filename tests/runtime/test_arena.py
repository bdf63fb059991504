"""Offsets that several heaps have free at once, and the arenas of teams: against a model, from every member's point of view."""

from __future__ import annotations

import numpy as np
import pytest

from triton_dist.errors import HeapFullError
from triton_dist.runtime.arena import Arena
from triton_dist.runtime.offsets import ALIGNMENT, OffsetAllocator, common_fit, common_ranges, total

HEAP = 64 * ALIGNMENT


def free(*ranges):
    return [(start * ALIGNMENT, end * ALIGNMENT) for start, end in ranges]


def test_common_ranges():
    assert common_ranges([free((0, 9))]) == free((0, 9))
    assert common_ranges([free((0, 4), (6, 9)), free((2, 7))]) == free((2, 4), (6, 7))
    assert common_ranges([free((0, 4)), free((4, 9))]) == []
    assert common_ranges([free((0, 1), (2, 3), (4, 5)), free((0, 5)), free((1, 2), (4, 5))]) == free((4, 5))
    assert common_ranges([[], free((0, 1))]) == []


def test_common_ranges_against_sets():
    random = np.random.default_rng(1)
    for _ in range(200):
        cells = random.random((3, 40)) < 0.7
        by_rank = []
        for row in cells:
            allocator = OffsetAllocator.of_ranges((at, at + 1) for at in np.flatnonzero(row).tolist())
            by_rank.append(allocator.free_ranges())
        expected = np.flatnonzero(cells.all(axis=0)).tolist()
        assert [at for start, end in common_ranges(by_rank) for at in range(start, end)] == expected


def test_common_fit_from_both_ends():
    by_rank = [free((0, 2), (3, 8), (10, 16)), free((1, 16))]
    assert common_fit(by_rank, ALIGNMENT) == 1 * ALIGNMENT
    assert common_fit(by_rank, 4 * ALIGNMENT) == 3 * ALIGNMENT
    assert common_fit(by_rank, 4 * ALIGNMENT, from_top=True) == 12 * ALIGNMENT
    assert common_fit(by_rank, 7 * ALIGNMENT) is None
    assert common_fit([[(0, ALIGNMENT + 100)]], ALIGNMENT, from_top=True) == 0, "aligned from the top, too"
    assert common_fit([[(0, ALIGNMENT - 1)]], ALIGNMENT, from_top=True) is None


def test_take_and_release():
    allocator = OffsetAllocator.of_ranges([(0, 100)])
    allocator.take(40, 20)
    assert allocator.free_ranges() == [(0, 40), (60, 100)]
    assert allocator.free_ranges(10, 70) == [(10, 40), (60, 70)]
    allocator.take(0, 40)
    allocator.take(60, 40)
    assert allocator.free_ranges() == []
    allocator.release(40, 20)
    allocator.release(0, 40)
    assert allocator.free_ranges() == [(0, 60)]


def test_arena_grows_beyond_what_was_set_aside_and_gives_it_back():
    heap = OffsetAllocator.of_ranges([(0, HEAP)])
    arena = Arena((0, 1), [heap], HEAP, from_top=True)
    arena.reserve(10_000, [heap.free_ranges()])
    assert total(arena.set_aside) == OffsetAllocator.padded(10_000)
    assert heap.free_ranges() == [(0, HEAP - OffsetAllocator.padded(10_000))]
    inside = arena.allocate(9_000, [heap.free_ranges()])
    assert arena.set_aside_at(inside)
    outside = arena.allocate(9_000, [heap.free_ranges()])
    assert not arena.set_aside_at(outside)
    before = heap.free_ranges()
    arena.reserve(8_000, [before])
    assert heap.free_ranges() == before, "it has that much"
    arena.free(inside, OffsetAllocator.padded(9_000))
    assert heap.free_ranges() == before, "set aside for the team"
    arena.free(outside, OffsetAllocator.padded(9_000))
    late = arena.allocate(9_000, [heap.free_ranges()])
    arena.close()
    assert heap.free_ranges() != [(0, HEAP)], "what lives stays taken"
    arena.free(late, OffsetAllocator.padded(9_000))
    assert heap.free_ranges() == [(0, HEAP)]


def test_full_arena_says_how_much_there_is():
    heap = OffsetAllocator.of_ranges([(0, HEAP)])
    arena = Arena((3, 5), [heap], HEAP, from_top=False)
    with pytest.raises(
        HeapFullError, match=rf"no room for {HEAP} bytes in the symmetric heap of {HEAP} bytes .*ranks \[3, 5\].*largest piece 4096"
    ):
        arena.allocate(HEAP, [[(0, HEAP)], [(4096, 8192)]])
    assert heap.free_ranges() == [(0, HEAP)]
    with pytest.raises(HeapFullError, match="arena of 1000000 bytes"):
        arena.reserve(1_000_000, [[(0, HEAP)], [(0, HEAP)]])


def test_teams_that_overlap_agree_without_a_word():
    """Random calls of many teams, each member deciding for itself from what all members said: same offsets, nothing overlaps."""
    random = np.random.default_rng(2)
    ranks = 6
    heaps = [OffsetAllocator.of_ranges([(0, HEAP)]) for _ in range(ranks)]
    teams = [tuple(range(ranks)), (0, 2, 4), (1, 3, 5), (0, 1), (4, 3), (5,)]
    arenas = {(team, rank): Arena(team, [heaps[rank]], HEAP, from_top=len(team) < ranks) for team in teams for rank in team}
    live: list[tuple[tuple[int, ...], int, int]] = []
    refused = 0
    for _ in range(3000):
        team = teams[random.integers(len(teams))]
        said = [heaps[rank].free_ranges() for rank in team]
        action = random.random()
        if action < 0.45 and live:
            team, offset, size = live.pop(random.integers(len(live)))
            for rank in team:
                arenas[team, rank].free(offset, size)
        elif action < 0.5:
            nbytes = int(random.integers(1, 20_000))
            results = set()
            for rank in team:
                try:
                    arenas[team, rank].reserve(nbytes, said)
                    results.add(tuple(arenas[team, rank].set_aside))
                except HeapFullError:
                    results.add("full")
            assert len(results) == 1
        else:
            nbytes = int(random.integers(1, 30_000))
            offsets = set()
            for rank in team:
                try:
                    offsets.add(arenas[team, rank].allocate(nbytes, said))
                except HeapFullError:
                    offsets.add(None)
            assert len(offsets) == 1
            offset = offsets.pop()
            refused += offset is None
            if offset is not None:
                live.append((team, offset, OffsetAllocator.padded(nbytes)))
        for rank in range(ranks):
            places = sorted((offset, offset + size) for team, offset, size in live if rank in team)
            assert all(end <= after for (_, end), (after, _) in zip(places, places[1:], strict=False))
            assert not places or places[-1][1] <= HEAP
    assert refused > 20
    for team, offset, size in live:
        for rank in team:
            arenas[team, rank].free(offset, size)
    for arena in arenas.values():
        arena.close()
    assert all(heap.free_ranges() == [(0, HEAP)] for heap in heaps)
