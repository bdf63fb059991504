"""The races of tests/races on the time line: each side is on a row, in the event that did it, at its source line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.races.corpus import CASES, load_case
from tests.report.recorded import record_of
from triton_dist.errors import DataRaceError


@pytest.mark.parametrize("name", CASES)
def test_both_sides_are_where_they_happened(name, tmp_path):
    case = load_case(name, tmp_path, wrong=True)
    record = None
    for seed in range(getattr(case, "SEEDS", 1)):
        record = record_of(case.run, 4, raises=DataRaceError, may_pass=True, check="race", seed=seed)
        if record.findings:
            break
    assert record is not None and [finding.kind for finding in record.findings] == ["race"]
    for side in record.findings[0].sides:
        assert side.place is not None and side.row is not None and side.event in record.events
        line = Path(side.place.file).read_text(encoding="utf-8").splitlines()[side.place.line - 1]
        assert any(part in line or part in side.what for part in case.RACING), line
        assert side.event.first <= side.step and (side.row.kind == "host" or side.event.last is None or side.step <= side.event.last)
        assert side.row in record.rows and side.time <= record.end[0] and side.step < record.end[1]
