"""What the worker asks the simulator to look for, and how findings become items."""

from __future__ import annotations

import dataclasses

import pytest

from triton_dist.errors import DeadlockError, InvalidArgumentError, OutOfBoundsError
from triton_dist.lints import Finding
from triton_dist.sim.check import RaceCheck
from triton_dist.tools.check import worker
from triton_dist.tools.check.options import Run
from triton_dist.tools.check.report import Item, Report, item_of_warning, items_of_error

RUN = Run(2, 5, "random")


@dataclasses.dataclass(frozen=True)
class Lints:
    """Stands for options of a further check."""

    collect: bool = False


@dataclasses.dataclass(frozen=True)
class Both:
    """Stands for what several checks are together."""

    race: RaceCheck | None
    lint: Lints | None


def test_race_and_nothing():
    assert worker.collecting("none") is None
    asked = worker.collecting("race")
    assert (asked if isinstance(asked, RaceCheck) else asked[0]) == RaceCheck(collect=True)
    with pytest.raises(InvalidArgumentError):
        worker.collecting("spelling")


def test_all_means_what_this_version_has(monkeypatch):
    def only_race(check):
        if check != "race":
            raise InvalidArgumentError(check)
        return RaceCheck()

    monkeypatch.setattr(worker, "find_check", only_race)
    assert worker.collecting("all") == RaceCheck(collect=True)
    monkeypatch.setattr(worker, "find_check", lambda check: Both(RaceCheck(), Lints()))
    assert worker.collecting("all") == [RaceCheck(collect=True), Lints(collect=True)]
    monkeypatch.setattr(worker, "find_check", lambda check: Both(None, Lints()))
    assert worker.collecting("lint") == [Lints(collect=True)]


def test_errors_become_items():
    deadlock = DeadlockError("nothing can move:\n  rank 0, program (0, 0, 0) of some_kernel at /path/some.py:12 waits for words[0]")
    item = items_of_error(deadlock, RUN)[0]
    assert (item.file, item.line, item.run) == ("/path/some.py", 12, RUN) and "waits for words[0]" in item.message
    assert items_of_error(OutOfBoundsError("somewhere"), RUN)[0].file is None
    error = OutOfBoundsError("at the end")
    error.findings = (Finding("TD206", "narrow", "f.py", 3, "some_kernel", 1),)
    assert [(item.code, item.line, item.rank) for item in items_of_error(error, RUN)] == [("TD206", 3, 1)]


def test_warnings_become_items():
    finding = Finding("TD206", "it is narrow: 2 bytes", "/path/f.py", 3, "some_kernel", 1)
    item = item_of_warning(str(finding), RUN)
    assert (item.code, item.file, item.line, item.message, item.warning) == ("TD206", "/path/f.py", 3, "it is narrow: 2 bytes", True)
    assert item_of_warning("something else", RUN).code == "MisuseWarning"


def test_the_same_finding_is_told_once():
    report = Report("script.py")
    for seed in range(3):
        report.add([Item("TD206", "narrow-remote-access", f"in run {seed}", "f.py", 3, run=Run(2, seed, "random"))])
    report.add([Item("TD201", "load-before-wait", "moved", "f.py", 3)], ignore=("TD201",))
    assert [(item.message, item.times, item.run.seed) for item in report.items.values()] == [("in run 0", 3, 0)]
    assert report.exit_code == 1 and Report("script.py").exit_code == 0
