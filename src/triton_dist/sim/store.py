"""The key-value store that ``torch.distributed`` asks for, shared by the ranks of one simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..errors import NotInitializedError
from . import context


class HostStore(dist.Store):
    """A store in this process's memory, whose waits let the other ranks run.

    Keys are text, values bytes, as in torch's own stores. All ranks use one object.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._known: dict[str, Any] = {}
        """What the hosts that wrote a key had done before, for ``check``."""

    def _wrote(self, key: str) -> None:
        rank = context.current()
        if rank is not None and rank.machine.races is not None:
            host = rank.machine.races.host(rank.rank)
            if key in self._known:
                host.learn(self._known[key])
            self._known[key] = host.publish()

    def _read(self, keys: Iterable[str]) -> None:
        rank = context.current()
        if rank is not None and rank.machine.races is not None:
            for key in keys:
                if key in self._known:
                    rank.machine.races.host(rank.rank).learn(self._known[key])

    def set(self, key: str, value: str | bytes) -> None:
        self._wrote(key)
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        self._wrote(key)
        return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        expected, desired = (item.encode() if isinstance(item, str) else bytes(item) for item in (expected, desired))
        self._wrote(key)
        seen = self._values.get(key)
        if seen == expected or (seen is None and not expected):
            self._values[key] = desired
        return self._values.get(key, expected)

    def check(self, keys: list[str]) -> bool:
        found = all(key in self._values for key in keys)
        if found:
            self._read(keys)
        return found

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Block until every key is set. There is no timeout: a key that is never set ends in the deadlock report."""
        if self.check(keys):
            return
        wait_for(
            lambda: f"store.wait for {[key for key in keys if key not in self._values]}", lambda: all(key in self._values for key in keys)
        )
        self._read(keys)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)


def wait_for(what: str | Callable[[], str], ready: Callable[[], bool]) -> None:
    """Let the other ranks run until ``ready()``; see ``RankContext.block``. Raises NotInitializedError outside ``simulate``."""
    rank = context.current()
    if rank is None:
        raise NotInitializedError("a simulated store was used outside simulate, where nobody can set the key that is waited for")
    rank.block(what, ready)
