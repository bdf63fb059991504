"""What a recorder keeps of a run: events, who caused what, and what was wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.report import programs
from tests.report.recorded import record_of
from triton_dist.errors import DataRaceError, DeadlockError, InvalidArgumentError, OutOfBoundsError
from triton_dist.sim import foresight
from triton_dist.sim.check import RaceCheck
from triton_dist.sim.gpus import GPU
from triton_dist.sim.recording.events import KINDS
from triton_dist.sim.timeline import Timeline


def line_with(text: str) -> int:
    """The line of programs.py that contains a text, which has to stand there once."""
    lines = Path(programs.__file__).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def kinds(record) -> Counter:
    return Counter(event.kind for event in record.events)


@pytest.mark.parametrize("execute", ["data", "timing"])
def test_programs_waits_and_who_ended_them(execute):
    record = record_of(programs.ring, 3, execute=execute)
    assert kinds(record) >= Counter(launch=3, program=6, wait=12, signal=12, submit=3)
    waits = [event for event in record.events if event.kind == "wait"]
    for wait in waits:
        assert wait.place == (programs.__file__, line_with("dl.wait(flags + tl"))
        assert wait.cause.row.rank == (wait.row.rank - 1) % 3
        assert wait.cause.place == (programs.__file__, line_with("dl.notify(flags + tl"))
        assert wait.cause.first < wait.last and wait.cause.word == wait.word
        assert wait.parent.kind == "program" and wait.parent.begin <= wait.begin <= wait.end <= wait.parent.end
    assert {event.word for event in waits} == {f"flags[{n}] of rank {rank}" for n in range(2) for rank in range(3)}
    assert not record.findings and not record.left_out


def test_both_axes_go_on():
    record = record_of(programs.ring, 4)
    assert [event.first for event in record.events] == sorted({event.first for event in record.events})
    assert all(event.last >= event.first and event.end >= event.begin for event in record.events)
    assert record.end[0] >= max(event.end for event in record.events) and record.end[1] > max(event.last for event in record.events)


def test_a_launch_comes_from_the_line_that_launched():
    record = record_of(programs.ring)
    launch = next(event for event in record.events if event.kind == "launch")
    assert launch.place == (programs.__file__, line_with("ring_kernel[(programs,)]"))
    assert launch.cause.kind == "submit" and launch.cause.row == (launch.row.rank, "host", 0)
    assert launch.detail == "grid (2, 1, 1)"
    program = next(event for event in record.events if event.kind == "program")
    assert program.place == (programs.__file__, line_with("def ring_kernel")) and program.parent.kind == "launch"


def test_streams_hosts_and_collectives():
    record = record_of(programs.streams, check="race")
    found = kinds(record)
    for kind in ("copy", "operator", "collective", "stream", "host wait"):
        assert found[kind] >= 2, kind
    wait = next(event for event in record.events if event.kind == "wait" and event.row.kind == "stream")
    assert wait.cause.row == (1 - wait.row.rank, "stream", 1)
    assert set(found) <= set(KINDS)


@pytest.mark.parametrize("seed", range(4))
def test_waits_that_a_tile_or_a_copy_ended(seed):
    record = record_of(programs.tile_flags, 2, seed=seed)
    waits = {event.row.rank: event for event in record.events if event.kind == "wait" and event.row.kind == "sm"}
    causes = {rank: wait.cause for rank, wait in waits.items() if wait.last > wait.first}
    assert causes, "somebody has waited"
    if 1 in causes:
        assert causes[1].place == (programs.__file__, line_with("tl.store(dl.symm_at(flags, 1) + offset")) and causes[1].row == (0, "sm", 0)
    assert causes[0].row == (1, "stream", 1) and causes[0].parent.kind == "copy"


def test_puts_from_issue_to_delivery_and_device_barriers():
    record = record_of(programs.put)
    puts = [event for event in record.events if event.kind == "put"]
    assert len(puts) == 2 and all(event.last > event.first and event.detail == "64 bytes" for event in puts)
    assert {event.word for event in puts} == {"inbox[0] of rank 0", "inbox[0] of rank 1"}
    assert kinds(record)["barrier"] == 2


def test_a_race_is_at_both_accesses():
    record = record_of(programs.race, raises=DataRaceError, check="race")
    (race,) = record.findings
    assert race.kind == "race" and race.tensor == "inbox" and "data race on inbox[0..15]" in race.title
    assert {side.place.line for side in race.sides} == {line_with("tl.store(dl.symm_at(inbox"), line_with("tl.load(inbox")}
    later, earlier = race.sides
    assert later.step >= earlier.step and {later.row.rank, earlier.row.rank} == {0, 1}
    assert all(side.event.kind == "program" and side.event.first <= side.step for side in race.sides)
    assert Path(programs.__file__).read_text() == record.sources[programs.__file__]


def test_all_races_that_are_collected():
    record = record_of(programs.race, raises=DataRaceError, check=RaceCheck(collect=True))
    assert len(record.findings) >= 1 and all(finding.kind == "race" for finding in record.findings)
    assert all(event.end is not None for event in record.events), "the run went on to its end"


def test_a_race_between_streams():
    def run():
        values = torch.zeros(8)
        with triton_dist.stream(triton_dist.Stream()):
            values.add_(1)

    record = record_of(run, 1, raises=DataRaceError, check="race")
    later, earlier = record.findings[0].sides
    assert (later.row, earlier.row) == ((0, "stream", 1), (0, "stream", 0))
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert [lines[side.place.line - 1].strip() for side in (later, earlier)] == ["values.add_(1)", "values = torch.zeros(8)"]


def test_a_race_with_a_collective():
    def run():
        dist.init_process_group("gloo")
        values = torch.ones(8)
        work = dist.all_reduce(values, async_op=True)
        values.mul_(2)
        work.wait()

    record = record_of(run, 2, raises=DataRaceError, check="race")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for side in record.findings[0].sides:
        wanted = "dist.all_reduce(values, async_op=True)" if "all_reduce" in side.what else "values.mul_(2)"
        assert wanted in lines[side.place.line - 1] and side.event.kind == ("collective" if "all_reduce" in side.what else "operator")


def test_a_deadlock_names_all_who_wait():
    record = record_of(programs.stuck, 2, raises=DeadlockError)
    (deadlock,) = record.findings
    assert deadlock.title == "2 programs, 2 hosts wait for ever"
    assert [side.row.kind for side in deadlock.sides if side.role == "waits"] == ["sm", "sm", "host", "host"]
    assert deadlock.sides[0].place.line == line_with('dl.wait(flags, 1, "sys", "acquire", waitValue=1)')
    assert "nobody wrote it" in deadlock.sides[0].what
    assert deadlock.cycle == [0, 1]
    assert sum(event.end is None and event.kind == "wait" for event in record.events) == 2


def test_a_circle_goes_from_who_waits_to_who_would_set_the_word():
    record = record_of(programs.stuck, 4, raises=DeadlockError)
    sides, cycle = record.findings[0].sides, record.findings[0].cycle
    assert [sides[index].row.rank for index in cycle] == [0, 3, 2, 1], "each waits for the one before it in the ring"
    line = line_with("dl.notify(flags, (dl.rank() + 1)")
    assert f"would be set by rank 3, program (0, 0, 0) of stuck_kernel at {programs.__file__}:{line}, which waits, too" in sides[0].what


def test_a_word_that_nobody_would_set():
    record = record_of(lambda: programs.stuck(rounds=0), 2, raises=DeadlockError)
    assert record.findings[0].cycle == [] and "would be set" not in record.findings[0].sides[0].what


def test_a_circle_through_streams():
    """Each stream waits for a word that the other one would write behind its wait."""

    def run():
        flags = triton_dist.symm_zeros((1,), torch.int32)
        triton_dist.wait_value(flags, 1)
        triton_dist.write_value(triton_dist.symm_peer(flags, 1 - triton_dist.rank()), 1)
        triton_dist.synchronize()

    (deadlock,) = record_of(run, 2, raises=DeadlockError).findings
    assert [deadlock.sides[index].row for index in deadlock.cycle] == [(0, "stream", 0), (1, "stream", 0)]
    assert "would be set by rank 1, wait of its stream" in deadlock.sides[0].what


def test_programs_that_cannot_start_and_loops_that_spin():
    def run():
        flag = triton_dist.symm_zeros((1,), torch.int32)
        programs.spin_kernel[(3,)](flag)

    (deadlock,) = record_of(run, 1, raises=DeadlockError, gpu=GPU("small", capability=90, sm_count=2, max_shared_memory=232_448)).findings
    spinning = [side for side in deadlock.sides if "goes round a loop" in side.what]
    loop = line_with("while tl.atomic_add(flag, 0")
    assert len(spinning) == 2 and all(side.place.line in (loop, loop + 1) for side in spinning)
    (queued,) = [side for side in deadlock.sides if side.role == "queued"]
    assert "1 of the 3 programs of spin_kernel can't start: all 2 SMs are taken" in queued.what
    assert queued.row == (0, "stream", 0)


def test_too_much_memory_to_put_back(monkeypatch):
    monkeypatch.setattr(foresight, "_BYTES", 3)
    record = record_of(programs.stuck, 2, raises=DeadlockError)
    assert record.findings[0].cycle == [] and len(record.findings[0].sides) == 4


@pytest.mark.parametrize("check", [None, "race"])
def test_looking_for_who_would_set_a_word_changes_nothing(check, capsys):
    kept = {}

    def run():
        out = torch.full((4,), 7, dtype=torch.int32)
        kept[triton_dist.rank()] = out
        programs.stuck(out=out)

    timeline = Timeline()
    record = record_of(run, 2, raises=DeadlockError, check=check, timeline=timeline)
    assert len(record.findings[0].cycle) == 2 and [finding.kind for finding in record.findings] == ["deadlock"]
    assert all(out.tolist() == [7] * 4 for out in kept.values())
    assert not timeline.waits and not capsys.readouterr().out
    assert not any(event.kind == "signal" for event in record.events)


def test_an_access_out_of_bounds():
    record = record_of(programs.beyond, raises=OutOfBoundsError)
    (error,) = record.findings
    assert error.title == "OutOfBoundsError" and "past the end" in error.text
    assert error.sides[0].place == (programs.__file__, line_with("tl.store(values + 4"))
    assert error.sides[0].row.kind == "sm"


def test_an_exception_in_a_host_function():
    record = record_of(lambda: programs.fails("no luck"), raises=ValueError)
    (error,) = record.findings
    assert error.title == "ValueError" and error.text.startswith("ValueError: no luck")
    assert error.sides[0].place == (programs.__file__, line_with("raise ValueError(text)"))
    assert error.sides[0].row == (1, "host", 0)


def test_the_latest_events_stay_and_the_others_are_counted():
    whole = record_of(lambda: programs.ring(rounds=20), 2)
    record = record_of(lambda: programs.ring(rounds=20), 2, limit=50)
    assert 50 <= len(record.events) <= 60, "and the programs that they are part of"
    assert record.left_out["signal"] + kinds(record)["signal"] == kinds(whole)["signal"]
    assert max(event.first for event in record.events) == max(event.first for event in whole.events)
    assert all(event.cause is None or event.cause in record.events for event in record.events)


def test_recording_changes_nothing():
    def run():
        programs.ring(rounds=5)
        return triton_dist.rank()

    recorded, plain = Timeline(), Timeline()
    record_of(run, 3, seed=7, timeline=recorded)
    triton_dist.simulate(run, 3, seed=7, timeline=plain)
    assert recorded.spans == plain.spans and recorded.waits == plain.waits


@pytest.mark.parametrize("ending", ["html", "json"])
@pytest.mark.parametrize("program, check", [(programs.ring, None), (programs.race, "race"), (programs.stuck, None)])
def test_the_file_is_written_however_the_run_ends(tmp_path, ending, program, check):
    path = tmp_path / "new folder" / f"report.{ending}"
    try:
        triton_dist.simulate(program, 2, check=check, report=path)
    except (DataRaceError, DeadlockError) as error:
        assert error.__notes__[-1] == f"report: {path}"
    assert path.stat().st_size > 500


@pytest.mark.parametrize("report", ["report", "report.txt", "", 5, True, b"report.html", "report.HTML"])
def test_a_path_that_is_none_is_named(report):
    with pytest.raises(InvalidArgumentError, match="report="):
        triton_dist.simulate(programs.ring, 2, report=report)


def test_explore_leaves_the_report_of_the_run_that_failed(tmp_path):
    path = tmp_path / "report.json"
    with pytest.raises(DataRaceError) as caught:
        triton_dist.explore(programs.race, 2, seeds=2, check="race", report=path)
    assert f"report: {path}" in caught.value.__notes__ and "data race on inbox" in path.read_text()


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "here.html").mkdir()
    with pytest.raises(InvalidArgumentError, match="folder"):
        triton_dist.simulate(programs.ring, 2, report=tmp_path / "here.html")


def test_a_file_that_cannot_be_written_hides_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DeadlockError) as caught:
        triton_dist.simulate(programs.stuck, 2, report=tmp_path / "file" / "report.html")
    assert "no report:" in caught.value.__notes__[-1]
    with pytest.raises(OSError):
        triton_dist.simulate(programs.ring, 2, report=tmp_path / "file" / "report.html")
