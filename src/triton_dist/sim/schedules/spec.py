"""Schedules as a user writes them: names, text with options, or objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidArgumentError
from .names import LOOPS, POLICIES, SCHEDULES
from .trace import Switch

if TYPE_CHECKING:
    from ..machine import Machine
    from .policy import Policy

_SWITCH = re.compile(r"([^@>\s]+)@(\d+)>([^@>\s]+)")
_LENGTH = 2000


class Schedule:
    """How a machine and the hosts choose what runs next.

    loop: the name of the machine's own loop, or "" where a policy chooses.
    """

    loop = ""

    def policy(self, seed: int, world_size: int) -> Policy | None:
        """What chooses in one run; None for the machine's own loop."""
        return None

    def begins(self, machine: Machine) -> None:
        """Called before a run."""

    def ended(self, machine: Machine) -> None:
        """Called after a run, also one that failed."""


@dataclass(frozen=True)
class Loop(Schedule):
    """One of the machine's own loops, by name."""

    name: str

    @property
    def loop(self) -> str:  # type: ignore[override]
        return self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Pct(Schedule):
    """Random priorities that change at ``depth - 1`` random turns (see ``pct``). As text ``pct``, ``pct:3`` or ``pct:3:5000``.

    depth: how many orderings a bug needs; default 3. length: turns that a run takes, roughly; default 2000. ``explore`` puts in what the
    runs before took.
    """

    depth: int = 3
    length: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("depth", self.depth), ("length", self.length)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidArgumentError(f"Pct({name}={value!r}); it has to be an integer of at least 1")

    def policy(self, seed: int, world_size: int) -> Policy:
        from .pct import PctPolicy

        return PctPolicy(seed, world_size, self.depth, self.length or _LENGTH)

    def __str__(self) -> str:
        return f"pct:{self.depth}" + ("" if self.length is None else f":{self.length}")


@dataclass(frozen=True)
class Late(Schedule):
    """Everything as late as it may be (see ``late``). As text ``late``."""

    def policy(self, seed: int, world_size: int) -> Policy:
        from .late import LatePolicy

        return LatePolicy(seed)

    def __str__(self) -> str:
        return "late"


@dataclass(frozen=True)
class Replay(Schedule):
    """Run on with the same host, program or task, but for these switches: what ``explore`` reports. The seed has no influence.

    text: switches ``name@turns>name``, separated by spaces; names are those of ``trace``. "pausing" in it: hosts let others run before
    they queue work. ``name#number`` alone: this put lands before others where several land at once. ``@path``: what stands in this
    file. As text ``replay:...``. Raises InvalidArgumentError.
    """

    text: str = ""

    def __post_init__(self) -> None:
        self.parts()

    def parts(self) -> tuple[list[Switch], list[str], bool]:
        """The switches, the order of landing, and whether hosts pause."""
        switches, landing, pausing = [], [], False
        text = self.text
        if text.startswith("@"):
            try:
                text = Path(text[1:]).read_text(encoding="utf-8")
            except OSError as error:
                raise InvalidArgumentError(f"Replay: the file {text[1:]} can't be read: {error}") from None
        for word in text.split():
            found = _SWITCH.fullmatch(word)
            if found is not None:
                switches.append(Switch(found[1], int(found[2]), found[3]))
            elif word == "pausing":
                pausing = True
            elif "#" in word and "@" not in word and ">" not in word:
                landing.append(word)
            else:
                raise InvalidArgumentError(f"Replay: {word!r} is not a switch such as 1.0.k0.3@5>h2; take the text that explore reports")
        return switches, landing, pausing

    def policy(self, seed: int, world_size: int) -> Policy:
        return self.replaying([])

    def replaying(self, applied: list[Any]) -> Policy:
        """The policy; the switches that had an effect, with who was preempted where for whom, are appended to ``applied``."""
        from .replay import ReplayPolicy

        return ReplayPolicy(*self.parts(), applied)

    def __str__(self) -> str:
        return f"replay:{self.text}"


def find_schedule(schedule: object) -> Schedule:
    """The schedule for what a user passed: an object, a name, or text. Raises InvalidArgumentError."""
    if isinstance(schedule, Schedule):
        return schedule
    if isinstance(schedule, str):
        name, colon, rest = schedule.partition(":")
        if name in LOOPS and not colon:
            return Loop(name)
        if name == "replay" and colon:
            return Replay(rest)
        if name in POLICIES:
            if not colon:
                return Pct() if name == "pct" else Late()
            if name == "pct" and re.fullmatch(r"\d+(:\d+)?", rest):
                depth, _, length = rest.partition(":")
                return Pct(int(depth), int(length) if length else None)
    raise InvalidArgumentError(
        f"schedule={schedule!r} is not known; use one of {SCHEDULES}, pct:<depth>, pct:<depth>:<turns>, replay:<what explore reported>, "
        "or an object of triton_dist.sim.schedules"
    )
