"""Accesses of memory by lanes: bounds, the race check, and the bits themselves.

An access has one or several elements a lane (a vector). The race check is told of each by the thread that does it, where that is sure: a
tile with more elements than threads is spread as the compiler likes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..check.actors import BLOCK, EACH
from ..check.checker import SILENT
from ..check.history import READ, WRITE
from ..check.order import Order
from ..check.shadow import Box
from ..memory import element_index, scalar_view
from ..ops.memory import _check_each, check_scalar, put_word, see_word

if TYPE_CHECKING:
    from ..program import Program
    from .frame import Frame

_FEW = 64
"""Words of an access up to which it is noted for each who wrote it last."""

_BITS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_SIGNED = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}


class Access:
    """One instruction's access by some lanes.

    starts: the address of each lane, or one for all of them. lanes: their numbers. size: bytes of an element. count: elements a lane has.
    order: None for a weak access. what: "ld", "st" or "atomic", as errors name it.
    """

    def __init__(
        self, frame: Frame, addresses: np.ndarray, lanes: np.ndarray, size: int, count: int, order: Order | None, what: str
    ) -> None:
        self.frame, self.lanes, self.size, self.count, self.order, self.what = frame, lanes, size, count, order, what
        addresses = addresses.astype(np.int64)
        if addresses.size > 1:
            addresses = addresses[lanes]
            if (addresses == addresses[0]).all():
                addresses = addresses[:1]
        self.starts = addresses
        self.uniform = addresses.size == 1
        width = size * count
        if width > size and (addresses & (width - 1)).any():
            bad = int(addresses[(addresses & (width - 1)) != 0][0])
            raise frame.context.memory.misaligned(bad, width, what)

    @property
    def places(self) -> np.ndarray:
        """Addresses of all elements: a row for each start."""
        return self.starts[:, None] + np.arange(self.count, dtype=np.int64) * self.size

    def check(self) -> None:
        """Bounds, alignment and cost."""
        context = self.frame.context
        places = self.places
        if self.uniform or places.size <= 4:
            context.lane = SILENT
            for place in places.ravel().tolist():
                check_scalar(context, place, self.size, self.what, None)
            context.lane = -1
            return
        flat = places.reshape(-1)
        if (flat & (self.size - 1)).any():
            raise context.memory.misaligned(int(flat[(flat & (self.size - 1)) != 0][0]), self.size, self.what)
        first = context.memory.find(int(flat.min()))
        if first is None or int(flat.max()) + self.size > first.hi:
            _check_each(context, flat, self.size, self.what, None)
        context.word = int(flat[0])
        context.charge((flat.size,), self.size, first)

    def report(self) -> None:
        """Tell the race check."""
        context = self.frame.context
        if context.race is None:
            return
        context.at, context.order = self.frame.location, self.order
        if self.order is None:
            self._report_weak(context)
        else:
            self._report_strong(context)
        context.order, context.lane = None, -1

    def _report_weak(self, context: Program) -> None:
        actor, kind = context.race, WRITE if self.what == "st" else READ
        assert actor is not None, "there is a race check"
        checker = actor.checker
        if self.uniform:
            start, bytes_ = int(self.starts[0]), self.size * self.count
            box = Box(start, bytes_, (), bytes_)
            checker.access(actor, box, kind, context.at, checker.find(start), self._thread)
            return
        places = self.places
        threads = None
        if self.frame.known:
            threads = np.repeat(self.frame.threads[self.lanes], self.count)
        checker.tile(context, places.reshape(-1), self.size, self.what, None, threads)

    @property
    def _thread(self) -> int:
        """Who does it, where all lanes do the same."""
        if not self.frame.known:
            return BLOCK
        return int(self.frame.threads[self.lanes[0]]) if len(self.lanes) == 1 else EACH

    def _report_strong(self, context: Program) -> None:
        actor, order, writes = context.race, self.order, self.what == "st"
        assert actor is not None and order is not None, "there is a race check, and the access is strong"
        checker = actor.checker
        everyone = self.uniform and self.frame.covers_block and len(self.lanes) == self.frame.lanes
        if everyone or (self.uniform and not self.frame.known):
            for place in self.places.ravel().tolist():
                checker.word(
                    actor, place, self.size, order, context.at, reads=not writes, writes=writes, thread=EACH, learner=BLOCK
                )  # fmt: skip
            return
        places = np.broadcast_to(self.places, (len(self.lanes), self.count))
        if places.size > _FEW * 4 or not self.frame.known:
            checker.tile(context, places.reshape(-1), self.size, self.what, None)
            return
        for lane, row in zip(self.lanes.tolist(), places.tolist(), strict=True):
            thread = int(self.frame.threads[lane])
            for place in row:
                checker.word(
                    actor, place, self.size, order, context.at, reads=not writes, writes=writes, thread=thread, learner=thread
                )  # fmt: skip

    def read(self) -> np.ndarray:
        """The bits: a row for each start, a column for each element."""
        context = self.frame.context
        places = self.places
        if places.size <= _FEW:
            for place in places.ravel().tolist():
                see_word(context, place)
        return scalar_view(_BITS[self.size])[element_index(places, self.size)]

    def store(self, values: np.ndarray) -> None:
        """Write bits, a row for each lane (or one for all). Where several lanes write one place, the last one's stay."""
        context = self.frame.context
        places = self.places
        if not self.uniform:
            values = np.broadcast_to(values, (len(self.lanes), self.count))
        elif values.shape[0] > 1:
            values = values[-1:]
        if places.size <= _FEW:
            signed = np.ascontiguousarray(values).view(_SIGNED[self.size])
            for place, value in zip(places.ravel().tolist(), signed.ravel(), strict=True):
                put_word(context, place, value, _SIGNED[self.size], self.frame.location)
            return
        scalar_view(_BITS[self.size])[element_index(places, self.size)] = values
        context.memory.changed(int(places.min()), int(places.max()) + self.size, context)


def spread(values: np.ndarray, access: Access, lanes: int) -> np.ndarray:
    """What an access read, as the contents of a register: one for all lanes, or one for each."""
    if access.uniform:
        return values
    if len(access.lanes) == lanes:
        return values
    result = np.zeros((lanes, *values.shape[1:]), values.dtype)
    result[access.lanes] = values
    return result
