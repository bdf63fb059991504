"""The part of a kernel launch that the machine's scheduler needs."""

from __future__ import annotations

from typing import Protocol


class Launchable(Protocol):
    """A grid whose programs start one by one."""

    rank: int
    begin: float
    end: float
    count: int
    next_program: int
    finished: int
    kernel: object

    def program_id(self, number: int) -> tuple[int, int, int]:
        """The ids of the program that starts as the ``number``-th."""

    def complete(self, machine) -> None:
        """Called when the last program has ended."""
