"""The signal pads of a simulation, for what is checked of them: they are to be zero again when nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..address_space import data_base
from ..memory import window
from ..report import written_by

if TYPE_CHECKING:
    from ..heap import Block
    from ..machine import Machine


class Pads:
    """Keeps the pads until the end of the run, where misuse is looked for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pads: list[tuple[Block, str, list[Any]]] = []

    @property
    def _lints(self) -> Any:
        return None if self._machine.races is None else self._machine.races.lints

    def add(self, pad: Block, of: str) -> None:
        """A new pad on all ranks. of: the name of the memory that it belongs to."""
        for rank in pad.ranks:
            allocation = self._machine.memory.find(data_base(rank) + pad.offset)
            if allocation is not None:
                allocation.is_pad = True
        if self._lints is not None:
            self._pads.append((pad, of, [pad.buffer(rank) for rank in pad.ranks]))

    def look(self) -> None:
        """Report words that are not zero, one for each source line that has left one; called when everything has run."""
        for pad, of, _ in self._pads:
            for rank in pad.ranks:
                words = window(data_base(rank) + pad.offset, (pad.nbytes // 4,), (4,), np.dtype(np.uint32))
                for number in np.flatnonzero(words).tolist():
                    self._report(data_base(rank) + pad.offset + 4 * number, int(words[number]), of, rank)

    def _report(self, address: int, value: int, of: str, rank: int) -> None:
        memory, place, kernel = self._machine.memory, None, None
        allocation, write = memory.find(address), memory.last_write(address)
        by = ""
        if write is not None:
            by = f", set by {written_by(write)}"
            if hasattr(write.writer, "launch"):
                place, kernel = write.writer.launch.kernel.location(write.location), write.writer.launch.kernel.name
        label = f"a word of the signal pad of {of}" if allocation is None else allocation.label(address)
        self._lints.report(
            "TD118",
            f"{label} is {value} when everything has run{by}: nobody has taken this signal, and whoever uses the pad of {of!r} next, a "
            "barrier or an operator too, takes it for its own; wait for every signal, and let who waits put 0 back",
            place,
            kernel,
            rank,
        )

    def close(self) -> None:
        """Give the pads back."""
        self._pads.clear()
