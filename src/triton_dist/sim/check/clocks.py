"""Vector clocks: what an actor knows of the others' progress. They never change; joining two gives a third one, or one of the two.

A clock has two parts. *Coarse* slots belong to what is always there (host threads, streams, process groups) and are one array. *Fine* slots
belong to programs that have released something; most programs know of a few others, so this is a dict until it has many entries. What
a finished launch did is known by the coarse slot of its stream, and its fine entries are dropped then.
"""

from __future__ import annotations

import numpy as np

_MANY = 128
"""Fine entries from which on an array is faster than a dict."""

_MEMO = 1 << 15

Fine = dict[int, int] | np.ndarray


class Clock:
    """Times by slot; a slot that is not there has time 0."""

    __slots__ = ("coarse", "fine")

    def __init__(self, coarse: np.ndarray, fine: Fine) -> None:
        self.coarse = coarse
        self.fine = fine

    def coarse_at(self, slot: int) -> int:
        """Time of a coarse slot."""
        return int(self.coarse[slot]) if slot < len(self.coarse) else 0

    def fine_at(self, slot: int) -> int:
        """Time of a fine slot."""
        fine = self.fine
        if type(fine) is dict:
            return fine.get(slot, 0)
        return int(fine[slot]) if slot < len(fine) else 0

    def with_coarse(self, slot: int, time: int) -> Clock:
        """This clock with a later time of one coarse slot."""
        coarse = _padded(self.coarse, slot + 1).copy()
        coarse[slot] = time
        return Clock(coarse, self.fine)

    def fine_items(self) -> list[tuple[int, int]]:
        """(slot, time) of every fine entry."""
        if type(self.fine) is dict:
            return list(self.fine.items())
        fine: np.ndarray = self.fine  # type: ignore[assignment]
        slots = np.flatnonzero(fine)
        return list(zip(slots.tolist(), fine[slots].tolist(), strict=True))


EMPTY = Clock(np.zeros(8, np.int64), {})


def join(one: Clock, other: Clock) -> Clock:
    """What is known by both together."""
    if one is other:
        return one
    coarse = one.coarse if one.coarse is other.coarse else _join_coarse(one.coarse, other.coarse)
    fine = one.fine if one.fine is other.fine or not len(other.fine) else _join_fine(one.fine, other.fine)
    if coarse is one.coarse and fine is one.fine:
        return one
    return Clock(coarse, fine)


def learn(clock: Clock, other: Clock, entries: tuple[tuple[int, int], ...]) -> Clock:
    """What is known by both together, with later times of a few fine slots."""
    fine, more = clock.fine, other.fine
    if type(fine) is not dict or type(more) is not dict:
        return join_entries(join(clock, other), entries)
    result = dict(fine)
    get = result.get
    if more is not fine:
        for slot, time in more.items():
            if get(slot, 0) < time:
                result[slot] = time
    for slot, time in entries:
        if get(slot, 0) < time:
            result[slot] = time
    coarse = clock.coarse
    if coarse is not other.coarse:
        known = _memo.get((id(coarse), id(other.coarse)))
        coarse = known[2] if known is not None else _join_coarse(coarse, other.coarse)
    return Clock(coarse, result if len(result) <= _MANY else _as_array(result))


def join_entries(clock: Clock, entries: tuple[tuple[int, int], ...]) -> Clock:
    """``clock`` with later times of a few fine slots."""
    missing = [(slot, time) for slot, time in entries if clock.fine_at(slot) < time]
    if not missing:
        return clock
    fine = clock.fine
    if type(fine) is dict:
        fine = {**fine, **dict(missing)}
        return Clock(clock.coarse, fine if len(fine) <= _MANY else _as_array(fine))
    fine = _padded(fine, 1 + max(slot for slot, _ in missing)).copy()  # type: ignore[arg-type]
    for slot, time in missing:
        fine[slot] = time
    return Clock(clock.coarse, fine)


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
