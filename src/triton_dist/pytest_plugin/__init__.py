"""Plug-in for pytest: ``@pytest.mark.ranks(4)`` runs a test's body on every one of four simulated ranks.

pytest loads this module when it starts, so it imports neither torch nor Triton; ``run`` does, when the first such test runs. Tests without
the marker are left alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

MARKER = "ranks(*world_sizes, gpu=, num_nodes=, check=, schedule=, seed=, heap_size=)"
OPTIONS = ("gpu", "num_nodes", "check", "schedule", "seed", "heap_size")
"""Keywords of the marker; they mean what they mean for ``triton_dist.simulate``."""

_WORLD_SIZE, _SEED = "td_world_size", "td_seed"


@dataclass(frozen=True)
class Setting:
    """How one test runs. options: further arguments of ``simulate``."""

    world_size: int
    seed: int
    schedule: str
    check: str | None
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.world_size} ranks, seed {self.seed}, schedule {self.schedule}, check {self.check or 'none'}"


_SETTING = pytest.StashKey[Setting]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line."""
    group = parser.getgroup("triton_dist", "tests on simulated ranks (triton_dist)")
    group.addoption("--td-seeds", type=int, default=1, metavar="N", help="run each test on ranks under N seeds, as N tests")
    group.addoption(
        "--td-check", choices=("race", "lint", "all", "none"), default="race", help="what the simulator looks for (default: race)"
    )
    group.addoption("--td-schedule", default="random", metavar="NAME", help="the schedule of the ranks (default: random)")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and refuse a number of seeds that runs nothing."""
    config.addinivalue_line("markers", f"{MARKER}: run the test on each of that many simulated ranks (triton_dist)")
    if config.getoption("--td-seeds") < 1:
        raise pytest.UsageError(f"--td-seeds {config.getoption('--td-seeds')}: at least one seed has to be tried")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each number of ranks, and one for each seed.

    Seeds are tests of their own so that each has fresh fixtures, can run in another process (pytest-xdist) and can be run again by its
    name.
    """
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is None:
        return
    _check_marker(marker, metafunc.definition.nodeid)
    if len(marker.args) > 1:
        _parametrize(metafunc, _WORLD_SIZE, list(marker.args), [f"{size}ranks" for size in marker.args])
    seeds = metafunc.config.getoption("--td-seeds")
    if seeds > 1 and "seed" not in marker.kwargs:
        _parametrize(metafunc, _SEED, list(range(seeds)), [f"seed{seed}" for seed in range(seeds)])


def _parametrize(metafunc: pytest.Metafunc, name: str, values: list[int], ids: list[str]) -> None:
    if name not in metafunc.fixturenames:
        metafunc.fixturenames.append(name)
    metafunc.parametrize(name, values, ids=ids, indirect=True)


@pytest.fixture
def td_world_size(request: pytest.FixtureRequest) -> int:
    """Number of simulated ranks of this test; 0 for a test without the marker."""
    marker = request.node.get_closest_marker("ranks")
    return getattr(request, "param", marker.args[0] if marker is not None else 0)


@pytest.fixture
def td_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test's schedule."""
    marker = request.node.get_closest_marker("ranks")
    return getattr(request, "param", marker.kwargs.get("seed", 0) if marker is not None else 0)


def _check_marker(marker: pytest.Mark, name: str) -> None:
    def refuse(what: str) -> None:
        raise pytest.UsageError(f"{name}: @pytest.mark.ranks{marker.args or '()'}: {what}")

    if not marker.args:
        refuse("say on how many ranks, such as ranks(4), or ranks(2, 4) for two tests")
    for size in marker.args:
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 127:
            refuse(f"{size!r} is no number of ranks; 1 to 127 can be simulated")
    unknown = [key for key in marker.kwargs if key not in OPTIONS]
    if unknown:
        refuse(f"{unknown[0]}= is not known; there are {', '.join(OPTIONS)}")


def _setting(item: pytest.Function, marker: pytest.Mark) -> Setting:
    options = dict(marker.kwargs)
    chosen: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}  # type: ignore[assignment]
    check = options.pop("check", item.config.getoption("--td-check"))
    return Setting(
        chosen.get(_WORLD_SIZE, marker.args[0]),
        chosen.get(_SEED, options.pop("seed", 0)),
        options.pop("schedule", item.config.getoption("--td-schedule")),
        None if check == "none" else check,
        options,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test on the ranks instead of here."""
    marker = pyfuncitem.get_closest_marker("ranks")
    if marker is None:
        return None
    from .run import run_on_ranks

    setting = _setting(pyfuncitem, marker)
    pyfuncitem.stash[_SETTING] = setting
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_on_ranks(pyfuncitem.obj, arguments, setting)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say below a failure how it ran and how it runs again."""
    report = yield
    setting = item.stash.get(_SETTING, None)
    if setting is not None and call.when == "call" and report.failed:
        lines = [str(setting)]
        lines += [note for note in getattr(call.excinfo.value if call.excinfo else None, "__notes__", ()) if note.startswith("raised by")]
        report.sections.append(("simulated ranks", "\n".join([*lines, f"again by: {_again(item)}"])))
    return report


def _again(item: pytest.Item) -> str:
    """The command line of one test."""
    changed = [
        f"{name} {item.config.getoption(name)}"
        for name, default in (("--td-seeds", 1), ("--td-check", "race"), ("--td-schedule", "random"))
        if item.config.getoption(name) != default
    ]
    return " ".join([f"pytest '{item.nodeid}'", *changed])
