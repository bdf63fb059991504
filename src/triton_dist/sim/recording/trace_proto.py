"""A record in Perfetto's own format. Needs the package ``perfetto``, whose generated messages it fills.

A track for each rank with one for each row under it. Signals that ended a wait are flows, from the signal to a point at the wait's end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from . import events as kinds
from .events import Event, Row
from .record import Record, facts, row_name, slices, title

_SEQUENCE = 1
_STATE_CLEARED = 1
"""TracePacket.SEQ_INCREMENTAL_STATE_CLEARED"""

_RANKS = 1 << 20
"""First number of the ranks' tracks; below are those of the rows."""


def trace_proto(record: Record) -> bytes:
    """The bytes of the file."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

    trace = messages.Trace()
    writer = _Writer(trace, messages.TrackEvent, {row: 1 + number for number, row in enumerate(record.rows)})
    writer.tracks(record)
    by_row: dict[Row, list[Event]] = defaultdict(list)
    for event in record.events:
        by_row[event.row].append(event)
    packets: list[tuple[float, int, Any]] = []
    for members in by_row.values():
        for what, event, time in slices(members, record.end[0]):
            packets.append((time, len(packets), (what, event)))
    for time, _, (what, event) in sorted(packets, key=lambda packet: packet[:2]):
        writer.event(what, event, time)
    for finding in record.findings:
        for side in finding.sides:
            if side.row is not None:
                arguments = {"report": finding.text, "who": side.what}
                if side.place is not None:
                    arguments["source"] = f"{side.place.file}:{side.place.line}"
                writer.point(f"{finding.kind}: {side.role}", "finding", side.row, side.time, arguments)
    return trace.SerializeToString()


class _Writer:
    """Adds packets to a trace. tracks: the number of each row's track."""

    def __init__(self, trace: Any, track_event: Any, tracks: dict[Row, int]) -> None:
        self._trace = trace
        self._types = {"begin": track_event.TYPE_SLICE_BEGIN, "end": track_event.TYPE_SLICE_END, "point": track_event.TYPE_INSTANT}
        self._tracks = tracks
        self._flows: dict[Event, list[int]] = defaultdict(list)

    def _packet(self) -> Any:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if len(self._trace.packet) == 1:
            packet.sequence_flags = _STATE_CLEARED
        return packet

    def tracks(self, record: Record) -> None:
        """Name the ranks and the rows, and number the flows: each wait has one of its own, since a signal may end several."""
        for rank in range(record.world_size):
            process = self._packet().track_descriptor
            process.uuid = _RANKS + rank
            process.process.pid = 1 + rank  # 0 would be the idle process
            process.child_ordering = process.EXPLICIT
            process.process.process_name = f"rank {rank}"
        for row, number in self._tracks.items():
            track = self._packet().track_descriptor
            track.uuid, track.parent_uuid, track.name = number, _RANKS + row.rank, row_name(row)
            track.sibling_order_rank = number
        for event in record.events:
            if event.kind in kinds.ENDED_BY_SIGNAL and event.cause is not None:
                self._flows[event.cause].append(event.first)

    def event(self, what: str, event: Event, time: float) -> None:
        """A slice begins or ends, or something happens at a point."""
        if what == "end":
            if event.kind in kinds.ENDED_BY_SIGNAL and event.cause is not None:
                self._flow_ends(event, time)
            self._track_event(what, event.row, time)
            return
        made = self._track_event(what, event.row, time, title(event), event.kind, facts(event))
        if event.kind == kinds.SIGNAL:
            made.flow_ids.extend(self._flows.get(event, ()))
        elif event.kind in kinds.ENDED_BY_SIGNAL and what == "point" and event.cause is not None:
            made.terminating_flow_ids.append(event.first)

    def _flow_ends(self, event: Event, time: float) -> None:
        self._track_event("point", event.row, time, "signal seen", kinds.WAIT).terminating_flow_ids.append(event.first)

    def point(self, name: str, category: str, row: Row, time: float, arguments: dict[str, Any]) -> None:
        """Something at a point that is no event of the record."""
        self._track_event("point", row, time, name, category, arguments)

    def _track_event(
        self, what: str, row: Row, time: float, name: str = "", category: str = "", arguments: dict[str, Any] | None = None
    ) -> Any:
        packet = self._packet()
        packet.timestamp = round(time)
        made = packet.track_event
        made.type, made.track_uuid = self._types[what], self._tracks[row]
        if name:
            made.name = name
            made.categories.append(category)
        for key, value in (arguments or {}).items():
            note = made.debug_annotations.add()
            note.name, note.string_value = key, str(value)
        return made
