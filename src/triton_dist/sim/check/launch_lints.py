"""Lints of launches: waits in loops that ask for a pipeline (TD114), ranks as arguments (TD116), grids that differ by rank (TD117), and
what the kernel's inline assembly does wrong (TD119 to TD121).
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir import Location
from .lints import Lints

if TYPE_CHECKING:
    from ..kernel import Kernel
    from ..memory import Memory


class Argument(NamedTuple):
    """An integer argument of a kernel on one rank. specialized: whether Triton has made a constant of it."""

    value: int
    specialized: bool


class LaunchLints:
    """lints: where findings go. Sees each launch of each rank."""

    def __init__(self, lints: Lints) -> None:
        self._lints = lints
        self._arguments: dict[tuple[str, int, str, str], dict[int, set[Argument]]] = {}
        """For each (file, line, kernel, argument) what the ranks passed."""
        self._grids: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
        """For each kernel the grids of each rank's launches."""

    def launched(
        self, kernel: Kernel, rank: int, grid: tuple[int, int, int], stages: int, code: Any, arguments: Mapping[str, Argument]
    ) -> None:
        """A rank launches a kernel. stages: its ``num_stages``. code: of its Python function, None if that is not known."""
        for place, of_loop in kernel.facts.pipelined_waits:
            number = stages if of_loop is None else of_loop
            if number > 1:
                message = (
                    f"the loop around this wait asks for a pipeline of {number} stages, and gets none: behind a wait the loads are "
                    "issued one round at a time; wait before the loop (once for each output tile), or use num_stages=1"
                )
                self._lints.report("TD114", message, place, kernel.name)
        for place, mistake in kernel.facts.assembly:
            self._lints.report(mistake.code, mistake.message, place, kernel.name)
        self._grids.setdefault(kernel.name, {}).setdefault(rank, []).append(grid)
        if code is not None:
            for name, argument in arguments.items():
                place_of = (code.co_filename, code.co_firstlineno, kernel.name, name)
                self._arguments.setdefault(place_of, {}).setdefault(rank, set()).add(argument)

    def finish(self, memory: Memory) -> None:
        """Look at what all ranks have launched, and at what waits for ever."""
        for (file, line, kernel, name), of_rank in self._arguments.items():
            is_rank = all({one.value for one in seen} == {rank} for rank, seen in of_rank.items())
            if is_rank and len(of_rank) > 1 and any(one.specialized for one in of_rank.get(1, ())):
                self._report_rank(Location(file, _line_of(file, line, name)), kernel, name)
        for program in [program for parked in memory.watchers.values() for program in parked]:
            launch = getattr(program, "launch", None)
            if launch is not None:
                self._look_at_grids(launch.kernel.name, program)

    def _report_rank(self, place: Location, kernel: str, name: str) -> None:
        message = (
            f"argument {name!r} is the rank, an integer: Triton makes a constant of 1, so rank 1 compiles a kernel of its own (and ranks "
            f"0, 16, ... one for multiples of 16) while others may wait for it, and {name}.to(...) fails on rank 1 only; use dl.rank() or "
            f"do_not_specialize=[{name!r}]"
        )
        self._lints.report("TD116", message, place, kernel)

    def _look_at_grids(self, kernel: str, program: Any) -> None:
        of_rank = self._grids.get(kernel, {})
        for number in range(max((len(grids) for grids in of_rank.values()), default=0)):
            grids = {rank: launches[number] for rank, launches in of_rank.items() if number < len(launches)}
            if len(set(grids.values())) > 1:
                pairs = ", ".join(f"rank {rank}: {grid}" for rank, grid in sorted(grids.items()))
                message = (
                    f"{program.describe()} waits for ever in a kernel whose launch number {number + 1} has another grid on other ranks "
                    f"({pairs}): who counts arrivals has to count the sender's programs"
                )
                place = program.launch.kernel.location(program.waiting.location)
                self._lints.report("TD117", message, place, kernel, program.rank)
                return


def _line_of(file: str, first: int, name: str) -> int:
    """The line of a function's head, which may have several, that names a parameter."""
    for line in range(first, first + 40):
        text = linecache.getline(file, line)
        if name in text and not text.lstrip().startswith(("@", "#")):
            return line
        if text.rstrip().endswith(":"):
            break
    return first
