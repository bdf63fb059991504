"""The JSON file of a run: these dataclasses are its schema. Times are microseconds for one call, the slowest rank's."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1

MEASURED, WRONG, FAILED, NOT_CAPTURED = "measured", "wrong", "failed", "not captured"
"""Status of a method: its times count; its result is wrong (never the best peer); it raised; it can't be put into a CUDA graph."""


@dataclass
class MethodResult:
    """One method of one case in one mode.

    kind: "ours"; "variant" (ours by a given way); "peer"; "part" (does only part of the work, such as the product alone).
    status, why: see above; why it is not "measured". error: largest relative error over ranks, before and after the timed rounds;
    tolerance: what is allowed. samples_us: one entry a round, in the order of the rounds, so that entries of two methods are pairs.
    low_us, high_us: interval of the median. host_us: median time until an eager call returns. inner: calls in a span.
    """

    name: str
    kind: str
    status: str = MEASURED
    why: str = ""
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    host_us: float | None = None
    inner: int = 0
    error: float | None = None
    tolerance: float | None = None
    samples_us: list[float] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether its times may be compared."""
        return self.status == MEASURED and self.median_us is not None


@dataclass
class Comparison:
    """Ours beside the best peer (the correct one with the lowest median): median of the ratio of paired rounds, and its interval.

    bound_us: no implementation can be faster; bound_by: what sets it. share: bound_us / ours.
    """

    best_peer: str | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    bound_us: float | None = None
    bound_by: str = ""
    share: float | None = None


@dataclass
class CaseResult:
    """All methods at one shape, in one mode ("eager" or "graph"). sizes: the operator's own, such as rows, columns, depth."""

    shape: str
    sizes: dict[str, int]
    dtype: str
    world_size: int
    mode: str
    methods: list[MethodResult]
    comparison: Comparison

    def method(self, name: str) -> MethodResult | None:
        """The method called ``name``, if it is there."""
        return next((method for method in self.methods if method.name == name), None)

    @property
    def ours(self) -> MethodResult | None:
        """The method that the comparison is about, if it is there."""
        return next((method for method in self.methods if method.kind == "ours"), None)


@dataclass
class Report:
    """One run. link: GB/s each way, see ``link``. settings: the arguments. left_out: cases that the budget had no room for.

    complete: the run came to its end. dry_run: times are not those of a GPU and must not be shown.
    """

    operator: str
    environment: dict[str, Any]
    link: dict[str, float]
    settings: dict[str, Any]
    cases: list[CaseResult] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    complete: bool = False
    dry_run: bool = False
    schema: int = SCHEMA


def save(report: Report, path: Path) -> None:
    """Write the file whole, or leave the old one: a run that dies meanwhile loses nothing. One line a case."""
    values = asdict(report)
    cases = ",\n".join("  " + json.dumps(case) for case in values.pop("cases"))
    head = json.dumps(values, indent=1).removesuffix("\n}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(f'{head},\n "cases": [\n{cases}\n ]\n}}\n')
    partial.replace(path)


def load(path: Path) -> Report:
    """Read a file that ``save`` wrote. Raises ValueError for another schema."""
    values = json.loads(path.read_text())
    if values.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {values.get('schema')!r}, but this version reads {SCHEMA}; measure again")
    cases = [_case(case) for case in values.pop("cases")]
    return Report(cases=cases, **values)


def _case(values: dict[str, Any]) -> CaseResult:
    methods = [MethodResult(**method) for method in values.pop("methods")]
    return CaseResult(methods=methods, comparison=Comparison(**values.pop("comparison")), **values)
