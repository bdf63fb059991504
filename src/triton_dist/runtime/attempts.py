"""Calls that may fail or hang on some ranks, after which all ranks go on together: what configs are tried with.

An attempt is collective. Waits inside it are bounded, by seconds on GPUs and CPU processes, by the proof of a deadlock on the simulator.
Whatever happened, the ranks then tell each other how it went, and afterwards nothing is queued any more, waits hold again, and the words
of device barriers begin anew where a rank had trouble. What kernels wrote by then, signals and data of the caller, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import DeadlockError, PeerLostError, SimulationError, TritonDistError, WaitTimeoutError
from .team import Team
from .world import require_world

HANGS = (DeadlockError, WaitTimeoutError)
"""Errors that say that something was waited for in vain."""

_LONGEST_REASON = 2000


@dataclass(frozen=True)
class Outcome:
    """How a call went on one rank.

    reason: why it failed, as "class: text"; None if it did not. hung: it, or a kernel of it, waited in vain. fatal: this rank's device
    can't be used any more. value: what the call returned.
    """

    reason: str | None = None
    hung: bool = False
    fatal: bool = False
    value: Any = None


class Attempts(Protocol):
    """What a world does for an attempt. All but ``gather`` and ``mend`` are for this rank alone."""

    def begin(self, seconds: float) -> None:
        """Let no wait take longer from now on."""

    def let_go(self, ranks: Sequence[int]) -> None:
        """This rank's call has failed: the others of ``ranks`` need not wait for what it would have sent."""

    def end(self) -> TritonDistError | None:
        """Wait until the device is idle, and take the bound back. Gives the hang that was found, after which the world may need ``mend``.

        Raises what the device raises if it can't be used any more.
        """

    def gather(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; each of them calls it. Works in a world that needs ``mend``, too."""

    def mend(self, ranks: Sequence[int]) -> None:
        """After a failure, on all ``ranks`` together: make the world as it was, with nothing queued."""


def attempt(team: Team, act: Callable[[], Any], seconds: float, what: str) -> list[Outcome]:
    """Run ``act()`` on every rank of ``team`` and wait for the device; how it went on each, in team order. All of them call it.

    act: what it returns goes to the other ranks, so it is plain data. seconds: how long a wait of a kernel may take, so more than the
    ranks may be apart. what: for reports of who waits for whom.
    Raises PeerLostError if a process is gone, and what ends the world otherwise (on CPU processes: a SimulationError of a kernel).
    """
    world = require_world(what)
    attempts: Attempts = world.attempts
    attempts.gather(team.ranks, "ready")
    outcome = _run(attempts, world, team, act, seconds, what)
    outcomes = attempts.gather(team.ranks, outcome)
    if any(each.reason is not None for each in outcomes):
        attempts.mend(team.ranks)
    return outcomes


def _run(attempts: Attempts, world: Any, team: Team, act: Callable[[], Any], seconds: float, what: str) -> Outcome:
    value, reason, hung = None, None, False
    attempts.begin(seconds)
    try:
        value = act()
        world.synchronize(why=what)
    except PeerLostError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must hear of it
        if isinstance(error, SimulationError) and not isinstance(error, HANGS):
            raise
        reason, hung = _in_words(error), isinstance(error, HANGS)
        attempts.let_go(team.ranks)
    try:
        hang = attempts.end()
    except TritonDistError:
        raise
    except Exception as error:  # noqa: BLE001 - the device is lost, which all ranks have to know
        return Outcome(reason or _in_words(error), hung, fatal=True)
    if hang is not None:
        reason, hung = reason or _in_words(hang), True
    return Outcome(reason, hung, value=None if reason is not None else value)


def _in_words(error: BaseException) -> str:
    """The text of an error; not the error, whose frames keep tensors alive."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + " ..."
