"""From kernels on several ranks to one file, read back: Chrome's JSON and Perfetto's format; and the picture of it."""

from __future__ import annotations

import json
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import triton_dist
from tests.tools.profiler.kernels import NAMES, ring_kernel, rounds_kernel
from tests.tools.profiler.made_up import NAMES as MADE_UP
from tests.tools.profiler.made_up import PRODUCT, SEND, clock, notify, profile, track, wait
from triton_dist.errors import InvalidArgumentError, LostRecordsWarning
from triton_dist.sim.recording import files
from triton_dist.tools.profiler import (
    ProfilerBuffer,
    Task,
    alloc_profiler_buffer,
    export_merged_trace,
    export_to_perfetto_trace,
    parse_to_tracks,
)
from triton_dist.tools.profiler.picture import main, save_picture
from triton_dist.tools.profiler.trace import write_trace


def events_of(path) -> list[dict]:
    return json.loads(path.read_text())["traceEvents"]


def ring(path, rounds=2, programs=2, **options):
    flags = triton_dist.symm_zeros((programs,), torch.int32)
    with ProfilerBuffer(400, path, NAMES, **options) as profiler:
        ring_kernel[(programs,)](profiler.profiler_buffer, flags, ROUNDS=rounds, PROFILE=True)
    return profiler


@pytest.mark.parametrize("seed", range(2))
def test_all_ranks_in_one_file(tmp_path, seed):
    path = tmp_path / "new" / "ring.json"
    triton_dist.simulate(lambda: ring(path).profile, 3, seed=seed)
    events = events_of(path)
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in range(3)}
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(rows) == 6 and all(name.startswith("SM ") for name in rows.values())
    waits = [event for event in events if event["ph"] == "X"]
    assert Counter((event["name"], event["pid"]) for event in waits) == {("wait", rank): 4 for rank in range(3)}
    assert all("ge" in event["args"]["detail"] and event["args"]["ended by"].startswith("rank ") for event in waits)
    assert min(event["ts"] for event in events if "ts" in event) == 0
    begins, ends = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert begins.keys() == ends.keys() and len(begins) == len(waits)
    for number, end in ends.items():
        assert begins[number]["pid"] == (end["pid"] - 1) % 3 and begins[number]["ts"] <= end["ts"]
        inside = [wait for wait in waits if (wait["pid"], wait["tid"]) == (end["pid"], end["tid"])]
        assert any(wait["ts"] <= end["ts"] <= wait["ts"] + wait["dur"] for wait in inside), "the arrow ends in a wait"


def test_perfettos_format_has_the_same(tmp_path):
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs the package perfetto")
    path = tmp_path / "ring.perfetto-trace"
    triton_dist.simulate(lambda: ring(path).profile, 2)
    trace = messages.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")}
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    assert sorted(track.process.process_name for track in tracks.values() if track.HasField("process")) == ["rank 0", "rank 1"]
    assert Counter(event.name for event in events if event.type == event.TYPE_SLICE_BEGIN) == {"wait": 8}
    ended = [flow for event in events for flow in event.terminating_flow_ids]
    assert len(ended) == len(set(ended)) == 8 and set(ended) <= {flow for event in events for flow in event.flow_ids}


def test_one_rank_alone_and_without_a_world(tmp_path, capsys):
    def run():
        buffer, values = alloc_profiler_buffer(400), torch.zeros(128)
        rounds_kernel[(2,)](buffer, values, 3, GROUP=1, LEADER=False)
        path = tmp_path / f"rank{triton_dist.rank()}.json"
        found = export_to_perfetto_trace(buffer, ["outer", "inner"], str(path), verbose=True)
        assert found.ranks[0].tracks == parse_to_tracks(buffer)
        return buffer, path

    for rank, (buffer, path) in enumerate(triton_dist.simulate(run, 2)):
        slices = [event for event in events_of(path) if event["ph"] == "X"]
        assert Counter(event["name"] for event in slices) == {"outer": 2, "inner": 2, "task 2": 2, "task 3": 2}
        assert {event["pid"] for event in slices} == {rank} and slices[0]["args"]["detail"] == "block 0, group 1"
        elsewhere = tmp_path / "elsewhere.json"
        export_to_perfetto_trace(buffer, NAMES, elsewhere)
        assert {event["pid"] for event in events_of(elsewhere)} == {0}
    said = capsys.readouterr().out
    assert "rank 1: 2 x outer, " in said and f"trace: {tmp_path / 'rank1.json'}" in said


def test_a_rank_for_itself(tmp_path):
    def run():
        return ring(tmp_path / f"{triton_dist.rank()}.json", merge=False).profile

    profiles = triton_dist.simulate(run, 2)
    assert [[rank.rank for rank in found.ranks] for found in profiles] == [[0], [1]]
    assert {path.name for path in tmp_path.iterdir()} == {"0.json", "1.json"}


def test_the_overlap_is_printed_and_in_the_file(tmp_path, capsys):
    path = tmp_path / "ring.json"
    profilers = triton_dist.simulate(lambda: ring(path, communication=["wait"], compute=["outer"]), 2)
    assert [overlap.efficiency for overlap in profilers[1].overlaps] == [0.0, 0.0]
    said = capsys.readouterr().out
    assert said.count("rank 0: 0.0 % of ") == 1 and said.count(f"trace: {path}") == 1
    assert json.loads(path.read_text())["otherData"]["overlap efficiency"] == {"0": 0.0, "1": 0.0}


def test_where_the_body_raises_nothing_is_written(tmp_path):
    def run():
        with ProfilerBuffer(100, tmp_path / "never.json", NAMES):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        triton_dist.simulate(run, 2)
    assert not list(tmp_path.iterdir())


def test_what_was_dropped_is_in_the_file(tmp_path):
    path = tmp_path / "full.json"

    def run():
        buffer = alloc_profiler_buffer(8)
        rounds_kernel[(1,)](buffer, torch.zeros(64), 20, GROUP=0, LEADER=False)
        export_merged_trace(buffer, NAMES, path)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        triton_dist.simulate(run, 2)
    assert sum(issubclass(warning.category, LostRecordsWarning) for warning in caught) >= 1
    marks = [event for event in events_of(path) if event.get("cat") == "finding"]
    assert [mark["args"]["report"] for mark in marks] == [
        f"27 records of rank {rank} found no room in its buffer and are missing" for rank in range(2)
    ]
    assert json.loads(path.read_text())["otherData"]["records dropped"] == {"0": 27, "1": 27}


def test_clocks_are_aligned_in_the_file(tmp_path):
    """Rank 1's clock is a second ahead; the bounds are in the file."""
    sent, waited = [track(notify(0, 1, 5_000))], [track(wait(1, 1_000_004_000, 1_000_006_000))]
    path = write_trace(profile(sent, waited, clocks=[clock(0), clock(10**9, bound=300, resolution=32)]), tmp_path / "trace.json")
    (found,) = [event for event in events_of(path) if event["ph"] == "X"]
    (mark,) = [event for event in events_of(path) if event["ph"] == "i"]
    assert (found["ts"], found["dur"], mark["ts"]) == (0.0, 2.0, 1.0) and sum(event["ph"] == "f" for event in events_of(path)) == 1
    assert json.loads(path.read_text())["otherData"]["clocks may be off by, ns"] == {"0": 0.0, "1": 332.0}


def test_times_since_1970_keep_their_nanoseconds_in_the_file(tmp_path):
    start = 1_800_000_000_000_000_000
    path = write_trace(profile([track(Task(PRODUCT, start, 10), Task(SEND, start + 3, 4))]), tmp_path / "trace.json")
    assert [(event["ts"], event["dur"]) for event in events_of(path) if event["ph"] == "X"] == [(0.0, 0.01), (0.003, 0.004)]


def test_blocks_of_one_sm_at_the_same_time_have_rows_of_their_own(tmp_path):
    made = [
        track(Task(PRODUCT, start, 100), Task(SEND, start + 10, 20), block=block, sm=7)
        for block, start in enumerate((0, 50, 100, 100, 300))
    ]
    path = write_trace(profile(made), tmp_path / "trace.json")
    rows = {event["tid"]: event["args"]["name"] for event in events_of(path) if event["name"] == "thread_name"}
    assert sorted(rows.values()) == ["SM 7", "SM 7, 2", "SM 7, 3"]
    spans = defaultdict(list)
    for event in events_of(path):
        if event["ph"] == "X" and event["name"] == MADE_UP[PRODUCT]:
            spans[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert sum(map(len, spans.values())) == 5
    assert all(before[1] <= after[0] for row in spans.values() for before, after in zip(sorted(row), sorted(row)[1:], strict=False))


def test_a_profile_of_nothing(tmp_path):
    path = write_trace(profile([], []), tmp_path / "empty.json")
    assert not [event for event in events_of(path) if event["ph"] == "X"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"trace_file": ""}, "pass the path of the trace"),
        ({"trace_file": 5}, "pass the path of the trace"),
        ({"trace_file": "."}, "is a folder"),
        ({"task_names": "send"}, "must be a list of names"),
        ({"task_names": [1, 2]}, "must be a list of names"),
        ({"compute": ["gemm"]}, "no task is called 'gemm'; the tasks are outer, inner, wait, send"),
        ({"max_num_profile_slots": 0}, "max_num_profile_slots=0"),
    ],
)
def test_bad_arguments_are_named_before_anything_runs(arguments, text):
    with pytest.raises(InvalidArgumentError, match=text):
        ProfilerBuffer(**{"max_num_profile_slots": 100, "trace_file": "x.json", "task_names": NAMES, **arguments})


def test_without_the_package_perfetto_its_format_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    for name in ("trace.pftrace", "trace.perfetto-trace", "trace"):
        with pytest.raises(InvalidArgumentError, match=r"triton-dist\[perfetto\]"):
            ProfilerBuffer(100, name, NAMES)
    ProfilerBuffer(100, "trace.json", NAMES)


def test_the_picture_of_a_trace(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    trace = tmp_path / "ring.json"
    triton_dist.simulate(lambda: ring(trace).profile, 2)
    assert save_picture(trace, tmp_path / "new" / "ring.svg", "a ring").stat().st_size > 4000
    text = (tmp_path / "new" / "ring.svg").read_text()
    assert "<svg" in text and text.count("<path") > 10
    monkeypatch.setattr("sys.argv", ["picture", str(trace), str(tmp_path / "ring.png"), "--title", "a ring"])
    main()
    assert capsys.readouterr().out.strip() == str(tmp_path / "ring.png")
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("text", ["no json", "[]", '{"other": 1}', None])
def test_a_picture_of_what_is_no_trace(tmp_path, text):
    path = tmp_path / "trace.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidArgumentError, match="is no trace in Chrome's JSON"):
        save_picture(path, tmp_path / "picture.png")


def test_the_trace_of_the_docs_is_whole(tmp_path):
    pytest.importorskip("matplotlib")
    path = Path(__file__).parents[3] / "docs" / "profiler.json"
    events = events_of(path)
    waits = [event for event in events if event["ph"] == "X" and event["name"] == "wait"]
    assert {event["pid"] for event in waits} == {0, 1, 2, 3}
    assert sum(event["ph"] == "f" for event in events) == len(waits)
    assert save_picture(path, tmp_path / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", [None, 5, "", ".", "file/inside.json", "file/a/b.json", "/proc/none/x.json", "bad\0name.json"])
def test_a_file_that_can_not_be_written_is_named_before_anything_runs(name, tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / name) if isinstance(name, str) and name else name
    with pytest.raises(InvalidArgumentError, match="file_name="):
        ProfilerBuffer(100, path, NAMES)
    assert (tmp_path / "file").read_text() == ""


def test_each_rank_has_its_own_file(tmp_path):
    path = tmp_path / "ring.of.json"
    triton_dist.simulate(lambda: ring(path, merge=False), 3)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"ring.of.rank{rank}.json" for rank in range(3)]
    for rank in range(3):
        events = events_of(tmp_path / f"ring.of.rank{rank}.json")
        assert {event["pid"] for event in events if event["ph"] == "X"} == {rank}
    triton_dist.simulate(lambda: ring(path, merge=False), 1)
    assert path.exists(), "one rank alone needs no other name"


def test_a_block_that_is_entered_again_begins_anew(tmp_path):
    def body():
        flags = triton_dist.symm_zeros((2,), torch.int32)
        profiler = ProfilerBuffer(400, tmp_path / "ring.json", NAMES)
        numbers = []
        for _ in range(3):
            flags.zero_()
            triton_dist.ops.barrier()
            with profiler:
                ring_kernel[(2,)](profiler.profiler_buffer, flags, ROUNDS=2, PROFILE=True)
            numbers.append(sum(len(track.tasks) for rank in profiler.profile.ranks for track in rank.tracks))
        return numbers

    first, *others = triton_dist.simulate(body, 2)[0]
    assert first > 0 and others == [first, first]


@pytest.mark.parametrize("names", ["send", 5, None, [1]])
def test_what_is_no_list_of_tasks(names, tmp_path):
    for argument in ("communication", "compute"):
        with pytest.raises(InvalidArgumentError, match=f"{argument}=.* must be a list of names"):
            ProfilerBuffer(100, tmp_path / "x.json", NAMES, **{argument: names})


@pytest.mark.parametrize(
    "text",
    ["", "5", "[]", "null", "[" * 100_000,
     '{"traceEvents": 5}', '{"traceEvents": [{}]}', '{"traceEvents": [5]}', '{"traceEvents": [{"ph": "X"}]}',
     '{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 0}]}',
     '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 0, "tid": 0}]}',
     '{"traceEvents": [{"ph": "X", "name": "a", "ts": "x", "dur": 1, "pid": 0, "tid": 0}]}'],
)  # fmt: skip
def test_what_is_no_trace_of_a_profile(text, tmp_path):
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(InvalidArgumentError, match="is no trace"):
        save_picture(tmp_path / "trace.json", tmp_path / "picture.png")


def test_endings_of_pictures(tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    for picture in ("picture.xyz", "picture", None, 5):
        with pytest.raises(InvalidArgumentError, match="give a path ending in .png, .svg, .pdf"):
            save_picture(tmp_path / "trace.json", picture)
