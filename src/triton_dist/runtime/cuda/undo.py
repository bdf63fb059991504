"""Mapping one piece of memory on CUDA, and undoing several steps as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import driver


def run_all(steps: Iterable[Callable[[], Any]]) -> None:
    """Make every step, in order, whatever became of those before it; raises the first error when all is done."""
    failed: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - whatever it is, an interrupt too, the others come first
            failed = failed or error
    if failed is not None:
        raise failed


class UndoStack:
    """What has to be undone, last first. A step that fails does not keep the others from being undone."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], Any]] = []

    def push(self, step: Callable[[], Any]) -> None:
        self._steps.append(step)

    def call(self, name: str, *arguments: Any) -> None:
        """Undo by this call of the driver."""
        self.push(lambda: driver.call(name, *arguments))

    def run(self) -> None:
        """Undo everything; raises the first error when all is done."""
        run_all(self._last_first())

    def _last_first(self) -> Iterator[Callable[[], Any]]:
        while self._steps:
            yield self._steps.pop()


def map_memory(address: int, size: int, handle: Any, device: int, undo: UndoStack) -> None:
    """Map memory at an address inside a slot that is reserved, readable and writable by ``device``."""
    driver.call("cuMemMap", address, size, 0, handle, 0)
    undo.call("cuMemUnmap", address, size)
    driver.set_access(address, size, device)
