"""One program (block) of a launch while it runs: what its generated code can ask, and its simulated clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .requests import Steps

if TYPE_CHECKING:
    from .launch import KernelLaunch
    from .machine import Machine
    from .memory import Allocation

# Rates of the simulated clock in nanoseconds, for one SM of an H100-like GPU. They order events plausibly; they are not calibrated.
LOCAL_NS_PER_BYTE = 0.04
REMOTE_NS_PER_BYTE = 0.0225
COPY_ENGINE_NS_PER_BYTE = 1 / 372
LOCAL_LATENCY_NS = 300.0
CLOCK_READ_NS = 1000.0
REMOTE_LATENCY_NS = 1200.0
FLOP_NS = {1: 1 / 15000, 2: 1 / 7500, 4: 1 / 3700, 8: 1 / 500}


class Program:
    """Identity, clock and state of one program.

    pid, num_programs: as ``tl.program_id`` and ``tl.num_programs`` return them.
    clock: simulated time in nanoseconds.
    threads: number of threads of the block.
    waiting: a WaitRequest while the program is parked, else None.
    word: address of the last single word that it accessed, for the report of a loop that spins.
    """

    __slots__ = (
        "pid",
        "num_programs",
        "rank",
        "world_size",
        "machine",
        "memory",
        "launch",
        "clock",
        "generator",
        "waiting",
        "threads",
        "start",
        "sm",
        "word",
    )

    def __init__(self, pid: tuple[int, int, int], launch: KernelLaunch, machine: Machine, clock: float, sm: int) -> None:
        self.pid = pid
        self.sm = sm
        self.num_programs = launch.grid
        self.rank = launch.rank
        self.world_size = machine.world_size
        self.machine = machine
        self.memory = machine.memory
        self.launch = launch
        self.clock = self.start = clock
        self.threads = launch.threads
        self.waiting = None
        self.word: int | None = None
        self.generator: Steps = launch.kernel.function(self, *launch.values)

    def charge(self, counts: Iterable[int], itemsize: int, allocation: Allocation | None) -> None:
        """Add the time for moving a tile of ``counts`` elements along its axes from or to ``allocation``."""
        size = itemsize
        for count in counts:
            size *= count
        remote = allocation is not None and allocation.rank is not None and allocation.rank != self.rank
        self.clock += size * (REMOTE_NS_PER_BYTE if remote else LOCAL_NS_PER_BYTE)

    def read_clock(self) -> int:
        """Simulated nanoseconds. Reading takes time, so that a loop that waits for a time ends."""
        self.clock += CLOCK_READ_NS
        return int(self.clock)

    def describe(self) -> str:
        """As reports name it: rank, program and kernel."""
        return f"rank {self.rank}, program {self.pid} of {self.launch.kernel.name}"

    def line(self) -> str:
        """The source line where the program stands."""
        return str(self.launch.kernel.location_of(self.generator))
