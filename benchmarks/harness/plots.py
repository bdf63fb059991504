"""A picture of a report: one panel a shape, the share of the bound over the first size (M)."""

from __future__ import annotations

from pathlib import Path

from .results import CaseResult, Report

_COLUMNS = 4
_COLORS = ("tab:orange", "tab:blue", "tab:green", "tab:purple")


def draw(report: Report, mode: str, output: Path) -> None:
    """Share of the bound (higher is better, 1 is the limit) of ours and every peer, with intervals, into ``output``.

    Where a method's result is wrong or missing its line has a gap. Raises ValueError if no case of ``mode`` has a bound.
    """
    cases = [case for case in report.cases if case.mode == mode and case.comparison.bound_us is not None]
    if not cases:
        raise ValueError(f"the report has no case of mode {mode!r} with a bound")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shapes = list(dict.fromkeys(case.shape for case in cases))
    names = list(dict.fromkeys(method.name for case in cases for method in case.methods if method.kind in ("ours", "peer")))
    columns = min(_COLUMNS, len(shapes))
    lines = -(-len(shapes) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(max(7.5, 3.4 * columns), 2.8 * lines + 0.6), squeeze=False, sharey=True)
    for axis in axes.flat[len(shapes) :]:
        axis.set_visible(False)
    for axis, shape in zip(axes.flat, shapes, strict=False):
        of_shape = [case for case in cases if case.shape == shape]
        for name, color in zip(names, _COLORS, strict=False):
            _draw_line(axis, of_shape, name, color)
        size = next(iter(of_shape[0].sizes))
        rest = ", ".join(f"{key} {value}" for key, value in list(of_shape[0].sizes.items())[1:])
        axis.set(ylim=(0, 1.1), xlabel=size, title=f"{shape}\n{rest}")
        axis.set_xscale("log", base=2)
        axis.axhline(1, color="gray", linewidth=0.8, linestyle=":")
        axis.title.set_fontsize(9)
    for axis in axes[:, 0]:
        axis.set_ylabel("share of the bound")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncol=len(names), frameon=False)
    dry = "DRY RUN, not times of a GPU; " if report.dry_run else ""
    note = f"{dry}{report.operator}, {mode}; {', '.join(report.environment['cards'])}; {report.environment['date']}"
    figure.text(0.5, 0.005, note, ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 0.94))
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=110)
    plt.close(figure)


def share_points(cases: list[CaseResult], name: str) -> list[tuple[int, float, float, float]]:
    """(first size, share of the bound, its low and high end) of a method, by size; NaN where its times don't count."""
    points = []
    for case in sorted(cases, key=lambda case: next(iter(case.sizes.values()))):
        method, bound = case.method(name), case.comparison.bound_us
        size = next(iter(case.sizes.values()))
        if method is None or not method.counts or not bound or not (method.median_us and method.low_us and method.high_us):
            points.append((size, float("nan"), float("nan"), float("nan")))
        else:
            # The longest time is the smallest share.
            points.append((size, bound / method.median_us, bound / method.high_us, bound / method.low_us))
    return points


def _draw_line(axis, cases: list[CaseResult], name: str, color: str) -> None:
    sizes, shares, low, high = zip(*share_points(cases, name), strict=True)
    axis.plot(sizes, shares, marker="o", markersize=3, linewidth=1.4, color=color, label=name)
    axis.fill_between(sizes, low, high, color=color, alpha=0.25, linewidth=0)
