"""The traces, read back: tracks, nesting, flows and findings, in Chrome's JSON and in Perfetto's format."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

import triton_dist
from tests.report import programs
from tests.report.recorded import made_up, record_of
from triton_dist.errors import DataRaceError, DeadlockError, InvalidArgumentError
from triton_dist.sim.recording import files
from triton_dist.sim.recording.trace_json import trace_json


def read_json(record) -> list[dict]:
    return json.loads(trace_json(record))["traceEvents"]


def test_json_has_a_process_for_each_rank_and_a_thread_for_each_row():
    events = read_json(record_of(programs.ring, 3))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
    threads = Counter(event["args"]["name"] for event in events if event["name"] == "thread_name")
    assert threads == Counter({"host": 3, "stream 0": 3, "SM 0": 3, "SM 1": 3})


def test_json_slices_nest():
    record = made_up(600)
    by_thread = defaultdict(list)
    for event in read_json(record):
        if event["ph"] == "X":
            by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(by_thread) == 4 * 9
    for slices in by_thread.values():
        for begin, end in slices:
            assert end >= begin
            for other_begin, other_end in slices:
                assert not (begin < other_begin < end - 1e-6 and other_end > end + 1e-6), "they cross"


def test_json_flows_go_from_the_signal_to_the_end_of_the_wait():
    record = record_of(programs.ring)
    events = read_json(record)
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    waits = [event for event in record.events if event.kind == "wait" and event.cause is not None]
    assert begins.keys() == ends.keys() == {wait.first for wait in waits}
    for wait in waits:
        begin, end = begins[wait.first], ends[wait.first]
        assert begin["ts"] <= end["ts"] <= wait.end / 1000 and end["bp"] == "e"
        assert (begin["pid"], end["pid"]) == (wait.cause.row.rank, wait.row.rank)
        assert threads[begin["pid"], begin["tid"]] == f"SM {wait.cause.row.number}"


def test_json_puts_are_asynchronous():
    events = [event for event in read_json(record_of(programs.put)) if event.get("cat") == "put"]
    assert Counter(event["ph"] for event in events) == Counter(b=2, e=2)


@pytest.mark.parametrize(
    "program, check, error, roles",
    [
        (programs.race, "race", DataRaceError, ["race: earlier access", "race: later access"]),
        (programs.stuck, None, DeadlockError, ["deadlock: waits"] * 4),
    ],
)
def test_json_marks_what_is_wrong(program, check, error, roles):
    events = read_json(record_of(program, 2, raises=error, check=check))
    marks = sorted((event for event in events if event.get("cat") == "finding"), key=lambda event: event["name"])
    assert [event["name"] for event in marks] == roles
    assert all("programs.py:" in event["args"]["source"] and event["args"]["report"] for event in marks)


def test_json_of_a_wait_that_never_ends():
    waits = [event for event in read_json(record_of(programs.stuck, 2, raises=DeadlockError)) if event.get("cat") == "wait"]
    assert len(waits) == 2 and all(event["args"]["ended by"].startswith("nobody") for event in waits)


@pytest.fixture
def messages():
    return pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs the package perfetto")


def read_proto(messages, data: bytes):
    trace = messages.Trace()
    trace.ParseFromString(data)
    return trace


def test_proto_tracks_and_slices(messages, tmp_path):
    path = tmp_path / "ring.pftrace"
    triton_dist.simulate(programs.ring, 3, report=path)
    packets = read_proto(messages, path.read_bytes()).packet
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")}
    ranks = {uuid for uuid, track in tracks.items() if track.HasField("process")}
    assert sorted(tracks[uuid].process.process_name for uuid in ranks) == ["rank 0", "rank 1", "rank 2"]
    assert Counter(track.name for uuid, track in tracks.items() if uuid not in ranks)["SM 1"] == 3
    assert all(track.parent_uuid in ranks for uuid, track in tracks.items() if uuid not in ranks)
    depth: Counter = Counter()
    last = 0
    for packet in packets:
        if packet.HasField("track_event"):
            assert packet.timestamp >= last and packet.track_event.track_uuid in tracks
            last = packet.timestamp
            kind = packet.track_event.type
            depth[packet.track_event.track_uuid] += {1: 1, 2: -1}.get(kind, 0)
            assert depth[packet.track_event.track_uuid] >= 0
    assert not +depth


def test_proto_flows(messages):
    from triton_dist.sim.recording.trace_proto import trace_proto

    record = record_of(programs.ring)
    events = [packet.track_event for packet in read_proto(messages, trace_proto(record)).packet if packet.HasField("track_event")]
    begun = [flow for event in events for flow in event.flow_ids]
    ended = [flow for event in events for flow in event.terminating_flow_ids]
    waits = [event for event in record.events if event.kind == "wait" and event.cause is not None]
    assert sorted(ended) == sorted(begun) == sorted(wait.first for wait in waits)


def test_proto_marks_a_race(messages):
    from triton_dist.sim.recording.trace_proto import trace_proto

    record = record_of(programs.race, raises=DataRaceError, check="race")
    marks = [p.track_event for p in read_proto(messages, trace_proto(record)).packet if "finding" in p.track_event.categories]
    assert sorted(event.name for event in marks) == ["race: earlier access", "race: later access"]
    notes = {note.name: note.string_value for note in marks[0].debug_annotations}
    assert "data race on inbox" in notes["report"] and "programs.py:" in notes["source"]


def test_without_perfetto_a_trace_of_its_is_refused_before_the_run(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgumentError, match=r"triton-dist\[perfetto\]"):
        triton_dist.simulate(lambda: pytest.fail("it ran"), 2, report="here.pftrace")
