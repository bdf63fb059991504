"""From measurements to a table: the best plan for each size, and rows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ops.collectives.plans import Plan, Row, Table
from ...ops.team import find_team
from ...runtime.world import require_world
from .candidates import TUNABLE
from .measure import Timed, measure

SIZES = tuple(1 << bits for bits in range(10, 31))
_AS_GOOD = 1.02
"""The plan of the size before is kept where it is as good as the best, so that a table has few rows."""

Report = Callable[[str, int, Sequence[Timed]], None]
"""Is told of each size that was measured: operator, bytes, results."""


def sweep(
    gpu: str, environment: dict[str, str], operators: Sequence[str], sizes: Sequence[int], report: Report, end: Callable[[], bool]
) -> Table:
    """Measure ``operators`` at ``sizes``, small ones first, on all ranks; the same table on all of them.

    end: whether no further size should begin; the same on all ranks. Only a table of all ``SIZES`` has a row for larger messages, too.
    """
    team, rows = find_team(None, "tune"), {}
    for operator in operators:
        results: dict[int, list[Timed]] = {}
        for nbytes in sorted(sizes):
            if end():
                break
            results[nbytes] = measure(TUNABLE[operator], TUNABLE[operator].candidates(nbytes, team.size), nbytes, team)
            report(operator, nbytes, results[nbytes])
        complete = set(results) == set(SIZES)
        exact = {nbytes: [timed for timed in of_size if timed.plan.method != "library"] for nbytes, of_size in results.items()}
        rows[operator] = {"any": rows_of(results, complete), "exact": rows_of(exact, complete)}
    return Table(gpu, require_world("tune").world_size, rows, environment)


def rows_of(results: dict[int, list[Timed]], complete: bool) -> list[Row]:
    """The rows for measured sizes, but for those without a result; if no size is missing, ``complete``, the last serves larger ones."""
    rows: list[Row] = []
    for nbytes, of_size in sorted(results.items()):
        plan = best_of(of_size, rows[-1].plan if rows else None)
        if plan is None:
            continue
        if rows and rows[-1].plan == plan:
            rows.pop()
        rows.append(Row(nbytes, plan))
    if rows and complete:
        rows[-1] = Row(None, rows[-1].plan)
    return rows


def best_of(results: Sequence[Timed], before: Plan | None) -> Plan | None:
    """The fastest plan, or ``before`` where that is as good; None if none was measured."""
    times = {timed.plan: timed.us for timed in results if timed.us is not None}
    if not times:
        return None
    best = min(times, key=lambda plan: times[plan])
    return before if before in times and times[before] <= _AS_GOOD * times[best] else best
