"""TMA stores, which go on behind the line that starts them.

One thread of the block starts such a store. Until 3.9 Triton has it wait only for the tile to have been *read* from shared memory
(``cp.async.bulk.wait_group.read``): not before the kernel ends is it said to be in memory, and no block barrier, fence or release of
``tl.atomic_*`` covers it before that thread has waited for all of it (``cp.async.bulk.wait_group``). All primitives that release do that
first; ``notify`` has every thread do it, and the block meet behind it. From 3.9 on Triton itself waits for all of it before
whatever releases or reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton

from .copies import TMA_STORE, PendingActor
from .history import WRITE
from .order import ORDERS
from .program_actor import ProgramActor
from .puts import PutChecker, actor_of
from .shadow import box_of

if TYPE_CHECKING:
    from ..memory import Allocation
    from ..program import Program

_FIRST_WITH_TMA = 90
_TRITON_WAITS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 9)
_REDUCE = ORDERS["relaxed", "gpu"]
"""PTX says of bulk reductions that each of their operations is relaxed at the scope of the GPU."""


class BulkStoreChecker(PutChecker):
    """Has an actor for each TMA store that its block's first thread, which starts it, has not waited for."""

    def bulk_store(
        self, program: Program, address: int, counts: Any, strides: Any, itemsize: int, origin: Allocation, reduces: bool = False
    ) -> None:
        """A tile is stored by a descriptor, or combined into memory."""
        actor: Any = actor_of(program)
        if program.machine.gpu.capability >= _FIRST_WITH_TMA and not _TRITON_WAITS:
            store = PendingActor(actor, TMA_STORE, None)
            actor.bulk_stores.append(store)
            actor = store
        if reduces:
            addresses = addresses_of(address, counts, strides)
            self.atomics(actor, addresses, itemsize, origin, _REDUCE, program.at, reads=True, writes=True)
        else:
            self.access(actor, box_of(address, counts, strides, itemsize), WRITE, program.at, origin)


def bulk_stores_end(actor: ProgramActor) -> None:
    """All threads know that the block's TMA stores are in memory."""
    for store in actor.bulk_stores:
        actor.learn_by(None, store.publish())
        actor.put_slots.append(store.end())
    actor.bulk_stores.clear()


def addresses_of(address: int, counts: Any, strides: Any) -> np.ndarray:
    """All addresses of a box of elements, flat."""
    total = np.full((1,) * len(counts), address, np.int64)
    for axis, (count, stride) in enumerate(zip(counts, strides, strict=True)):
        if count > 1:
            total = total + (np.arange(count, dtype=np.int64) * stride).reshape((-1,) + (1,) * (len(counts) - axis - 1))
    return total.reshape(-1)
