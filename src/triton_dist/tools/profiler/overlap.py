"""How much of the time that a rank communicates is hidden, since it computes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...sim.timeline_view import Intervals, subtract, total, union
from .profile import Profile, RankProfile
from .tracks import Track


@dataclass(frozen=True)
class Overlap:
    """Of one rank, nanoseconds.

    communication: in which at least one of its blocks communicates. hidden: of that, in which at least one computes and does not wait.
    """

    rank: int
    communication: float
    hidden: float

    @property
    def efficiency(self) -> float:
        """Share of the communication that is hidden, 0 to 1; 1 where there is none."""
        return self.hidden / self.communication if self.communication else 1.0

    def __str__(self) -> str:
        return (
            f"rank {self.rank}: {100 * self.efficiency:.1f} % of {self.communication / 1e3:.1f} us of communication are hidden under "
            f"compute, {(self.communication - self.hidden) / 1e3:.1f} us are not"
        )


def overlap(profile: Profile, communication: Sequence[str], compute: Sequence[str]) -> list[Overlap]:
    """By rank. communication, compute: names of tasks. What was recorded as a wait computes nothing, also inside of a task that computes.

    Raises InvalidArgumentError.
    """
    moving, computing = profile.type_numbers(communication), profile.type_numbers(compute)
    return [_of_rank(rank, moving, computing) for rank in profile.ranks]


def _of_rank(rank: RankProfile, moving: set[int], computing: set[int]) -> Overlap:
    busy: Intervals = []
    communicating: Intervals = []
    for track in rank.tracks:
        waits = union([(begin, end) for begin, end, waits in _spans(track, None) if waits])
        busy += subtract(union([(begin, end) for begin, end, _ in _spans(track, computing)]), waits)
        communicating += [(begin, end) for begin, end, _ in _spans(track, moving)]
    whole = union(communicating)
    exposed = subtract(whole, union(busy))
    return Overlap(rank.rank, total(whole), total(whole) - total(exposed))


def _spans(track: Track, types: set[int] | None) -> list[tuple[int, int, bool]]:
    """Begin and end of each task of these types (None: of all), and whether it is a wait. One without an end lasts to the last record."""
    return [
        (task.start, track.last if task.end is None else task.end, task.word is not None)
        for task in track.tasks
        if types is None or task.type in types
    ]
