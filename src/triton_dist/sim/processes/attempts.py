"""Attempts (``runtime.attempts``) on CPU processes: the error of a hang, which every later call would raise, is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import TritonDistError
from ...runtime.attempts import HANGS
from ...runtime.control_group import ControlGroup

if TYPE_CHECKING:
    from .world import CpuWorld


class ProcessAttempts:
    """Attempts of one process. A deadlock is one of all processes, so it can be taken back where all of them take part only."""

    def __init__(self, world: CpuWorld, control: ControlGroup) -> None:
        self._world = world
        self._control = control

    def begin(self, seconds: float) -> None:
        self._world.engine.begin_attempt(seconds)

    def let_go(self, ranks: Sequence[int]) -> None:
        """A deadlock is found soon enough."""

    def end(self) -> TritonDistError | None:
        hang = None
        try:
            self._world.synchronize(why="the end of an attempt")
        except HANGS as error:
            hang = error
        self._world.engine.end_attempt()
        return hang

    def gather(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """By gloo: messages on boards are waits, which end in a world that has failed."""
        self._world.engine.tells_in_torch_distributed = False  # who is in there hears of a hang behind it
        try:
            return self._control.gather_among(ranks, value)
        finally:
            self._world.engine.tells_in_torch_distributed = True

    def mend(self, ranks: Sequence[int]) -> None:
        world = self._world
        if len(ranks) < world.world_size:
            world.raise_failure()
        # The verdict is a word that every process reads until it is taken back.
        if world.rank == ranks[0] and len(ranks) == world.world_size:
            world.engine.take_verdict_back()
        self.gather(ranks, "verdict taken back")
        world.engine.forgive()
        world.heap.clear_words(ranks)
        world.start_mail_over(self.gather(ranks, world.mail_numbers))
        self.gather(ranks, "mended")
