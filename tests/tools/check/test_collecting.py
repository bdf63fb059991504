"""What the worker asks the simulator to look for, and how findings become items."""

from __future__ import annotations

import pytest

from triton_dist.errors import DeadlockError, InvalidArgumentError, OutOfBoundsError
from triton_dist.lints import Finding
from triton_dist.sim.check import LintCheck, RaceCheck
from triton_dist.tools.check import worker
from triton_dist.tools.check.options import Run
from triton_dist.tools.check.report import Item, Report, item_of_warning, items_of_error

RUN = Run(2, 5, "random")


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        ("none", None),
        ("race", [RaceCheck(collect=True)]),
        ("lint", [LintCheck(collect=True)]),
        ("all", [RaceCheck(collect=True), LintCheck(collect=True)]),
    ],
)
def test_all_that_is_found_is_collected(check, asked):
    assert worker.collecting(check) == asked


def test_an_unknown_check_is_named():
    with pytest.raises(InvalidArgumentError):
        worker.collecting("spelling")


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
