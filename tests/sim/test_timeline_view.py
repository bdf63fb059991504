"""Time lines as text and as pictures, and the arithmetic of intervals under them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
from triton_dist.ops import ag_gemm
from triton_dist.sim import timeline_view as view
from triton_dist.sim.timeline import Timeline

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=8)


def points(intervals) -> set[int]:
    """The unit steps that intervals with whole ends cover."""
    return {step for begin, end in intervals for step in range(begin, end)}


@given(INTERVALS)
def test_union_covers_the_same_and_does_not_overlap(intervals):
    merged = view.union(intervals)
    assert points(merged) == points(intervals)
    assert all(first[1] < second[0] for first, second in zip(merged, merged[1:], strict=False))
    assert view.total(merged) == len(points(intervals))


@given(INTERVALS, INTERVALS)
def test_subtract_leaves_what_is_outside(intervals, holes):
    left = view.subtract(view.union(intervals), view.union(holes))
    assert points(left) == points(intervals) - points(holes)


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    def run():
        ag_gemm(torch.ones(64, 64), torch.ones(64, 64))

    recorded = Timeline()
    triton_dist.simulate(run, 3, timeline=recorded)
    return recorded


def test_text_has_two_lines_a_rank(timeline):
    lines = view.to_text(timeline, width=40).splitlines()
    assert len(lines) == 1 + 2 * 3
    assert "#" in lines[1] and "=" in lines[2] and lines[3].startswith("rank 1")
    assert all(len(line) == len(lines[1]) for line in lines[1:])


def test_overlap_is_a_share(timeline):
    assert all(0 <= view.overlap(timeline, rank) <= 1 for rank in range(3))
    assert view.overlap(Timeline(), 0) is None


def test_waiting_and_computing_do_not_overlap(timeline):
    for rank in range(3):
        busy, idle = view.computing(timeline, rank), view.waiting(timeline, rank)
        assert busy and view.copying(timeline, rank)
        for sm, intervals in idle.items():
            assert view.total(view.subtract(intervals, busy.get(sm, []))) == pytest.approx(view.total(intervals))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_picture(timeline, tmp_path, ending):
    path = view.save_picture(timeline, tmp_path / "deep" / f"picture.{ending}", "a title")
    assert path.stat().st_size > 5000


def test_an_empty_time_line_is_drawn_too(tmp_path):
    assert view.to_text(Timeline()).startswith("simulated time")
