"""Running a block: branches that lanes take or not, loops that poll, and barriers at which threads meet.

Lanes that stand at the same instruction go together; the group that is furthest behind goes first, so that lanes that parted meet again.
A group that jumps back waits until every other group has moved on, too: none can starve another one, as on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DataRaceError, MisuseError, SimulationError
from ..requests import SPIN, Steps
from .form import Step
from .frame import Frame, Mask
from .meeting import Meeting
from .spin import Poll, awaited

if TYPE_CHECKING:
    from .syntax import Instruction

_QUIET_ROUNDS = 10_000
"""Rounds of loops in which nothing is accessed, after which others may run."""


@dataclass(frozen=True)
class Line:
    """One instruction, ready to run.

    guard: predicate register and whether lanes go on where it is false. step: what it does, None for a branch, the end, or a meeting.
    target: of a branch. poll: of a branch back that ends a polling loop. meeting: where lanes meet, before they do ``step``. ends: whether
    lanes end here.
    """

    instruction: Instruction
    guard: tuple[int, bool] | None
    step: Step | None = None
    target: int = -1
    poll: Poll | None = None
    meeting: Meeting | None = None
    ends: bool = False


class Runner:
    """One run of a block. lines: its instructions. shares: whether others may see or change what it works on."""

    def __init__(self, lines: list[Line], frame: Frame, shares: bool) -> None:
        self._lines, self._frame, self._shares = lines, frame, shares
        self._groups: dict[int, np.ndarray] = {0: np.ones(frame.lanes, np.bool_)}
        """Lanes by the number of the instruction where they stand."""
        self._looped: set[int] = set()
        self._parked: dict[int, np.ndarray] = {}
        """Lanes at a barrier, by its number."""
        self._polls: dict[int, tuple[Poll, np.ndarray]] = {}
        self._before: tuple = ()
        self._fresh = True
        self._rounds = 0

    def steps(self) -> Steps:
        """All lanes to their ends."""
        while self._groups or self._parked:
            ready = [place for place in self._groups if place not in self._looped]
            if ready:
                place = min(ready)
                yield from self._run(place, self._groups.pop(place))
                continue
            if self._release():
                continue
            if not self._groups:
                self._fail_meeting()
            yield from self._end_round()

    def _run(self, place: int, lanes: np.ndarray) -> Steps:
        """A group, until it ends, parts, meets another one or jumps back."""
        lines = self._lines
        while True:
            if place in self._groups:
                self._join(place, lanes)
                return
            if place == len(lines):
                return
            line = lines[place]
            taking = self._taking(line, lanes)
            if line.step is not None and line.meeting is None:
                if taking is not None:
                    mask = None if taking.all() else taking
                    if line.step.yields_before and self._shares and not self._fresh:
                        yield None
                    self._fresh = False
                    self._apply(line, mask)
                    if line.step.yields_after and self._shares:
                        yield None
                place += 1
                continue
            if line.poll is not None and (taking is None or not taking[lanes].all()):
                line.poll.ended(self._frame, lanes if taking is None else lanes & ~taking)
            if taking is None:
                place += 1
                continue
            staying = lanes & ~taking
            if line.ends:
                pass
            elif line.meeting is not None:
                self._parked[place] = self._parked.get(place, np.zeros_like(lanes)) | taking
            else:
                if line.target <= place:
                    self._looped.add(line.target)
                    if line.poll is not None:
                        self._polls[place] = (line.poll, taking)
                self._join(line.target, taking)
            if not staying.any():
                return
            lanes = staying
            place += 1

    def _taking(self, line: Line, lanes: np.ndarray) -> np.ndarray | None:
        """Those of some lanes whose guard holds; None if it holds in none."""
        if line.guard is None:
            return lanes
        slot, negated = line.guard
        holds = self._frame.registers[slot]
        holds = ~holds if negated else holds
        if holds.size == 1:
            return lanes if holds[0] else None
        taking = lanes & holds
        return taking if taking.any() else None

    def _apply(self, line: Line, mask: Mask) -> None:
        assert line.step is not None
        try:
            line.step.run(self._frame, mask)
        except (DataRaceError, MisuseError):
            raise
        except SimulationError as error:
            raise type(error)(f"{error} ({line.instruction.place})") from None

    def _join(self, place: int, lanes: np.ndarray) -> None:
        self._groups[place] = self._groups[place] | lanes if place in self._groups else lanes

    # Loops

    def _end_round(self) -> Steps:
        """Every group has jumped back: let others run, who may change what is polled."""
        frame = self._frame
        looping = self._looped & set(self._groups)
        state = (*frame.registers, *(self._groups[place] for place in sorted(looping)))
        same = len(state) == len(self._before) and all(a is b or np.array_equal(a, b) for a, b in zip(state, self._before, strict=True))
        polls, self._polls = self._polls, {}
        self._before = state
        self._looped.clear()
        self._rounds += 1
        if not self._shares:
            if same:
                raise SimulationError("the assembly loops for ever: nothing that its loop tests changes")
            if self._rounds % _QUIET_ROUNDS == 0:
                yield None
            return
        self._fresh = True
        kept, stuck = frame.context.assembly, ""
        if kept is not None:
            kept.stuck, stuck = "", kept.stuck
        if not same:
            frame.polled.clear()
            yield None
            return
        if stuck and not frame.polled:
            raise SimulationError(f"{stuck}; no other thread of the block can come while this one waits")
        requests = awaited(frame, polls, len(looping))
        if requests is not None and len(requests) == 1:
            yield requests[0]
            return
        frame.context.awaits = tuple(requests or ())
        yield SPIN
        frame.context.awaits = ()

    # Barriers

    def _release(self) -> bool:
        """Let lanes go on from a barrier at which all have come that it waits for."""
        for place in list(self._parked):
            meeting = self._lines[place].meeting
            assert meeting is not None
            same = [number for number in self._parked if self._lines[number].meeting == meeting]
            here = np.logical_or.reduce([self._parked[number] for number in same])
            going = meeting.complete(self._frame, here)
            if going is None:
                continue
            for number in same:
                leaving = self._parked[number] & going
                left = self._parked.pop(number) & ~going
                if left.any():
                    self._parked[number] = left
                if leaving.any():
                    if self._lines[number].step is not None:
                        self._apply(self._lines[number], None if leaving.all() else leaving)
                    self._join(number + 1, leaving)
            return True
        return False

    def _fail_meeting(self) -> None:
        place, lanes = next(iter(self._parked.items()))
        line = self._lines[place]
        assert line.meeting is not None
        raise SimulationError(f"{line.meeting.incomplete(self._frame, lanes)} ({line.instruction.place})")
