"""What ``simulate(check=...)`` takes."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidArgumentError


@dataclass(frozen=True)
class RaceCheck:
    """Look for data races; ``check="race"`` is ``RaceCheck()``.

    collect: False (default) raises DataRaceError at the first race. True runs to the end and raises one DataRaceError with all of them.
    limit: races that are collected at most (default 50); the run ends there. Races between the same two source lines and of the
        same ranks' memory count once.
    """

    collect: bool = False
    limit: int = 50

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 1:
            raise InvalidArgumentError(f"RaceCheck(limit={self.limit!r}); it has to be an integer of at least 1")


def find_check(check: object) -> RaceCheck | None:
    """The options for what a user passed as ``check``. Raises InvalidArgumentError."""
    if check is None or check == "":
        return None
    if check == "race":
        return RaceCheck()
    if isinstance(check, RaceCheck):
        return check
    raise InvalidArgumentError(f"check={check!r} is not known; use one of None, 'race' or a triton_dist.sim.check.RaceCheck")
