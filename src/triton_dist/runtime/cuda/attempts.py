"""Attempts (``runtime.attempts``) on GPUs: the bound of waits for the time of a call, and the error of one that ran into it taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import TritonDistError

if TYPE_CHECKING:
    from .watchdog import Watchdog
    from .world import CudaWorld


@dataclass(frozen=True)
class _Said:
    """What a rank says about an attempt, as opposed to what other collective calls say."""

    value: Any


class CudaAttempts:
    """Attempts of one process with a GPU."""

    def __init__(self, world: CudaWorld, watchdog: Watchdog) -> None:
        self._world = world
        self._watchdog = watchdog

    def begin(self, seconds: float) -> None:
        from .stream_waits import load_waits

        # Before the attempt begins: it raises what the world has run into, and from then on that may be another rank's failure.
        load_waits(self._world.device)
        self._watchdog.begin_attempt(seconds)

    def let_go(self, ranks: Sequence[int]) -> None:
        self._watchdog.let_peers_go(ranks)

    def end(self) -> TritonDistError | None:
        # Waits fall through at the bound, those of streams that were queued since, too: the device comes to an end.
        self._world.wait_for_device()
        return self._watchdog.end_attempt()

    def gather(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """A rank that is still inside its call, in an allocation perhaps, meets what this one says there, fails, and comes here."""
        while True:
            values = self._world.gather_among(ranks, _Said(value))
            if all(isinstance(said, _Said) for said in values):
                return [said.value for said in values]

    def mend(self, ranks: Sequence[int]) -> None:
        self._watchdog.hold_again()
        self.gather(ranks, "all waits hold again")
        self._world.heap.clear_words(ranks)
        self.gather(ranks, "mended")
