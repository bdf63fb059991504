"""What ``simulate(check=...)`` takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...errors import InvalidArgumentError
from ...lints import LINTS


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
        _check_limit(self, self.limit)


@dataclass(frozen=True)
class LintCheck:
    """Look for misuse that has a code (docs/lints); ``check="lint"`` is ``LintCheck()``.

    collect: False (default) raises MisuseError at the first finding. True runs to the end and raises one MisuseError with all of them.
    limit: findings that are collected at most (default 50); the run ends there. The same code at the same source line counts once.
    ignore: codes that are not reported.
    tokens: whether a load that does not depend on the token of the wait before it is reported (TD113, a warning): stock Triton keeps the
        order, compilers that know tokens may not. Default False.
    """

    collect: bool = False
    limit: int = 50
    ignore: Collection[str] = ()
    tokens: bool = False

    def __post_init__(self) -> None:
        _check_limit(self, self.limit)
        unknown = [code for code in self.ignore if code not in LINTS] if not isinstance(self.ignore, str) else [self.ignore]
        if unknown:
            raise InvalidArgumentError(f"LintCheck(ignore={self.ignore!r}): pass a list of codes of docs/lints; {unknown} are none")


def _check_limit(options: RaceCheck | LintCheck, limit: object) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidArgumentError(f"{type(options).__name__}(limit={limit!r}); it has to be an integer of at least 1")


@dataclass(frozen=True)
class Checks:
    """What a run looks for; None for what it does not."""

    race: RaceCheck | None = None
    lint: LintCheck | None = None


Check = str | RaceCheck | LintCheck | None
"""What a user passes as ``check``: also a list or tuple of one RaceCheck and one LintCheck."""

_NAMES = {"race": Checks(RaceCheck(), None), "lint": Checks(None, LintCheck()), "all": Checks(RaceCheck(), LintCheck())}


def find_check(check: object) -> Checks | None:
    """The options for what a user passed as ``check``. Raises InvalidArgumentError."""
    if check is None or check == "":
        return None
    if isinstance(check, str) and check in _NAMES:
        return _NAMES[check]
    parts = list(check) if isinstance(check, (list, tuple)) else [check]
    races = [part for part in parts if isinstance(part, RaceCheck)]
    lints = [part for part in parts if isinstance(part, LintCheck)]
    if parts and len(races) + len(lints) == len(parts) and len(races) <= 1 and len(lints) <= 1:
        return Checks(races[0] if races else None, lints[0] if lints else None)
    raise InvalidArgumentError(
        f"check={check!r} is not known; use one of None, 'race', 'lint', 'all', a triton_dist.sim.check.RaceCheck or LintCheck, or a list "
        "of one of each"
    )
