"""A time line as text for a terminal, as a picture, and the share of the communication that computing hides."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from .timeline import Timeline

Intervals = list[tuple[float, float]]


def union(intervals: Intervals) -> Intervals:
    """The intervals sorted, with overlapping ones merged."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > begin:
            merged.append((begin, end))
    return merged


def subtract(intervals: Intervals, holes: Intervals) -> Intervals:
    """What is left of ``intervals`` outside of ``holes``; both are sorted, and none of them overlap among themselves."""
    left: Intervals = []
    first = 0
    for begin, end in intervals:
        while first < len(holes) and holes[first][1] <= begin:
            first += 1
        for number in range(first, len(holes)):
            hole_begin, hole_end = holes[number]
            if hole_begin >= end:
                break
            if hole_begin > begin:
                left.append((begin, hole_begin))
            begin = max(begin, hole_end)
            if begin >= end:
                break
        if begin < end:
            left.append((begin, end))
    return left


def total(intervals: Intervals) -> float:
    """Summed length."""
    return sum(end - begin for begin, end in intervals)


def computing(timeline: Timeline, rank: int) -> dict[int, Intervals]:
    """For each SM of a rank, when a program ran there and did not wait."""
    runs: dict[int, Intervals] = defaultdict(list)
    for span in timeline.spans:
        if span.rank == rank and span.kind == "program":
            runs[span.track].append((span.begin, span.end))
    waits = waiting(timeline, rank)
    return {sm: subtract(union(intervals), waits.get(sm, [])) for sm, intervals in runs.items()}


def waiting(timeline: Timeline, rank: int) -> dict[int, Intervals]:
    """For each SM of a rank, when a program waited for a signal there."""
    waits: dict[int, Intervals] = defaultdict(list)
    for wait in timeline.waits:
        if wait.rank == rank:
            waits[wait.track].append((wait.begin, wait.end))
    return {sm: union(intervals) for sm, intervals in waits.items()}


def copying(timeline: Timeline, rank: int) -> Intervals:
    """When a rank's copy engine was at work."""
    return union([(span.begin, span.end) for span in timeline.spans if span.rank == rank and span.kind == "copy"])


def overlap(timeline: Timeline, rank: int) -> float | None:
    """Share of a rank's copying during which at least one of its programs computed; None if it copied nothing."""
    copies = copying(timeline, rank)
    if not copies:
        return None
    busy = union([interval for intervals in computing(timeline, rank).values() for interval in intervals])
    return 1 - total(subtract(copies, busy)) / total(copies)


def to_text(timeline: Timeline, width: int = 72) -> str:
    """Two lines a rank: whether its SMs compute or wait, and when the copy engine works; ``width`` characters for the whole time."""
    end = timeline.end or 1.0
    ranks = sorted({span.rank for span in timeline.spans})
    lines = [f"simulated time, 0 to {end / 1000:.1f} us; # computes, + mostly computes, - mostly waits, . waits for a signal, = copies"]
    for rank in ranks:
        busy, idle = computing(timeline, rank), waiting(timeline, rank)
        bucket = end / width
        row = ""
        for column in range(width):
            window = (column * bucket, (column + 1) * bucket)
            work, rest = _inside(busy, window), _inside(idle, window)
            row += " " if work + rest < 0.02 * bucket else _mark(work, rest)
        lines.append(f"rank {rank:<3} SMs  |{row}|")
        copies = copying(timeline, rank)
        row = "".join("=" if _inside({0: copies}, (c * bucket, (c + 1) * bucket)) > 0.02 * bucket else " " for c in range(width))
        lines.append(f"         copy |{row}|")
    return "\n".join(lines)


def _mark(work: float, rest: float) -> str:
    """The sign for a stretch of time in which programs compute for ``work`` and wait for ``rest``."""
    if rest < work:
        return "#" if rest < 0.1 * work else "+"
    return "-" if work > 0.1 * rest else "."


def _inside(tracks: dict[int, Intervals], window: tuple[float, float]) -> float:
    return sum(max(0.0, min(end, window[1]) - max(begin, window[0])) for intervals in tracks.values() for begin, end in intervals)


def save_picture(timeline: Timeline, path: str | Path, title: str = "") -> Path:
    """Draw the time line as a PNG, SVG or PDF by the ending of ``path``: a row for each SM and one for the copy engine.

    Needs matplotlib (``pip install triton-dist[plot]``). Returns the path.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ranks = sorted({span.rank for span in timeline.spans})
    figure, axes = plt.subplots(len(ranks), 1, figsize=(11, 1.2 + 1.7 * len(ranks)), sharex=True, squeeze=False)
    for rank, axis in zip(ranks, axes[:, 0], strict=True):
        _draw_rank(timeline, rank, axis)
    axes[-1, 0].set_xlabel("simulated time (us)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=len(labels), frameon=False)
    figure.suptitle(title or "time line", x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _draw_rank(timeline: Timeline, rank: int, axis) -> None:
    def bars(intervals: Intervals) -> list[tuple[float, float]]:
        return [(begin / 1000, (end - begin) / 1000) for begin, end in intervals]

    busy, idle = computing(timeline, rank), waiting(timeline, rank)
    for number, sm in enumerate(sorted(set(busy) | set(idle))):
        label = number == 0
        axis.broken_barh(bars(idle.get(sm, [])), (number + 0.1, 0.8), color="#f2b8a0", label="waits for a signal" if label else None)
        axis.broken_barh(bars(busy.get(sm, [])), (number + 0.1, 0.8), color="#3b6fb5", label="computes" if label else None)
    axis.broken_barh(bars(copying(timeline, rank)), (-1.4, 1.1), color="#5aa469", label="copy engine")
    axis.set_ylabel(f"rank {rank}")
    axis.set_yticks([])
    axis.spines[["top", "right", "left"]].set_visible(False)
