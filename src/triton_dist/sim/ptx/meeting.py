"""Barriers: which threads meet, and what that orders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .frame import Frame
from .special import WARP


@dataclass(frozen=True)
class Meeting:
    """A barrier. number: of a barrier of the block, -1 for one of a warp. count: threads that it waits for, 0 for all.

    members: lanes of each warp that meet, as a mask.
    """

    number: int
    count: int = 0
    members: int = 0xFFFFFFFF

    def complete(self, frame: Frame, here: np.ndarray, alive: np.ndarray) -> np.ndarray | None:
        """The lanes that may go on, or None. here: who has come. alive: who has not ended."""
        return self._of_warps(frame, here, alive) if self.number < 0 else self._of_block(frame, here, alive)

    def _of_block(self, frame: Frame, here: np.ndarray, alive: np.ndarray) -> np.ndarray | None:
        wanted = self.count or frame.context.threads
        if int(here.sum()) < wanted:
            return None
        if frame.context.race is not None:
            # A barrier of some threads orders those only; it is taken for one of all, so that no right program is blamed.
            frame.context.race.block_barrier()
        if frame.context.block_memory is not None:
            frame.context.block_memory.order()
        return here

    def _of_warps(self, frame: Frame, here: np.ndarray, alive: np.ndarray) -> np.ndarray | None:
        named = (self.members >> (frame.threads % WARP) & 1).astype(np.bool_)
        warps = frame.threads // WARP
        going = np.zeros_like(here)
        for warp in np.unique(warps[here]).tolist():
            mine = (warps == warp) & named
            if not (mine & alive & ~here).any() and int(mine.sum()) == int(self.members).bit_count():
                going |= mine & here
        if not going.any():
            return None
        if frame.context.race is not None:
            frame.context.race.warp_barrier(np.unique(warps[going]).tolist())
        if frame.context.block_memory is not None:
            frame.context.block_memory.order()
        return going

    def incomplete(self, frame: Frame, here: np.ndarray) -> str:
        """Why nobody can go on."""
        if self.number >= 0:
            wanted = self.count or frame.context.threads
            return f"a block barrier is reached by {int(here.sum())} of {wanted} threads; move it out of the condition so that all come"
        return (
            f"a barrier of a warp with the mask {self.members:#x} is reached by {int(here.sum())} threads; the mask has to name who comes"
        )
