"""``simulate(..., report=PATH)``: which format a path asks for, and writing it however the run ends."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..machine import Machine
    from .record import Record

ENDINGS = (".html", ".json", ".pftrace")


def find_writer(report: object) -> Callable[[Record], Path]:
    """What writes a record to the file that a user passed as ``report``; it makes the folder. Raises InvalidArgumentError."""
    if not isinstance(report, (str, Path)) or Path(report).suffix not in ENDINGS:
        raise InvalidArgumentError(f"report={report!r}; pass the path of a file that ends in one of {', '.join(ENDINGS)}")
    path = Path(report).absolute()  # ranks may change the folder
    if path.is_dir():
        raise InvalidArgumentError(f"report={report!r} is a folder; pass the path of a file in it")
    if path.suffix == ".pftrace":
        require_perfetto(f"report={report!r}")

    def write(record: Record) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".html":
            from ..report_page.page import page

            path.write_text(page(record), encoding="utf-8")
        elif path.suffix == ".json":
            from .trace_json import trace_json

            path.write_text(trace_json(record), encoding="utf-8")
        else:
            from .trace_proto import trace_proto

            path.write_bytes(trace_proto(record))
        return path

    return write


def require_perfetto(what: str) -> None:
    """Raise InvalidArgumentError, naming ``what`` was asked for, if the package that writes its format is not there."""
    if importlib.util.find_spec("perfetto") is None:
        raise InvalidArgumentError(
            f"{what} needs the package perfetto: pip install 'triton-dist[perfetto]'; ui.perfetto.dev opens '.json', too"
        )


@contextlib.contextmanager
def recorded(machine: Machine, write: Callable[[Record], Path], settings: dict[str, Any]) -> Iterator[None]:
    """Record what runs inside and write it at the end, also when it raises: the error then says in a note where the report is."""
    from .record import make_record
    from .recorder import Recorder

    recorder = Recorder(machine)
    settings = {**settings, "limit": recorder.limit}
    if machine.races is not None:
        machine.races.recorder = recorder
    try:
        yield
    except BaseException as error:
        recorder.stop(error)
        try:
            error.add_note(f"report: {write(make_record(recorder, settings))}")
        except OSError as problem:
            error.add_note(f"no report: {problem}")
        raise
    recorder.stop()
    write(make_record(recorder, settings))
