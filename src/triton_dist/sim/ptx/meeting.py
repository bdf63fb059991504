"""Where threads meet: which of them, and what that orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .block_state import state_of
from .special import WARP

if TYPE_CHECKING:
    from .form import Read
    from .frame import Frame


@dataclass(frozen=True)
class Meeting:
    """A barrier, or an instruction that the threads of a mask carry out together.

    name: of the instruction. number: of a barrier of the block, -1 for what a warp does. count: threads that it waits for, 0 for all.
    members: lanes of each warp that meet, as a mask, the same for all threads or one for each. place: number of the instruction where
    only those meet that come to this one; -1 where any of the kind will do. orders: whether it orders memory.
    """

    name: str
    number: int
    count: int = 0
    members: int | Read = 0xFFFFFFFF
    place: int = -1
    orders: bool = True

    def complete(self, frame: Frame, here: np.ndarray) -> np.ndarray | None:
        """The lanes that may go on, or None. here: who has come."""
        going = self._of_warps(frame, here) if self.number < 0 else self._of_block(frame, here)
        if going is not None and self.orders and frame.context.block_memory is not None:
            frame.context.block_memory.order()
        return going

    def masks(self, frame: Frame) -> np.ndarray:
        """The mask of each lane."""
        given = np.array([self.members], np.uint32) if isinstance(self.members, int) else self.members(frame)
        return np.broadcast_to(given, frame.lanes)

    def _of_block(self, frame: Frame, here: np.ndarray) -> np.ndarray | None:
        state = state_of(frame.context)
        wanted = self.count or frame.context.threads
        if int(here.sum()) + state.arrived.get(self.number, 0) < wanted:
            return None
        state.arrived.pop(self.number, None)
        if frame.context.race is not None:
            # A barrier of some threads orders those only; it is taken for one of all, so that no right program is blamed.
            frame.context.race.block_barrier()
        return here

    def _of_warps(self, frame: Frame, here: np.ndarray) -> np.ndarray | None:
        going = np.zeros_like(here)
        for lanes, mask in groups(frame, here, self.masks(frame)):
            named = mask >> (frame.threads[lanes] % WARP) & 1 != 0
            if named.all() and len(lanes) == mask.bit_count():
                going[lanes] = True
        if not going.any():
            return None
        if frame.context.race is not None and self.orders:
            frame.context.race.warp_barrier(np.unique(frame.threads[going] // WARP).tolist())
        return going

    def incomplete(self, frame: Frame, here: np.ndarray) -> str:
        """Why nobody can go on."""
        if self.number >= 0:
            wanted = self.count or frame.context.threads
            return f"a block barrier is reached by {int(here.sum())} of {wanted} threads; move it out of the condition so that all come"
        lanes, mask = next(groups(frame, here, self.masks(frame)))
        threads = frame.threads[lanes]
        warp = int(threads[0]) // WARP
        missing = [WARP * warp + lane for lane in range(WARP) if mask >> lane & 1 and WARP * warp + lane not in threads]
        extra = [thread for thread in threads.tolist() if not mask >> thread % WARP & 1]
        why = f"thread {extra[0]} comes and is not in it" if extra else f"thread {missing[0]} is in it and does not come"
        return (
            f"{self.name} with the mask {mask:#x} is reached by {len(lanes)} threads of warp {warp}: {why}; the mask has to name who comes"
        )


@dataclass(frozen=True)
class ClusterWait(Meeting):
    """``barrier.cluster.wait``: goes on when every thread of the cluster, which is one block, has arrived as often."""

    def complete(self, frame: Frame, here: np.ndarray) -> np.ndarray | None:
        known = state_of(frame.context).cluster
        threads = frame.threads.tolist()
        lanes = [lane for lane in np.flatnonzero(here).tolist() if self._may_go(frame, known.get(threads[lane], (0, 0)))]
        if not lanes:
            return None
        for lane in lanes:
            arrived, waited = known[threads[lane]]
            known[threads[lane]] = arrived, waited + 1
        if frame.context.race is not None:
            frame.context.race.block_barrier()
        if frame.context.block_memory is not None:
            frame.context.block_memory.order()
        going = np.zeros_like(here)
        going[lanes] = True
        return going

    def _may_go(self, frame: Frame, counts: tuple[int, int]) -> bool:
        known = state_of(frame.context).cluster
        everyone = min(known.get(thread, (0, 0))[0] for thread in range(frame.context.threads))
        return counts[0] > counts[1] and everyone > counts[1]

    def incomplete(self, frame: Frame, here: np.ndarray) -> str:
        known = state_of(frame.context).cluster
        mine = int(frame.threads[np.flatnonzero(here)[0]])
        arrived, waited = known.get(mine, (0, 0))
        if arrived <= waited:
            return f"barrier.cluster.wait by thread {mine}, which has not arrived; barrier.cluster.arrive comes first"
        missing = next(thread for thread in range(frame.context.threads) if known.get(thread, (0, 0))[0] <= waited)
        return f"barrier.cluster.wait: thread {missing} of the block never arrives; every thread of the cluster has to"


def groups(frame: Frame, here: np.ndarray, masks: np.ndarray):
    """The lanes of each warp that come with one mask, and that mask. here: which lanes come."""
    lanes = np.flatnonzero(here)
    keys = (frame.threads[lanes] // WARP).astype(np.int64) << 32 | masks[lanes].astype(np.int64)
    for key in np.unique(keys).tolist():
        yield lanes[keys == key], key & 0xFFFFFFFF
