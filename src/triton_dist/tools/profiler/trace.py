"""A profile as a file that ui.perfetto.dev opens: Perfetto's own format or Chrome's JSON, by the writers of the simulator's reports."""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import InvalidArgumentError
from ...sim.recording.events import LANES, SIGNAL, TASK, Event, Finding, Row, Side
from ...sim.recording.files import require_perfetto
from ...sim.recording.record import Record
from .arrows import Arrow, describe_word, find_arrows
from .overlap import Overlap
from .profile import Profile, RankProfile
from .tracks import Notify, Task


def check_trace_file(file_name: object) -> Path:
    """The path of a trace that can be written: ``.json`` is Chrome's format, any other ending Perfetto's. Its folder is made.

    Raises InvalidArgumentError.
    """
    if not isinstance(file_name, (str, Path)) or not str(file_name):
        raise InvalidArgumentError(
            f"file_name={file_name!r}; pass the path of the trace: .json is Chrome's format, other endings Perfetto's"
        )
    path = Path(file_name)
    if "\0" in str(path):
        raise InvalidArgumentError(f"file_name={str(file_name)!r} has a NUL in it, which no path has")
    if path.is_dir():
        raise InvalidArgumentError(f"file_name={str(file_name)!r} is a folder; pass the path of a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"file_name={str(file_name)!r}: its folder can't be made: {error.strerror}") from None
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidArgumentError(f"file_name={str(file_name)!r} can't be written to; pass another path")
    if path.suffix != ".json":
        require_perfetto(f"the trace {str(file_name)!r}")
    return path


def write_trace(profile: Profile, file_name: str | Path, overlaps: Sequence[Overlap] = ()) -> Path:
    """Write what ranks recorded to a file. overlaps: what the file says of it besides. Returns the path.

    Raises InvalidArgumentError.
    """
    from ...sim.recording.trace_json import trace_json
    from ...sim.recording.trace_proto import trace_proto

    path = check_trace_file(file_name)
    record = make_record(profile, find_arrows(profile), overlaps)
    content = trace_json(record).encode() if path.suffix == ".json" else trace_proto(record)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidArgumentError(f"file_name={str(file_name)!r} can't be written: {error.strerror}") from None
    return path


def make_record(profile: Profile, arrows: Sequence[Arrow], overlaps: Sequence[Overlap] = ()) -> Record:
    """A profile as the simulator's reports see a run. Time begins with the first record of any rank."""
    builder = _Builder(profile)
    for rank in profile.ranks:
        builder.rank(rank)
    for arrow in arrows:
        builder.arrow(arrow)
    events = sorted(builder.events.values(), key=lambda event: event.begin)
    for number, event in enumerate(events):
        event.first = event.last = number
    world_size = 1 + max((rank.rank for rank in profile.ranks), default=0)
    settings: dict[str, Any] = {
        "ranks": world_size,
        "clocks may be off by, ns": {rank.rank: rank.clock.bound for rank in profile.ranks},
        "records dropped": {rank.rank: rank.dropped for rank in profile.ranks},
        "overlap efficiency": {overlap.rank: overlap.efficiency for overlap in overlaps},
        "triton_dist": __version__,
    }
    rows = sorted({event.row for event in events} | {side.row for finding in builder.findings for side in finding.sides if side.row})
    end = max((event.begin if event.end is None else event.end for event in events), default=1.0)
    return Record(settings, world_size, rows, events, builder.findings, {}, (max(end, 1.0), len(events) + 1), {})


class _Builder:
    """Makes events of what ranks recorded. events: by the identity of the task or notify."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.events: dict[int, Event] = {}
        self.findings: list[Finding] = []
        firsts = [rank.clock.aligned(track.first) for rank in profile.ranks for track in rank.tracks]
        self._origin = min(firsts, default=0)

    def rank(self, rank: RankProfile) -> None:
        """The events of one rank."""
        rows = _rows(rank)
        for track, row in zip(rank.tracks, rows, strict=True):
            detail = f"block {track.block}" + (f", group {track.group}" if track.group else "")
            for task in track.tasks:
                self._task(rank, row, task, detail)
            for notify in track.notifies:
                self._notify(rank, row, notify, detail)
        if rank.dropped:
            self._dropped(rank, rows[0] if rows else Row(rank.rank, "host", 0))

    def arrow(self, arrow: Arrow) -> None:
        """Tie a wait to the notify that ended it."""
        self.events[id(arrow.wait)].cause = self.events[id(arrow.notify)]

    def _time(self, rank: RankProfile, time: int) -> float:
        return float(rank.clock.aligned(time) - self._origin)

    def _task(self, rank: RankProfile, row: Row, task: Task, detail: str) -> None:
        if task.word is not None:
            detail += f"; {describe_word(task.word, rank.rank)} {task.word.operation} {task.word.value}"
        event = Event(TASK, row, self.profile.name(task.type), self._time(rank, task.start), 0, None, detail)
        event.end = None if task.end is None else self._time(rank, task.end)
        self.events[id(task)] = event

    def _notify(self, rank: RankProfile, row: Row, notify: Notify, detail: str) -> None:
        word = notify.word
        event = Event(SIGNAL, row, "", self._time(rank, notify.time), 0, None, f"{word.operation} {word.value} by {detail}")
        event.word = f"{self.profile.name(notify.type)}: {describe_word(word, rank.rank)}"
        event.end = event.begin
        self.events[id(notify)] = event

    def _dropped(self, rank: RankProfile, row: Row) -> None:
        text = f"{rank.dropped} records of rank {rank.rank} found no room in its buffer and are missing"
        last = max((track.last for track in rank.tracks), default=0)
        side = Side("buffer full", text, row, max(self._time(rank, last), 0.0))
        self.findings.append(Finding("records dropped", text, text, [side]))


def _rows(rank: RankProfile) -> list[Row]:
    """A row for each track: those of one SM that go on at the same time get lanes of their own."""
    rows: dict[int, Row] = {}
    busy: dict[int, list[tuple[int, int]]] = defaultdict(list)  # until when, lane
    free: dict[int, list[int]] = defaultdict(list)
    lanes: dict[int, int] = defaultdict(int)
    for track in sorted(rank.tracks, key=lambda track: track.first):
        while busy[track.sm] and busy[track.sm][0][0] <= track.first:
            heapq.heappush(free[track.sm], heapq.heappop(busy[track.sm])[1])
        if free[track.sm]:
            lane = heapq.heappop(free[track.sm])
        else:
            lane = lanes[track.sm]
            lanes[track.sm] += 1
        heapq.heappush(busy[track.sm], (track.last, lane))
        rows[id(track)] = Row(rank.rank, "lane", track.sm * LANES + min(lane, LANES - 1))
    return [rows[id(track)] for track in rank.tracks]
