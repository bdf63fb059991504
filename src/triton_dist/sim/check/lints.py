"""What the lints of one simulation have found, and what is done with it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import DeadlockError, MisuseError, MisuseWarning, SimulationError
from ...lints import LINTS, Finding, silenced
from .options import LintCheck

if TYPE_CHECKING:
    from ..ir import Location


class Lints:
    """Findings of one simulation. options: what to do with one."""

    def __init__(self, options: LintCheck) -> None:
        self.options = options
        self.findings: list[Finding] = []
        self._seen: set[tuple] = set()
        self._holding = False

    def report(self, code: str, message: str, place: Location | None = None, kernel: str | None = None, rank: int | None = None) -> None:
        """Note one finding, once for each code and source line.

        Raises MisuseError, unless it is silenced, a warning, or to be collected.
        """
        file, line = (place.file, place.line) if place is not None and place.line else (None, None)
        key = (code, file, line) if file else (code, message)
        if key in self._seen or code in self.options.ignore or silenced(file, line, code):
            return
        self._seen.add(key)
        finding = Finding(code, message, file, line, kernel, rank)
        if LINTS[code].warns:
            warnings.warn(str(finding), MisuseWarning, stacklevel=2)
            return
        self.findings.append(finding)
        if self._holding:
            return
        if not self.options.collect or len(self.findings) >= self.options.limit:
            raise self.error()

    def report_at(self, code: str, message: str, actor: Any, location: Any, other: tuple[Any, Any] | None = None) -> None:
        """As ``report``, of what an actor (see ``actors``) did at a location. other: who else takes part and where; silenced there, too."""
        if other is not None:
            place = _place(*other)
            if place is not None and silenced(place.file, place.line, code):
                return
        kernel = getattr(actor, "kernel", None)
        name = None if kernel is None else kernel.name
        self.report(code, message, _place(actor, location), name, actor.rank if actor.rank >= 0 else None)

    def error(self) -> MisuseError:
        """The error for what was found so far."""
        text = "\n".join(str(finding) for finding in self.findings)
        if len(self.findings) > 1:
            text = f"{len(self.findings)} findings\n{text}"
        return MisuseError(text, tuple(self.findings))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise nothing for what is found meanwhile."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def add_to(self, error: SimulationError) -> None:
        """Tell of what was found in another error that ends the run: in the text of a deadlock, which it may explain, else in a note."""
        if not self.findings or error.findings:
            return
        error.findings = tuple(self.findings)
        text = "\n".join(str(finding) for finding in self.findings)
        if isinstance(error, DeadlockError):
            error.code = self.findings[0].code
            error.args = (f"{error}\n{text}",)
        else:
            error.add_note(f"the lints had found before:\n{text}")

    def finish(self) -> None:
        """Raise MisuseError for what was collected; called when everything has run."""
        if self.findings:
            raise self.error()


def _place(actor: Any, location: Any) -> Location | None:
    kernel = getattr(actor, "kernel", None)
    return kernel.location(location) if kernel is not None and isinstance(location, int) else None
