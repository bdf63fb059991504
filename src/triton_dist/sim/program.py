"""One program (block) of a launch while it runs: what its generated code can ask, and its simulated clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .requests import Steps, WaitRequest

if TYPE_CHECKING:
    import numpy as np

    from .check.order import Order
    from .launch import KernelLaunch
    from .machine import Machine
    from .memory import Allocation
    from .ops.block_memory import BlockMemory
    from .ptx.block_state import BlockState


class Program:
    """Identity, clock and state of one program.

    pid, num_programs: as ``tl.program_id`` and ``tl.num_programs`` return them.
    clock: simulated time in nanoseconds, up to the last point where the program waited for all that it had begun.
    memory_ns, matrix_ns: time of the tile accesses and of the matrix products since then. They overlap, as in a pipelined loop: ``settle``
        adds the longer one to the clock, before a signal is set or seen and at the end.
    rates: what things cost on one SM.
    threads: number of threads of the block.
    waiting: a WaitRequest while the program is parked, else None.
    block_memory: where tiles lie whose elements are used in simt regions; None before the first region.
    assembly: what inline assembly keeps from one block to the next; None before the first that does.
    may_part: loops that spin while threads that have left them could go on by themselves; part: whether one of them is to let them.
    word: address of the last single word that it accessed, for the report of a loop that spins. awaits: what such a loop of inline
        assembly is known to wait for.
    race: its actor where data races are looked for, else None; ``check.checker.RaceChecker`` says what at, order, active and lane are.
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
        "memory_ns",
        "matrix_ns",
        "rates",
        "generator",
        "waiting",
        "threads",
        "start",
        "sm",
        "word",
        "awaits",
        "may_part",
        "part",
        "block_memory",
        "assembly",
        "race",
        "at",
        "order",
        "active",
        "lane",
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
        self.memory_ns = self.matrix_ns = 0.0
        self.rates = machine.rates
        self.threads = launch.threads
        self.waiting = None
        self.word: int | None = None
        self.awaits: tuple[WaitRequest, ...] = ()
        self.may_part, self.part = 0, False
        self.block_memory: BlockMemory | None = None
        self.assembly: BlockState | None = None
        self.at = self.lane = -1
        self.order: Order | None = None
        self.active: np.ndarray | None = None
        self.race = None if machine.races is None else machine.races.program(self)
        self.generator: Steps = launch.kernel.function(self, *launch.values)

    def settle(self) -> None:
        """Wait for the loads, stores and products that were begun."""
        self.clock += self.memory_ns if self.memory_ns > self.matrix_ns else self.matrix_ns
        self.memory_ns = self.matrix_ns = 0.0

    def charge(self, counts: Iterable[int], itemsize: int, allocation: Allocation | None) -> None:
        """Add the time for moving a tile of ``counts`` elements along its axes from or to ``allocation``."""
        size = itemsize
        for count in counts:
            size *= count
        remote = allocation is not None and allocation.rank is not None and allocation.rank != self.rank
        self.memory_ns += size * (self.rates.remote_ns_per_byte if remote else self.rates.local_ns_per_byte)

    def read_clock(self) -> int:
        """Simulated nanoseconds. Reading takes time, so that a loop that waits for a time ends."""
        self.settle()
        self.clock += self.rates.clock_read_ns
        return int(self.clock)

    def look_at_clock(self) -> int:
        """Simulated nanoseconds, for a record of what the program does: it takes no time, so that what is recorded stays as it was."""
        self.settle()
        return self.machine.recorded_time(self.clock)

    def describe(self) -> str:
        """As reports name it: rank, program and kernel."""
        return f"rank {self.rank}, program {self.pid} of {self.launch.kernel.name}"

    def line(self) -> str:
        """The source line where the program stands."""
        return str(self.launch.kernel.location_of(self.generator))
