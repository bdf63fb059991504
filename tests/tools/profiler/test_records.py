"""What kernels record on simulated ranks, and what the host reads of it."""

from __future__ import annotations

import warnings
from collections import Counter

import pytest
import torch
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist
from tests.tools.profiler.kernels import (
    no_leader_kernel,
    odd_kernel,
    ring_kernel,
    rounds_kernel,
    several_leaders_kernel,
    unknown_comparison_kernel,
)
from triton_dist.errors import DeviceAssertionError, InvalidArgumentError, LostRecordsWarning, PrimitiveArgumentError
from triton_dist.tools.profiler import Profiler, alloc_profiler_buffer, layout, parse_to_tracks, reset_profiler_buffer


def on_one_rank(function):
    """What ``function`` returns on one simulated rank."""
    return triton_dist.simulate(function, 1)[0]


@pytest.mark.parametrize("leader", [False, True])
def test_tasks_come_back(leader):
    """More records than a chunk has room for, in several blocks."""
    rounds, blocks = 20, 3

    def run():
        buffer, values = alloc_profiler_buffer(1000), torch.zeros(64 * blocks)
        rounds_kernel[(blocks,)](buffer, values, rounds, GROUP=5, LEADER=leader)
        return parse_to_tracks(buffer), values

    tracks, values = on_one_rank(run)
    assert (values == rounds).all()
    assert sorted((track.block, track.group) for track in tracks) == [(block, 5) for block in range(blocks)]
    assert len({track.sm for track in tracks}) == blocks, "each block has an SM of its own"
    for track in tracks:
        outer, *inner = track.tasks
        assert (outer.type, outer.start, outer.end) == (0, track.first, track.last)
        assert [task.type for task in inner] == list(range(1, rounds + 1))
        assert all(task.duration > 0 for task in inner)
        assert all(before.end <= after.start for before, after in zip(inner, inner[1:], strict=False))
        assert track.unmatched == 0 and not track.notifies


def test_taking_chunks_does_not_make_blocks_wait():
    """Equal blocks record equal times, though they come to the common counter in any order."""

    def run():
        buffer, values = alloc_profiler_buffer(4000), torch.zeros(64 * 40)
        rounds_kernel[(40,)](buffer, values, 20, GROUP=0, LEADER=False)
        return parse_to_tracks(buffer)

    for seed in range(2):
        tracks = triton_dist.simulate(run, 1, seed=seed)[0]
        assert len({(track.first, track.last) for track in tracks}) == 1


def test_launches_of_different_grids_share_a_buffer():
    def run():
        buffer, values = alloc_profiler_buffer(1000), torch.zeros(64 * 6)
        for programs, group in ((2, 0), (6, 0), (1, 1)):
            rounds_kernel[(programs,)](buffer, values, 2, GROUP=group, LEADER=False)
        found = parse_to_tracks(buffer)
        reset_profiler_buffer(buffer)
        return found, parse_to_tracks(buffer)

    tracks, after_reset = on_one_rank(run)
    assert Counter(track.group for track in tracks) == {0: 8, 1: 1} and not after_reset
    assert [track.first for track in tracks] == sorted(track.first for track in tracks)
    assert all(len(track.tasks) == 3 for track in tracks)


@pytest.mark.parametrize(("rounds", "blocks", "chunks"), [(20, 1, 1), (20, 1, 2), (3, 4, 2), (0, 3, 1)])
def test_what_finds_no_room_is_counted(rounds, blocks, chunks):
    """All that was recorded is either there or counted, and a warning says so."""

    def run():
        buffer, values = alloc_profiler_buffer(chunks * layout.SLOTS_A_CHUNK), torch.zeros(64 * blocks)
        rounds_kernel[(blocks,)](buffer, values, rounds, GROUP=0, LEADER=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = parse_to_tracks(buffer)
        dropped = int(buffer.view(torch.int64)[layout.DROPPED])
        slots = buffer.view(torch.int64)[layout.HEADER :].reshape(-1, layout.CHUNK, 2)[:, 1:, 1]
        return found, dropped, int((slots != 0).sum()), [str(warning.message) for warning in caught]

    tracks, dropped, kept, texts = on_one_rank(run)
    assert kept <= chunks * (layout.CHUNK - 1)
    assert kept + dropped == blocks * (2 + 2 * rounds) and dropped > 0
    assert len(texts) == 1 and texts[0].startswith(f"{dropped} records found no room in the profiler buffer")
    assert sum(1 + (task.duration is not None) for track in tracks for task in track.tasks) == kept


def test_a_wait_whose_word_found_no_room_is_a_task_without_one():
    def run():
        buffer, flags = alloc_profiler_buffer(8), triton_dist.symm_zeros((1,), torch.int32)
        ring_kernel[(1,)](buffer, flags, ROUNDS=4, PROFILE=True)  # five slots a round: the fourth's first one would be the sixteenth
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LostRecordsWarning)
            (track,) = parse_to_tracks(buffer)
        return track, int(buffer.view(torch.int64)[layout.DROPPED])

    track, dropped = on_one_rank(run)
    assert [task.word.value for task in track.tasks] == [1, 2, 3] and [notify.word.value for notify in track.notifies] == [1, 2, 3]
    assert dropped == 5


def test_ends_without_starts_and_starts_without_ends():
    def run():
        buffer = alloc_profiler_buffer(100)
        odd_kernel[(2,)](buffer)
        with pytest.warns(LostRecordsWarning, match="2 ends of tasks have no start, the first one of block"):
            return parse_to_tracks(buffer)

    for track in on_one_rank(run):
        assert track.unmatched == 1
        assert [(task.type, task.duration, task.end) for task in track.tasks] == [(0, None, None)]


def test_several_leaders_are_named():
    def run():
        buffer = alloc_profiler_buffer(100)
        several_leaders_kernel[(1,)](buffer)
        with pytest.warns(LostRecordsWarning, match="block 0 has records of 2 threads in one group"):
            return len(parse_to_tracks(buffer))

    assert on_one_rank(run) == 2


def test_without_a_leader_nothing_is_recorded():
    def run():
        buffer = alloc_profiler_buffer(100)
        no_leader_kernel[(2,)](buffer)
        return parse_to_tracks(buffer), int(buffer.view(torch.int64)[layout.TAKEN])

    assert on_one_rank(run) == ([], 0)


def test_words_come_back():
    def run():
        buffer, flags = alloc_profiler_buffer(100), triton_dist.symm_zeros((2,), torch.int64)
        ring_kernel[(2,)](buffer, flags, ROUNDS=1, PROFILE=True)
        return parse_to_tracks(buffer), flags.data_ptr()

    for rank, (tracks, address) in enumerate(triton_dist.simulate(run, 2, check="race")):
        for track in tracks:
            (wait,), (notify,) = track.tasks, track.notifies
            word = address + 8 * track.block
            assert (wait.word.address, wait.word.operation, wait.word.value, wait.word.count, wait.word.nbytes) == (word, "ge", 1, 1, 8)
            assert (notify.word.address, notify.word.operation, notify.word.value, notify.word.rank) == (word, "set", 1, 1 - rank)
            assert notify.type == 3 and notify.time <= wait.start


def test_an_unknown_comparison_is_named():
    def run():
        unknown_comparison_kernel[(1,)](alloc_profiler_buffer(10), triton_dist.symm_zeros((1,), torch.int32))

    with pytest.raises(Exception) as caught:
        on_one_rank(run)
    error, texts = caught.value, []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert any("cmp='==' is not known; use one of eq, ne" in text for text in texts)


@pytest.mark.parametrize("slots", [0, -1, 1.5, "many", 1 << 40, None])
def test_a_size_that_makes_no_sense(slots):
    with pytest.raises(InvalidArgumentError, match="max_num_profile_slots="):
        alloc_profiler_buffer(slots)


@pytest.mark.parametrize("read", [parse_to_tracks, reset_profiler_buffer])
@pytest.mark.parametrize(
    "buffer",
    [None, [1, 2], torch.zeros(40, dtype=torch.int64), torch.zeros(41, dtype=torch.uint64), torch.zeros(2, 40, dtype=torch.uint64)],
)
def test_what_is_no_buffer_is_refused(read, buffer):
    with pytest.raises(InvalidArgumentError, match="pass what alloc_profiler_buffer returned"):
        read(buffer)


def test_a_buffer_that_was_overwritten_is_named():
    buffer = alloc_profiler_buffer(100)
    assert parse_to_tracks(buffer) == []
    buffer.view(torch.int64)[layout.CAPACITY] = 7
    with pytest.raises(InvalidArgumentError, match="a profiler buffer begins with .* look for a kernel that writes over it"):
        parse_to_tracks(buffer)
    reset_profiler_buffer(buffer)
    assert parse_to_tracks(buffer) == []


def test_the_documented_names_are_in_tools_too():
    from triton_dist import tools
    from triton_dist.tools import profiler

    assert all(getattr(tools, name) is getattr(profiler, name) for name in tools.__all__ if hasattr(profiler, name))
    assert {"Profiler", "ProfilerBuffer", "alloc_profiler_buffer", "reset_profiler_buffer"} <= set(tools.__all__)
    assert {"export_to_perfetto_trace", "parse_to_tracks"} <= set(tools.__all__)
    with pytest.raises(AttributeError, match="no attribute 'profile_everything'"):
        _ = tools.profile_everything


def test_runs_for_their_time_record_too():
    """``execute="timing"`` computes no tiles, but all tasks are there and take their time."""

    def run():
        buffer, values = alloc_profiler_buffer(400), torch.zeros(128)
        rounds_kernel[(2,)](buffer, values, 10, GROUP=0, LEADER=False)
        return parse_to_tracks(buffer)

    tracks = triton_dist.simulate(run, 1, execute="timing")[0]
    assert [[task.type for task in track.tasks] for track in tracks] == [list(range(11))] * 2
    assert all(task.duration > 0 for track in tracks for task in track.tasks)


@triton_dist.jit
def grouped_kernel(buffer, group, GROUP: tl.constexpr, CONSTANT: tl.constexpr):
    profiler = Profiler.create(buffer, GROUP if CONSTANT else group)
    profiler = profiler.record(True, 0)
    profiler = profiler.record(False, 0)


def cause_of(function) -> BaseException:
    """What the error that ends a run comes from: Triton wraps what is raised while it compiles."""
    with pytest.raises((CompilationError, DeviceAssertionError)) as caught:
        on_one_rank(function)
    error = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.parametrize("group", [-1, 4096, 5000, 1 << 20])
def test_groups_that_no_record_has_room_for(group):
    error = cause_of(lambda: grouped_kernel[(1,)](alloc_profiler_buffer(100), 0, group, CONSTANT=True))
    assert isinstance(error, PrimitiveArgumentError) and f"group_id={group} must be a whole number from 0 to 4095" in str(error)
    error = cause_of(lambda: grouped_kernel[(1,)](alloc_profiler_buffer(100), group, 0, CONSTANT=False, debug=True))
    assert isinstance(error, DeviceAssertionError) and "group_id must be from 0 to 4095" in str(error)


@pytest.mark.parametrize("buffer", [None, 1, 5, 1.5])
def test_what_is_no_buffer_of_a_kernel(buffer):
    error = cause_of(lambda: grouped_kernel[(1,)](buffer, 0, 0, CONSTANT=True))
    assert isinstance(error, PrimitiveArgumentError) and "is no buffer; pass what alloc_profiler_buffer" in str(error)
