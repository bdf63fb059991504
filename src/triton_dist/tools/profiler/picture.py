"""A picture of a trace in Chrome's JSON: a row for each track, a colour for each task, a line for each arrow.

``python -m triton_dist.tools.profiler.picture TRACE.json PICTURE.png`` draws one; the package matplotlib is needed.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidArgumentError

_COLOURS = ("#5aa469", "#f2b8a0", "#3b6fb5", "#c9a227", "#8d6cab", "#4aa3a2", "#b5523b", "#7a7a7a")
_MOST_ARROWS = 200
_ENDINGS = (".png", ".svg", ".pdf")


@dataclass
class _Drawn:
    """What a trace has to draw; microseconds. rows: process and thread, in the order in which they are shown."""

    ranks: dict[int, str] = field(default_factory=dict)
    rows: dict[tuple[int, int], str] = field(default_factory=dict)
    slices: dict[str, dict[tuple[int, int], list[tuple[float, float]]]] = field(default_factory=dict)
    arrows: dict[Any, list[tuple[float, tuple[int, int]]]] = field(default_factory=dict)


def save_picture(trace: str | Path, picture: str | Path, title: str = "") -> Path:
    """Draw a trace that was written as ``.json``, as PNG, SVG or PDF by the ending of ``picture``. Of many arrows some are left out.

    Returns the path. Raises InvalidArgumentError for a file that is no such trace, and for another ending.
    """
    drawn = _read(trace)
    if not isinstance(picture, (str, Path)) or Path(picture).suffix.lower() not in _ENDINGS:
        raise InvalidArgumentError(f"picture={str(picture)!r}: give a path ending in {', '.join(_ENDINGS)}")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    row_height = 0.16 if len(drawn.rows) <= 64 else 9.0 / len(drawn.rows)
    figure, axis = plt.subplots(figsize=(11, 1.6 + max(row_height * len(drawn.rows), 1.0)))
    places = _places(drawn)
    for number, (name, by_row) in enumerate(drawn.slices.items()):
        for first, (row, spans) in enumerate(by_row.items()):
            label = name if first == 0 else None
            axis.broken_barh(spans, (places[row] - 0.4, 0.8), color=_COLOURS[number % len(_COLOURS)], label=label, linewidth=0)
    arrows = [sorted(ends) for ends in drawn.arrows.values() if len(ends) == 2]
    for ends in arrows[:: 1 + len(arrows) // _MOST_ARROWS]:
        (begin, start), (end, target) = ends
        axis.plot([begin, end], [places[start], places[target]], color="#303030", linewidth=0.5, alpha=0.6)
    groups = _groups(places)
    axis.set_yticks([sum(group) / len(group) for group in groups.values()], [drawn.ranks.get(rank, "") for rank in groups])
    axis.invert_yaxis()
    axis.set_xlabel("time (us)")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set_title(title, loc="left")
    figure.legend(loc="upper right", ncols=max(len(drawn.slices), 1), frameon=False)
    figure.tight_layout()
    path = Path(picture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=80)
    except OSError as error:
        raise InvalidArgumentError(f"picture={str(picture)!r} can't be written: {error.strerror}") from None
    finally:
        plt.close(figure)
    return path


def _read(trace: str | Path) -> _Drawn:
    try:
        events = json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]
        drawn = _Drawn()
        for event in events:
            _take(drawn, event)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InvalidArgumentError(f"{trace} is no trace in Chrome's JSON that a profile was written to ({why})") from None
    without = {row for by_row in drawn.slices.values() for row in by_row} | {row for ends in drawn.arrows.values() for _, row in ends}
    without -= drawn.rows.keys()
    if without:
        raise InvalidArgumentError(f"{trace} is no trace that a profile was written to: its track {min(without)} has no thread_name")
    return drawn


def _take(drawn: _Drawn, event: Any) -> None:
    """What an event adds. Raises KeyError, TypeError, ValueError, AttributeError for one that is not of a trace."""
    phase = event["ph"]
    if phase not in ("M", "X", "s", "f"):
        return
    process, row = int(event["pid"]), (int(event["pid"]), int(event.get("tid", 0)))
    if phase == "M" and event["name"] == "process_name":
        drawn.ranks[process] = str(event["args"]["name"])
    elif phase == "M" and event["name"] == "thread_name":
        drawn.rows[row] = str(event["args"]["name"])
    elif phase == "X":
        drawn.slices.setdefault(str(event["name"]), {}).setdefault(row, []).append((float(event["ts"]), float(event["dur"])))
    elif phase in ("s", "f"):
        drawn.arrows.setdefault(str(event["id"]), []).append((float(event["ts"]), row))


def _places(drawn: _Drawn) -> dict[tuple[int, int], float]:
    """Heights of the rows, with a gap between ranks."""
    return {row: number + 1.5 * row[0] for number, row in enumerate(sorted(drawn.rows))}


def _groups(places: dict[tuple[int, int], float]) -> dict[int, list[float]]:
    """The rows of each rank."""
    groups: dict[int, list[float]] = defaultdict(list)
    for (rank, _), place in places.items():
        groups[rank].append(place)
    return groups


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--title", default="")
    asked = parser.parse_args()
    print(save_picture(asked.trace, asked.picture, asked.title))


if __name__ == "__main__":
    main()
