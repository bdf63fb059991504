"""Units of data that carry their own signal (``primitives/flagged.py``): two words of 8 bytes, each 4 bytes of data and a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import FlagReuseError
from ..memory import element_index, scalar_view
from ..report import written_by
from ..requests import Steps
from .memory import addresses_of, see_words
from .primitives import wait

if TYPE_CHECKING:
    from ..program import Program

_WORD = np.dtype(np.int64)
_UNIT = 16


def push(context: Program, units, data, flag, mask, shape: tuple[int, ...], location: int) -> Steps:
    """Store units. Nothing orders their words, so they land in four parts, in an order that changes; others may run between."""
    units, chosen, expected = _units(context, units, flag, mask, shape, "st")
    values = np.where(chosen, data, 0).astype(np.int64)
    front = (np.cumsum(chosen.reshape(-1)) * 2 <= np.count_nonzero(chosen)).reshape(shape)
    parts = [(front, 0), (front, 8), (~front, 0), (~front, 8)]
    first = (expected + context.rank) % len(parts)
    for part, offset in parts[first:] + parts[:first]:
        _put(context, units + offset, chosen & part, (values >> 4 * offset & 0xFFFFFFFF) | expected << 32, expected, location)
        yield
    return 0


def _put(context: Program, words, chosen, values, flag: int, location: int) -> None:
    """Store some words of a tile, and wake who waits for them."""
    places, _, _ = addresses_of(context, words, (chosen,), chosen.shape, _WORD, "st", None)
    if not places.size:
        return
    memory, view, index = context.memory, scalar_view(_WORD), element_index(places, _WORD.itemsize)
    same = view[index] >> 32 == flag
    if same.any():
        raise _reused(context, int(places[same][0]), flag)
    view[index] = values[chosen]
    memory.writes.update(dict.fromkeys(places.tolist(), (context, flag, context.clock, location)))
    memory.changed(int(places.min()), int(places.max()) + _WORD.itemsize, context)


def take(context: Program, units, flag, mask, shape: tuple[int, ...], location: int) -> Steps:
    """Wait until both words of every unit carry the flag, all at one time; gives the data, 0 where the mask is off."""
    units, chosen, expected = _units(context, units, flag, mask, shape, "ld")
    result = np.zeros(shape, np.int64)
    places = units[chosen]
    if not places.size:
        return result
    words = np.concatenate([places, places + 8])
    # A tile is in one tensor.
    allocation = context.memory.check(int(words.min()), int(words.max()) + _WORD.itemsize, _WORD.itemsize, "ld")
    view, index = scalar_view(_WORD), element_index(words, _WORD.itemsize)
    missing = np.flatnonzero(view[index] >> 32 != expected)
    while missing.size:
        yield from wait(context, int(words[missing[0]]), 1, expected, "flag", _WORD.itemsize, location, None)
        missing = np.flatnonzero(view[index] >> 32 != expected)
    see_words(context, words, allocation)
    for offset in (0, 8):
        addresses_of(context, units + offset, (chosen,), shape, _WORD, "ld", None)
    low, high = view[index].reshape(2, -1)
    result[chosen] = (low & 0xFFFFFFFF) | (high << 32)
    return result


def _units(context: Program, units, flag, mask, shape: tuple[int, ...], what: str) -> tuple[np.ndarray, np.ndarray, int]:
    """All units' addresses, which of them count, and the flag. Raises MisalignedAccessError."""
    units, chosen = np.broadcast_to(units, shape), np.broadcast_to(np.asarray(mask, np.bool_), shape)
    wrong = units[chosen] % _UNIT != 0
    if wrong.any():
        raise context.memory.misaligned(int(units[chosen][wrong][0]), _UNIT, what)
    return units, chosen, int(np.asarray(flag).reshape(-1)[0])


def _reused(context: Program, place: int, flag: int) -> FlagReuseError:
    allocation, write = context.memory.find(place), context.memory.last_write(place)
    word = allocation.label(place) if allocation is not None else f"the word at {place:#x}"
    before = f", by {written_by(write)}" if write is not None else ""
    return FlagReuseError(
        f"{word} is stored with the flag {flag}, which it carries already{before}: its reader can't tell the new data from the old; "
        "count the flags on from call to call, and renew words before flags come round"
    )
