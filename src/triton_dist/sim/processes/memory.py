"""The known allocations of a process in which the program's threads and the machine run side by side."""

from __future__ import annotations

from typing import Any

from ..memory import Allocation, Memory
from .baton import Baton


class GuardedMemory(Memory):
    """Memory whose tables only the holder of ``baton`` looks at or changes: torch frees tensors in any thread."""

    def __init__(self, baton: Baton) -> None:
        super().__init__()
        self.baton = baton

    def register(self, *arguments: Any, **options: Any) -> Allocation:
        with self.baton:
            return super().register(*arguments, **options)

    def register_range(self, lo: int, nbytes: int, *, symmetric: bool, **options: Any) -> Allocation:
        with self.baton:
            for address in [address for address in self.writes if lo <= address < lo + nbytes] if symmetric else ():
                del self.writes[address]  # of what was there before
            return super().register_range(lo, nbytes, symmetric=symmetric, **options)

    def unregister(self, allocation: Allocation) -> None:
        with self.baton:
            super().unregister(allocation)

    def find(self, address: int) -> Allocation | None:
        with self.baton:
            return super().find(address)

    def touch_all(self) -> None:
        with self.baton:
            super().touch_all()
