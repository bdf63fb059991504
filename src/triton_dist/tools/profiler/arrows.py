"""Which notify ended which wait.

A word is told by the rank that it is on and its place in that rank's heap. Of the notifies of a word that are in time, no later than the
wait's end, the one that ended the wait is the first one during the wait that meets the condition; if there is none, the condition held
before, and it is the last one before the wait. A notify that adds meets a condition together with those before it, so there it is the last
one in time. Times of two ranks are compared within what their clocks may be off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from ...runtime.address_map import STRIDE, rank_of
from .profile import Profile, RankProfile
from .tracks import Notify, Task, Track, Word


@dataclass(frozen=True)
class End:
    """A record on the common clock. time: nanoseconds. bound: how far it may be off."""

    rank: int
    track: Track
    time: int
    bound: float


@dataclass(frozen=True)
class Arrow:
    """A notify and the wait that it ended. time, end: of the two, on the common clock."""

    notify: Notify
    begin: End
    wait: Task
    end: End

    @property
    def latency(self) -> int:
        """Nanoseconds from the notify to the wait's end; may be below zero by what the clocks are off."""
        return self.end.time - self.begin.time


def find_arrows(profile: Profile) -> list[Arrow]:
    """An arrow for each wait that has ended and for whose words a notify was recorded: for several words the one that came last."""
    sent = _by_word(profile)
    found = []
    for rank in profile.ranks:
        for track in rank.tracks:
            for task in track.tasks:
                if task.word is None or task.end is None:
                    continue
                arrow = _ending(sent, rank, track, task)
                if arrow is not None:
                    found.append(arrow)
    return found


def place_of(word: Word, rank: int, index: int = 0) -> tuple[int, int]:
    """The rank that a word is on and its offset in the heap there, for a word recorded on ``rank``; outside of the heap its address."""
    address = word.address + index * word.nbytes
    owner = rank_of(address)
    if owner is None:
        return rank, address
    return (owner if word.rank < 0 else word.rank), address % STRIDE


def describe_word(word: Word, rank: int) -> str:
    """As a trace names it."""
    owner, offset = place_of(word, rank)
    more = f" and {word.count - 1} more" if word.count > 1 else ""
    return f"word {offset:#x} of rank {owner}{more}"


_Sent = dict[Hashable, tuple[list[int], list[tuple[End, Notify]]]]


def _by_word(profile: Profile) -> _Sent:
    """The notifies of each word in the order of their times."""
    unordered: dict[Hashable, list[tuple[End, Notify]]] = defaultdict(list)
    for rank in profile.ranks:
        for track in rank.tracks:
            for notify in track.notifies:
                end = End(rank.rank, track, rank.clock.aligned(notify.time), rank.clock.bound)
                unordered[place_of(notify.word, rank.rank)].append((end, notify))
    ordered: _Sent = {}
    for word, notifies in unordered.items():
        notifies.sort(key=lambda pair: pair[0].time)
        ordered[word] = [end.time for end, _ in notifies], notifies
    return ordered


def _ending(sent: _Sent, rank: RankProfile, track: Track, task: Task) -> Arrow | None:
    assert task.word is not None and task.end is not None
    began, ended = rank.clock.aligned(task.start), rank.clock.aligned(task.end)
    last: tuple[End, Notify] | None = None
    for index in range(max(task.word.count, 1)):
        times, notifies = sent.get(place_of(task.word, rank.rank, index), ([], []))
        found = _ending_of_word(times, notifies, task.word, began, ended, rank.clock.bound)
        if found is not None and (last is None or found[0].time > last[0].time):
            last = found
    return None if last is None else Arrow(last[1], last[0], task, End(rank.rank, track, ended, rank.clock.bound))


def _ending_of_word(
    times: list[int], notifies: list[tuple[End, Notify]], word: Word, began: int, ended: int, bound: float
) -> tuple[End, Notify] | None:
    """The notify of one word that ended a wait."""
    slack = bound + max((end.bound for end, _ in notifies), default=0.0)
    before = None
    ending = None
    for end, notify in reversed(notifies[: bisect_right(times, ended + slack)]):
        if notify.word.operation == "add":
            return ending or (end, notify)
        if not _holds(notify.word.value, word):
            continue
        if end.time < began - slack:
            before = end, notify
            break
        ending = end, notify
    return ending or before


def _holds(value: int, word: Word) -> bool:
    """Whether a word that was set to ``value`` meets the condition; ordered comparisons look at the sign of the difference."""
    difference = (value - word.value + (1 << 31)) % (1 << 32) - (1 << 31)
    compared = {
        "eq": difference == 0,
        "ne": difference != 0,
        "gt": difference > 0,
        "ge": difference >= 0,
        "lt": difference < 0,
        "le": difference <= 0,
    }
    return compared[word.operation]
