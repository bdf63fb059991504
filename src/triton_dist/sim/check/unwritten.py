"""TD106: reads of symmetric memory that nobody has written.

Memory of ``symm_empty`` is filled with a byte that is rare in data, and shadow memory knows the writes. What has neither been written as
far as is seen, nor lost that byte to a write that is not seen, is read for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..memory import POISON, window
from .actors import Actor
from .lints import Lints
from .program_actor import ProgramActor
from .shadow import Box, Shadow

_MOVES = (
    *(f"torch.{name}" for name in ("clone", "copy_", "_to_copy", "cat", "stack", "constant_pad_nd", "index_select")),
    *(f"torch.Tensor.{name}" for name in ("numpy", "__array__", "cpu", "to", "copy_", "untyped_storage", "__dlpack__")),
    "copy of",
)
"""What streams and hosts do with data that says nothing about its values: parts of a buffer may be moved that nobody uses."""

_BYTES = np.dtype(np.uint8)


class UnwrittenLint:
    """lints: where findings go."""

    def __init__(self, lints: Lints) -> None:
        self._lints = lints

    def box(self, actor: Any, shadow: Shadow, box: Box, location: Any) -> None:
        """A read of a box of memory."""
        if not _looks_at_values(actor, location):
            return
        itemsize = shadow.allocation.itemsize
        if box.run % itemsize:
            itemsize = 1
        counts, strides = [count for count, _ in box.dims] + [box.run // itemsize], [stride for _, stride in box.dims] + [itemsize]
        untouched = (window(box.start, (*counts, itemsize), (*strides, 1), _BYTES) == POISON).all(axis=-1)
        if untouched.any():
            offsets = sum(index * stride for index, stride in zip(np.nonzero(untouched), strides, strict=True))
            self._look(actor, shadow, box.start + np.asarray(offsets), itemsize, location)

    def scattered(self, actor: Any, shadow: Shadow, addresses: np.ndarray, itemsize: int, location: Any) -> None:
        """A read of single elements."""
        if not _looks_at_values(actor, location):
            return
        places = [address for address in np.unique(addresses).tolist() if (window(address, (itemsize,), (1,), _BYTES) == POISON).all()]
        if places:
            self._look(actor, shadow, np.array(places), itemsize, location)

    def _look(self, actor: Any, shadow: Shadow, addresses: np.ndarray, itemsize: int, location: Any) -> None:
        cells = (addresses - shadow.lo) // shadow.granule if shadow.granule else None
        if cells is not None:
            unwritten = shadow.writes[cells] == 0
            if shadow.atomics is not None:
                unwritten &= shadow.atomics[cells] == 0
            addresses = addresses[unwritten]
        places = [address for address in addresses.tolist() if not _written_as_word(shadow, address, itemsize)]
        if not places:
            return
        allocation = shadow.allocation
        first, last = allocation.index(places[0]), allocation.index(places[-1])
        what = allocation.label(places[0]) if first == last else f"{allocation.name}[{first}..{last}] of rank {allocation.rank}"
        message = (
            f"{actor.describe(location)} reads {what}, which nobody has written: symm_empty leaves any content; use symm_zeros, or "
            "write it and let the reader come behind that"
        )
        self._lints.report_at("TD106", message, actor, location)


def _looks_at_values(actor: Any, location: Any) -> bool:
    if type(actor) is ProgramActor:
        return True
    return type(actor) is Actor and actor.rank >= 0 and not str(location).startswith(_MOVES)


def _written_as_word(shadow: Shadow, address: int, itemsize: int) -> bool:
    for place in range(address, address + itemsize):
        word = shadow.words.get(place)
        if word is not None and (word.writers or word.writes or word.dropped):
            return True
    return False
