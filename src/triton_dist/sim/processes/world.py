"""One process of a world of ranks on the CPU: its place, its machine, its heap, and how the ranks agree on things."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from triton.runtime import driver as triton_driver

from ...errors import InvalidArgumentError, TritonDistError, UnreachablePeerError
from ...runtime.address_map import CONTEXT, MAX_WORLD_SIZE
from ...runtime.agreement import agreed
from ...runtime.context_words import first_words
from ...runtime.control_group import ControlGroup
from ...runtime.cuda.blocks import Block
from ...runtime.launcher import TIMEOUT, check_launcher
from .. import context as rank_context
from ..address_space import data_base
from ..context import RankContext
from ..driver import SimDriver
from ..memory import Allocation
from ..symmetric_memory import install as torch_symmetric_memory
from .attempts import ProcessAttempts
from .baton import Baton
from .engine import Engine
from .heap import CpuHeap, ProcessStreamBarrier
from .machine import ProcessMachine
from .mail import Mail
from .memory import GuardedMemory
from .modes import RankModes
from .segments import join_segments
from .shared_lock import SharedLock
from .symmetric_memory import ProcessAllocations
from .teams import ProcessTeams


@dataclass
class _Simulation:
    """What ``RankContext.simulation`` has for those who ask: the machine and heap of this process."""

    machine: ProcessMachine
    heap: Any = None
    stream_barrier: Any = None
    symmetric_memory: Any = None
    contexts: list[RankContext] = field(default_factory=list)


class CpuWorld(RankContext):
    """The world as this process sees it; made by all ranks together, on one host with no GPU.

    Starts ``torch.distributed`` (gloo) from the launcher's environment if it is not running. heap_size: bytes a rank.
    wait_timeout: seconds that a wait in a kernel may take, None for ever.
    Raises the same error on every rank when one of them can't: NotInitializedError, AddressInUseError, HeapFullError,
    UnreachablePeerError, InvalidArgumentError.
    """

    def __init__(self, heap_size: int, wait_timeout: float | None = None) -> None:
        if not dist.is_initialized():
            check_launcher()
            dist.init_process_group("gloo", timeout=TIMEOUT)
        self._control = ControlGroup()
        rank, world_size = dist.get_rank(), dist.get_world_size()
        self._engine: Engine | None = None
        self._thread = threading.current_thread()
        try:
            agreed(self._control.gather, range(world_size), "looking at the world", lambda: _check_place(world_size))
            if len(set(self._control.gather(_host()))) > 1:
                raise UnreachablePeerError("the ranks are on several hosts; the symmetric heap reaches the processes of one host")
            self._segments = join_segments(rank, world_size, self._control.gather)
            boards = self._segments.boards
            if rank == 0:
                SharedLock(boards[0].lock_address, create=True)
            self._control.gather("lock made")
            lock = SharedLock(boards[0].lock_address)
            machine = ProcessMachine(rank, world_size, GuardedMemory(Baton()), lock)
            self._engine = Engine(rank, boards, lock, machine, wait_timeout)
            self._mail = Mail(rank, boards, self._block_for_ranks)
            self._registered: dict[Block, list[Allocation]] = {}
            super().__init__(rank, world_size, 1, _Simulation(machine), self._engine)  # type: ignore[arg-type]
            self._engine.start()
            self.simulation.contexts.append(self)
            self.simulation.heap = CpuHeap(self, heap_size, self._segments)  # type: ignore[assignment]
            machine.teams = ProcessTeams(machine.memory, self.heap, rank, world_size)
            self._write_context_page()
            self.simulation.stream_barrier = ProcessStreamBarrier(self)
            self.simulation.symmetric_memory = ProcessAllocations(self)
        except BaseException:
            if self._engine is not None:
                self._engine.stop()
            self._control.end()
            raise
        self._modes = RankModes(self)
        self._torch_functions = contextlib.ExitStack()
        self._driver_before = triton_driver._active
        self._enter()

    def _enter(self) -> None:
        """From here on this process is a rank: for kernels, torch operators and when it ends."""
        triton_driver.set_active(SimDriver())
        rank_context.set_process(self)
        self._modes.enter()
        self._torch_functions.enter_context(torch_symmetric_memory.installed())
        atexit.register(self._at_exit)

    def _leave(self) -> None:
        atexit.unregister(self._at_exit)
        self._torch_functions.close()
        self._modes.leave()
        rank_context.set_process(None)
        triton_driver._active = self._driver_before

    def _at_exit(self) -> None:
        """The process ends without having left the world."""
        self.engine.stop()
        # The interpreter sets it when it prints an exception that nobody caught.
        self.engine.say_ended(getattr(sys, "last_value", None))

    # ------------------------------------------------------------------ agreement

    def _block_for_ranks(self, what: str | Callable[[], str], ready: Callable[[], bool]) -> None:
        self.engine.block(self, what, ready, joint=True)

    def gather(self, value: Any, what: str = "a call that all ranks make together") -> list[Any]:
        """Every rank's ``value``, by rank. Raises DeadlockError, PeerLostError, WaitTimeoutError when ranks don't come."""
        return self.gather_among(range(self.world_size), value, what)

    def gather_among(self, ranks: Sequence[int], value: Any, what: str = "a call that the ranks of a team make together") -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; each of them calls it, and no other rank."""
        return self._mail.gather(ranks, value, getattr(value, "in_words", what))

    def together(self, what: str, act: Callable[[], Any]) -> None:
        """Run ``act`` on every rank; if it fails on one, raise an error of that rank's class on all."""
        agreed(self.gather, range(self.world_size), what, act)

    def start_mail_over(self, by_rank: Sequence[dict[tuple[int, ...], int]]) -> None:
        """Count the calls that ranks make together alike again. by_rank: ``mail_numbers`` of every rank that has made one."""
        for numbers in by_rank:
            self._mail.start_over({ranks: number for ranks, number in numbers.items() if self.rank in ranks})

    @property
    def mail_numbers(self) -> dict[tuple[int, ...], int]:
        """How many calls ranks have made together, as this one counts."""
        return self._mail.numbers

    @property
    def attempts(self) -> ProcessAttempts:
        """How this rank makes calls that may hang."""
        return ProcessAttempts(self, self._control)

    # ------------------------------------------------------------------ memory

    def publish_blocks(self, blocks: Iterable[Block]) -> None:
        """Let kernels use the heap's blocks, in the memory of every rank that has them; those that are gone are errors from now on."""
        memory = self.machine.memory
        living = {block for block in blocks if not block.freed}
        for block in self._registered.keys() - living:
            for allocation in self._registered.pop(block):
                memory.unregister(allocation)
        for block in living - self._registered.keys():
            self._registered[block] = [
                memory.register_range(
                    data_base(rank) + block.offset, block.nbytes, name=block.name, rank=rank, symmetric=True, itemsize=block.itemsize
                )
                for rank in block.ranks
            ]

    def _write_context_page(self) -> None:
        """The words at the constant address, as on GPUs: who this process is and which heaps are mapped."""
        words = first_words(self.rank, self.world_size, self.local_rank, self.local_world_size)
        self.heap.bytes_at(CONTEXT, words.numel()).copy_(words)

    # ------------------------------------------------------------------ what operators ask

    @property
    def heap(self) -> CpuHeap:  # type: ignore[override]
        """The symmetric heap, as this process sees it."""
        return self.simulation.heap  # type: ignore[return-value]

    @property
    def engine(self) -> Engine:
        """What runs this process's machine."""
        if self._engine is None:
            raise TritonDistError("this world has ended; call triton_dist.initialize() again")
        return self._engine

    def block(self, what: str | Callable[[], str], ready: Callable[[], bool]) -> None:
        self.engine.block(self, what, ready)

    def poll(self, what: str) -> None:
        self.engine.poll(self, what)

    def synchronize(self, stream: int | None = None, why: str | Callable[[], str] = "synchronize()") -> None:
        """Wait until the work on ``stream`` (default: on every stream) has finished. Raises what went wrong in it."""
        super().synchronize(stream, why)
        self.raise_failure()

    def set_wait_timeout(self, seconds: float) -> None:
        """Bound this rank's waits from now on."""
        self.engine.bound = seconds

    def raise_failure(self) -> None:
        """Raise what has gone wrong in this world, if anything."""
        self.engine.raise_failure()

    def check(self) -> None:
        """``raise_failure``, after a look whether the other ranks' processes live."""
        self.engine.check()

    def close(self) -> BaseException | None:
        """Leave the world; all ranks call it. ``torch.distributed`` goes on.

        A world that has failed is left without meeting the others. Returns the failure that no call has raised yet.
        """
        told = self.engine.told
        try:
            self.synchronize(why="finalize()")
            self.gather("closing", "finalize()")
        except Exception:
            if self.engine.failure is None:
                raise
        failure = self.engine.failure
        self.workspaces.clear()
        self.release()
        self.simulation.stream_barrier.release()
        self.simulation.symmetric_memory.close()
        self._leave()
        self.engine.stop()
        self.engine.say_ended()
        self.machine.close()
        self.heap.close()
        self._control.end()
        return None if told else failure


def _check_place(world_size: int) -> None:
    if world_size > MAX_WORLD_SIZE:
        raise InvalidArgumentError(f"{world_size} ranks are more than the {MAX_WORLD_SIZE} that the address map has room for")
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world_size)))
    if local != world_size:
        raise UnreachablePeerError(
            f"{local} of the {world_size} ranks are on this host; the symmetric heap reaches the processes of one host"
        )


def _host() -> str:
    """A name for the running system of this host."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return os.uname().nodename
