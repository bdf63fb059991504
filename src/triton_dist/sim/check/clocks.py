"""Vector clocks: what an actor knows of the others' progress. They never change; joining two gives a third one, or one of the two.

A clock has two parts. *Coarse* slots belong to what is always there (host threads, streams, process groups) and are one array. *Fine* slots
belong to programs that have released something; most programs know of a few others, so this is a dict until it has many entries. What
a finished launch did is known by the coarse slot of its stream, and its fine entries are dropped then.

Fine parts are merged late. Most of what a program acquires is never asked for, so an acquire only notes the release, with the clock that
came with it; all of them are merged when a time is asked for that the notes do not show. Clocks that have notes are joined late, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np

_MANY = 128
"""Fine entries from which on an array is faster than a dict."""

_MEMO = 1 << 15

_DEEP = 32
"""Notes that lead to further notes, after so many steps of which they are merged: what they hold on to would grow without end."""

Fine = dict[int, int] | np.ndarray


class Clock:
    """Times by slot; a slot that is not there has time 0.

    A note is a time of a slot and the clock that came with it, which is not merged yet. Whoever knows a time of a slot knows that clock as
    well, and those that came with earlier times: so one note a slot is enough. The latest one is ``slot``, ``time`` and ``came``, so
    that the many clocks with only one need nothing else; those of other slots are in ``more``. A clock that is known as a whole is noted
    under a slot below 0, which nothing else has. depth: how far notes lead to notes.
    """

    __slots__ = ("coarse", "_fine", "_slot", "_time", "_came", "_more", "_depth")

    def __init__(
        self, coarse: np.ndarray, fine: Fine, slot: int = -1, time: int = 0, came: Clock | None = None,
        more: dict[int, tuple[int, Clock]] | None = None, depth: int = 0,
    ) -> None:  # fmt: skip
        self.coarse = coarse
        self._fine = fine
        self._slot = slot
        self._time = time
        self._came = came
        self._more = more
        self._depth = depth

    @property
    def fine(self) -> Fine:
        """All fine entries."""
        if self._came is not None:
            self._merge()
        return self._fine

    def coarse_at(self, slot: int) -> int:
        """Time of a coarse slot."""
        return int(self.coarse[slot]) if slot < len(self.coarse) else 0

    def fine_at(self, slot: int) -> int:
        """Time of a fine slot."""
        return _at(self.fine, slot)

    def has(self, slot: int, time: int) -> bool:
        """Whether a fine slot has come as far as ``time``."""
        if told.get(slot, 0) < time:
            return False  # nobody was ever told
        if self._came is not None:
            if self.surely_has(slot, time):
                return True
            self._merge()
        return _at(self._fine, slot) >= time

    def surely_has(self, slot: int, time: int) -> bool:
        """The same, as far as it can be said without merging; False where it can't."""
        if slot == self._slot:
            return self._time >= time
        if self._more is not None:
            note = self._more.get(slot)
            if note is not None and note[0] >= time:
                return True
        fine = self._fine
        return (fine.get(slot, 0) if type(fine) is dict else _at(fine, slot)) >= time

    def with_coarse(self, slot: int, time: int) -> Clock:
        """This clock with a later time of one coarse slot."""
        coarse = _padded(self.coarse, slot + 1).copy()
        coarse[slot] = time
        return self._with_other_coarse(coarse)

    def fine_items(self) -> list[tuple[int, int]]:
        """(slot, time) of every fine entry."""
        fine = self.fine
        if isinstance(fine, dict):
            return list(fine.items())
        slots = np.flatnonzero(fine)
        return list(zip(slots.tolist(), fine[slots].tolist(), strict=True))

    def _merge(self) -> None:
        base, left = self._fine, [self]
        found: dict[int, int] = {}
        others: dict[int, Fine] = {}
        wholes: set[int] = set()
        while left:
            for slot, time, clock in left.pop()._notes():
                if slot < 0:
                    if id(clock) in wholes:
                        continue
                    wholes.add(id(clock))
                elif found.get(slot, 0) >= time or _at(base, slot) >= time:
                    continue
                else:
                    found[slot] = time
                if clock._fine is not base and len(clock._fine):
                    others[id(clock._fine)] = clock._fine
                if clock._came is not None:
                    left.append(clock)
        fine = base
        for other in others.values():
            fine = _join_fine(fine, other)
        self._fine = _with_entries(fine, found.items())
        self._came = self._more = None
        self._slot, self._depth = -1, 0

    def _notes(self) -> list[tuple[int, int, Clock]]:
        assert self._came is not None, "there are notes"
        latest = (self._slot, self._time, self._came)
        if self._more is None:
            return [latest]
        return [latest, *((slot, time, came) for slot, (time, came) in self._more.items())]

    def noting(self, coarse: np.ndarray, slot: int, time: int, came: Clock) -> Clock:
        """This clock with another coarse part and one more note, of a time that is not surely known."""
        before, more, depth = self._came, None, came._depth + 1
        if before is not None:
            more = self._more
            if slot != self._slot:
                more = {self._slot: (self._time, before)} if more is None else {**more, self._slot: (self._time, before)}
                more.pop(slot, None)
            if depth < self._depth:
                depth = self._depth
        result = Clock(coarse, self._fine, slot, time, came, more, depth)
        if depth >= _DEEP or (more is not None and len(more) >= _MANY):
            result._merge()
        return result

    def _with_other_coarse(self, coarse: np.ndarray) -> Clock:
        """This clock with another coarse part."""
        return Clock(coarse, self._fine, self._slot, self._time, self._came, self._more, self._depth)

    def _with_other_fine(self, fine: Fine) -> Clock:
        """This clock with later times of some fine slots."""
        result = self._with_other_coarse(self.coarse)
        result._fine = fine
        return result

    def _noting_all(self, coarse: np.ndarray, others: Sequence[Clock]) -> Clock:
        """This clock with another coarse part, and with the fine parts of other clocks as notes."""
        result = Clock(coarse, self._fine)
        more = {} if self._more is None else dict(self._more)
        if self._came is not None:
            more[self._slot] = (self._time, self._came)
        for other in others:
            more[next(_whole_slots)] = (0, other)
        result._slot = next(reversed(more))
        result._time, result._came = more.pop(result._slot)
        result._more = more
        result._depth = max(self._depth, *(other._depth + 1 for other in others))
        if result._depth >= 2 * _DEEP or len(more) >= _MANY:
            result._merge()
        return result


EMPTY = Clock(np.zeros(8, np.int64), {})

_whole_slots = itertools.count(-2, -1)


def join(one: Clock, *others: Clock) -> Clock:
    """What is known by all together."""
    coarse, late = one.coarse, []
    for other in others:
        if other is one:
            continue
        if coarse is not other.coarse:
            coarse = _join_coarse(coarse, other.coarse)
        if other._came is not None:
            late.append(other)
        elif other._fine is not one._fine and len(other._fine):
            fine = _join_fine(one._fine, other._fine)
            if fine is not one._fine:
                one = one._with_other_fine(fine)
    if late:
        return one._noting_all(coarse, late)
    return one if coarse is one.coarse else one._with_other_coarse(coarse)


def meet(one: Clock, other: Clock) -> Clock:
    """What is known by each of both."""
    left, right = _padded(one.coarse, len(other.coarse)), _padded(other.coarse, len(one.coarse))
    known = dict(other.fine_items())
    fine: Fine = {slot: min(time, known[slot]) for slot, time in one.fine_items() if slot in known}
    return Clock(np.minimum(left, right), fine if len(fine) <= _MANY else _as_array(fine))  # type: ignore[arg-type]


def learn_one(clock: Clock, other: Clock, slot: int, time: int) -> Clock:
    """As ``learn`` of one entry: what there is most of."""
    again = slot == clock._slot
    if clock._time >= time if again else clock.surely_has(slot, time):
        return clock
    coarse = clock.coarse
    if coarse is not other.coarse:
        known = _memo.get((id(coarse), id(other.coarse)))
        coarse = known[2] if known is not None else _join_coarse(coarse, other.coarse)
    if told.get(slot, 0) < time:
        told[slot] = time
    if again or clock._came is None:  # as ``noting``, where there is no other note to keep
        depth = other._depth + 1
        if depth < clock._depth:
            depth = clock._depth
        if depth < _DEEP:
            return Clock(coarse, clock._fine, slot, time, other, clock._more, depth)
    return clock.noting(coarse, slot, time, other)


def learn(clock: Clock, other: Clock, entries: tuple[tuple[int, int], ...]) -> Clock:
    """What is known by both together, with later times of a few fine slots, of which whoever told of them knew ``other``."""
    if not entries:
        return join(clock, other)
    coarse = clock.coarse
    if coarse is not other.coarse:
        known = _memo.get((id(coarse), id(other.coarse)))
        coarse = known[2] if known is not None else _join_coarse(coarse, other.coarse)
    for slot, time in entries:
        clock = learn_one(clock, other, slot, time)
    return clock if clock.coarse is coarse else join(clock, other)


def join_entries(clock: Clock, entries: tuple[tuple[int, int], ...]) -> Clock:
    """``clock`` with later times of a few fine slots."""
    missing = [(slot, time) for slot, time in entries if not clock.has(slot, time)]
    if not missing:
        return clock
    for slot, time in missing:
        if told.get(slot, 0) < time:
            told[slot] = time
    return Clock(clock.coarse, _with_entries(clock.fine, missing))


def _with_entries(fine: Fine, entries: Collection[tuple[int, int]]) -> Fine:
    """``fine`` with later times of some slots."""
    if not entries:
        return fine
    if type(fine) is dict:
        fine = dict(fine)
        for slot, time in entries:
            if fine.get(slot, 0) < time:
                fine[slot] = time
        return fine if len(fine) <= _MANY else _as_array(fine)
    fine = _padded(fine, 1 + max(slot for slot, _ in entries)).copy()  # type: ignore[arg-type]
    for slot, time in entries:
        if fine[slot] < time:
            fine[slot] = time
    return fine


def _at(fine: Fine, slot: int) -> int:
    if type(fine) is dict:
        return fine.get(slot, 0)
    return int(fine[slot]) if slot < len(fine) else 0


told: dict[int, int] = {}
"""For each fine slot the latest time that has come into a clock of anyone."""

_memo: dict[tuple[int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
"""Joins of coarse parts by identity, with the arrays so that they stay alive: programs of one launch do the same joins."""


def _join_coarse(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    key = (id(one), id(other))
    known = _memo.get(key)
    if known is not None:
        return known[2]
    left, right = _padded(one, len(other)), _padded(other, len(one))
    result = np.maximum(left, right)
    if (result == left).all():
        result = one
    elif (result == right).all():
        result = other
    if len(_memo) >= _MEMO:
        _memo.clear()
    _memo[key] = (one, other, result)
    return result


def forget_joins() -> None:
    """Drop the joins that are remembered; called when a simulation has ended."""
    _memo.clear()
    told.clear()


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    """``array`` with zeros behind it up to a power of two that is at least ``size``."""
    size = 1 << (size - 1).bit_length()
    if len(array) >= size:
        return array
    return np.concatenate([array, np.zeros(size - len(array), array.dtype)])


def _as_array(fine: dict[int, int]) -> np.ndarray:
    array = np.zeros(1 << (max(fine).bit_length()), np.int64)
    for slot, time in fine.items():
        array[slot] = time
    return array


def _join_fine(one: Fine, other: Fine) -> Fine:
    if type(one) is dict and type(other) is dict:
        result = None
        for slot, time in other.items():
            if one.get(slot, 0) < time:
                if result is None:
                    result = dict(one)
                result[slot] = time
        if result is None:
            return one
        return result if len(result) <= _MANY else _as_array(result)
    if type(one) is dict:
        one, other = other, one
    if type(other) is dict:
        if not other:
            return one
        array = _padded(one, 1 + max(other)).copy()  # type: ignore[arg-type]
        for slot, time in other.items():
            if array[slot] < time:
                array[slot] = time
        return array
    left, right = _padded(one, len(other)), _padded(other, len(one))  # type: ignore[arg-type]
    return np.maximum(left, right)
