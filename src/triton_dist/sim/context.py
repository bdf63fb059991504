"""Who runs in this thread: the simulated rank whose host function it is, and how that function waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ..errors import CaptureError
from ..runtime import world

if TYPE_CHECKING:
    import torch

    from ..runtime.attempts import Attempts
    from .cuda_shim.graphs import Capture
    from .heap import SymmetricHeap
    from .host import HostScheduler
    from .machine import Machine
    from .simulate import Simulation
    from .streams import SimStreams

_local = threading.local()
_process: RankContext | None = None
"""The rank that this whole process is, where a rank is a process."""


class RankContext:
    """One simulated rank as its own host thread sees it.

    rank, world_size: place in the world, as ``torch.distributed`` would say.
    node, local_rank, local_world_size: place on the pretended hosts (``simulate(num_nodes=...)``).
    machine: the GPUs of all ranks; ``stream`` is the id of this rank's current stream there.
    simulation: what all ranks of one ``simulate`` call share.
    workspaces: memory that operators keep between calls, for as long as the world lives.
    shmem_initialized: what ``utils.is_shmem_initialized`` answers.
    attempts_begun: how many attempts (``runtime.attempts``) this rank is inside of.
    capture: what a CUDA graph of a script under ``triton-dist run`` records now, if one does.
    shown_device: the device that ``triton_dist.device()`` names, where scripts see another one than the tensors are on.
    """

    def __init__(self, rank: int, world_size: int, num_nodes: int, simulation: Simulation, scheduler: HostScheduler) -> None:
        self.rank = rank
        self.world_size = world_size
        self.num_nodes = num_nodes
        self.local_world_size = world_size // num_nodes
        self.node, self.local_rank = divmod(rank, self.local_world_size)
        self.simulation = simulation
        self.machine: Machine = simulation.machine
        self.stream = 0
        self.shmem_initialized = False
        self.workspaces: dict[Hashable, Any] = {}
        self.ended = False
        self.attempts_begun = 0
        self.capture: Capture | None = None
        self.shown_device: torch.device | None = None
        self._streams: SimStreams | None = None
        self._scheduler = scheduler
        self._kept: list[tuple[Any, Any]] = []

    @property
    def device(self) -> torch.device:
        """Whose tensors a kernel takes here."""
        import torch

        return torch.device("cpu")

    @property
    def streams(self) -> SimStreams:
        """This rank's streams, events and host signals."""
        if self._streams is None:
            from .streams import SimStreams

            self._streams = SimStreams(self)
        return self._streams

    @property
    def heap(self) -> SymmetricHeap:
        """The symmetric heap that the ranks share."""
        return self.simulation.heap

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank. Raises DeadlockError when ranks don't come."""
        return self.heap.gather(self, value)

    @property
    def attempts(self) -> Attempts:
        """How this rank makes calls that may hang."""
        from .attempts import SimAttempts

        return SimAttempts(self)

    def block(self, what: str | Callable[[], str], ready: Callable[[], bool]) -> None:
        """Let other ranks and the machine run until ``ready()`` is true.

        what: what is waited for, for the deadlock report; a function is called only when that report is written.
        ready: cheap and without side effects; called from the scheduler's thread, many times.
        """
        self._scheduler.block(self, what, ready)

    def poll(self, what: str) -> None:
        """Let the machine move once: called by functions that a program asks again and again (``Stream.query``)."""
        self._scheduler.poll(self, what)

    def busy(self, stream: int | None = None) -> bool:
        """Whether work that was queued on ``stream`` (default: any stream of this rank) has not finished, or is only recorded."""
        if self.capture is not None and (stream is None or self.capture.takes(stream)):
            return True
        return self.machine.busy(self.rank, stream)

    def synchronize(self, stream: int | None = None, why: str | Callable[[], str] = "synchronize()") -> None:
        """Wait until the work queued on ``stream`` (default: on every stream of this rank) has finished.

        Raises CaptureError for a stream whose work a CUDA graph records.
        """
        if self.capture is not None and (stream is None or self.capture.takes(stream)):
            raise CaptureError(
                f"{why if isinstance(why, str) else why()} would wait for a stream that a CUDA graph captures; do it outside"
            )
        if self.machine.busy(self.rank, stream):

            def what() -> str:
                where = "all its streams" if stream is None else f"stream {stream}"
                return f"{why if isinstance(why, str) else why()} waits for {where}"

            self.block(what, lambda: not self.machine.busy(self.rank, stream))
        machine = self.machine
        if machine.races is not None:
            for queue in machine.streams_of(self.rank) if stream is None else ():
                machine.races.host_waited(self.rank, queue.number)
            if stream is not None:
                machine.races.host_waited(self.rank, stream)
        machine.host_waited(self.rank, machine.rank_clock(self.rank) if stream is None else machine.stream_clock(self.rank, stream))

    def submit(self, work: Any, *, stream: int | None = None, keep: Any = None) -> Any:
        """Queue ``work`` on ``stream`` (default: the current one); ``keep`` stays referenced until it has run."""
        if self.capture is not None:
            number = self.stream if stream is None else stream
            if self.capture.takes(number, work):
                self.capture.add(number, work, keep)
                return work
        if keep is not None:
            self.release_done()
            self._kept.append((work, keep))
        policy = self.machine.policy
        if policy is not None and policy.pauses_hosts and current() is self:
            self._scheduler.pause(self)
        return self.machine.submit(self.rank, self.stream if stream is None else stream, work)

    def release_done(self) -> None:
        """Forget what ``submit`` kept for work that has run."""
        self._kept = [(queued, kept) for queued, kept in self._kept if not queued.done]

    def release(self) -> None:
        """Forget what ``submit`` kept; called when the simulation has ended."""
        self._kept.clear()


def current() -> RankContext | None:
    """The rank whose host function runs in this thread; None outside ``simulate``, unless this process is a rank."""
    return getattr(_local, "context", None) or _process


def set_current(context: RankContext | None) -> None:
    """Bind this thread to a rank; only the host scheduler calls it."""
    _local.context = context


def set_process(context: RankContext | None) -> None:
    """Make this process a rank, or no longer; only its world calls it."""
    global _process
    _process = context


world.simulated_rank = current
