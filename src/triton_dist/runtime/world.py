"""Which rank this is, among how many: neutral names that mean the same on every kind of machine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from ..errors import InvalidArgumentError, NotInitializedError
from .address_map import MAX_HEAP_SIZE
from .launcher import launched
from .wait_timeout import wait_timeout_or_default

if TYPE_CHECKING:
    from ..sim.processes.world import CpuWorld
    from .cuda.world import CudaWorld


DEFAULT_HEAP_SIZE = 1 << 30
"""Bytes of each rank's heap unless ``initialize(heap_size=...)`` or TRITON_DIST_HEAP_SIZE says otherwise."""


class World(Protocol):
    """What the runtime and the operators ask of a world, on every kind of machine, as one rank sees it.

    device: whose tensors this rank's kernels take. heap, streams: the symmetric heap and the streams of that kind of machine.
    workspaces: memory that operators keep between calls, for as long as the world lives. stream: the current stream, as a key.
    attempts: how a call that may hang is made (``runtime.attempts``).
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node: int
    num_nodes: int
    workspaces: dict[Hashable, Any]
    shmem_initialized: bool

    @property
    def device(self) -> torch.device: ...

    @property
    def heap(self) -> Any: ...

    @property
    def streams(self) -> Any: ...

    @property
    def stream(self) -> Hashable: ...

    @property
    def attempts(self) -> Any: ...

    def synchronize(self, stream: Any = None, why: Any = "synchronize()") -> None: ...

    def gather(self, value: Any) -> list[Any]: ...


_process_world: CudaWorld | CpuWorld | None = None
"""The world that ``initialize`` made in this process."""


def _no_rank() -> World | None:
    return None


simulated_rank: Callable[[], World | None] = _no_rank
"""The simulated rank here, if there is one: set by the simulator once it is imported, as an import at each call takes the host too long."""


def require_world(what: str) -> World:
    """The world here. Raises NotInitializedError, naming ``what`` was called, if there is none.

    Raises WaitTimeoutError or PeerLostError if the world has failed, so that every function of this package does.
    """
    world = current_world()
    if world is None:
        raise NotInitializedError(
            f"{what} needs a world of ranks: call it in a function that triton_dist.simulate(fn, world_size=...) runs, "
            "or call triton_dist.initialize() first in a script that torchrun starts"
        )
    if _process_world is not None and world is _process_world:
        _process_world.raise_failure()
    return world


def current_world() -> World | None:
    """The simulated rank whose host function runs in this thread, else this process's world, or None."""
    return simulated_rank() or _process_world


def ranks_share_clock() -> bool:
    """Whether what kernels of all ranks record is by one clock: the simulator's, that of CPU processes' host, or the only rank's."""
    here = current_world()
    return here is None or here.world_size == 1 or hasattr(here, "machine")


def rank() -> int:
    """This process's rank in the world."""
    return require_world("rank()").rank


def world_size() -> int:
    """Number of ranks in the world."""
    return require_world("world_size()").world_size


def local_rank() -> int:
    """This process's rank among those of its node."""
    return require_world("local_rank()").local_rank


def local_world_size() -> int:
    """Number of ranks on each node."""
    return require_world("local_world_size()").local_world_size


def node() -> int:
    """Index of the node that this rank is on."""
    return require_world("node()").node


def num_nodes() -> int:
    """Number of nodes that the world is spread over."""
    return require_world("num_nodes()").num_nodes


def is_initialized() -> bool:
    """Whether there is a world here."""
    return current_world() is not None


def initialize(heap_size: int | None = None, wait_timeout: float | None = None, shmem: str | None = None) -> None:
    """Join the world: every rank calls it, before any symmetric allocation.

    In a script that torchrun starts it starts ``torch.distributed`` if that is not running, maps the symmetric heaps of all ranks,
    and tells kernels who they are. With no GPU the ranks are CPU processes (``on_cpu_processes``), each of which simulates its own GPU.
    In a function that ``simulate`` runs all that is done.

    heap_size: bytes of each rank's symmetric heap, the same on all ranks; default TRITON_DIST_HEAP_SIZE, or 1 GiB.
    wait_timeout: seconds after which a wait in a kernel gives up, and this rank's next call raises WaitTimeoutError; default
    TRITON_DIST_WAIT_TIMEOUT, or never. The simulator finds deadlocks without it, on CPU processes too. In a world that is joined
    already, this is all that ``initialize`` changes, for this rank and also for kernels that run.
    shmem: what ``libshmem_device`` is made of on GPUs: "peers", direct pointers, or "nvshmem", NVSHMEM's own device functions, of the
    package nvidia-nvshmem; default TRITON_DIST_SHMEM, or "peers". The simulator and CPU processes are the same with both.
    Raises NotInitializedError where there is no launcher; and, the same on every rank, AddressInUseError, HeapFullError,
    UnreachablePeerError, MissingCapabilityError and InvalidArgumentError. Nothing stays mapped then, and it may be called again.
    """
    global _process_world
    joined: object = current_world()
    bound = wait_timeout_or_default(wait_timeout, ignore_environment=joined is not None)
    if joined is not None:
        if bound is not None and _process_world is not None and _process_world is joined:
            _process_world.set_wait_timeout(bound)
        return
    size = heap_size_or_default(heap_size, DEFAULT_HEAP_SIZE)
    backing = shmem_or_default(shmem)
    if on_cpu_processes():
        _say_why_no_gpu()
        from ..sim.processes.world import CpuWorld

        _process_world = CpuWorld(size, bound)
    else:
        from .cuda.world import CudaWorld

        _process_world = world = CudaWorld(size, bound, backing)
        world.load_waits()


def on_cpu_processes() -> bool:
    """Whether ranks are CPU processes here: a launcher has started this one, and there is no GPU, or TRITON_DIST_SIMULATE=1 is set."""
    if os.environ.get("TRITON_DIST_SIMULATE", "") not in ("", "0"):
        return True
    return not torch.cuda.is_available() and (launched() or dist.is_available() and dist.is_initialized())


def _say_why_no_gpu() -> None:
    """A torch for CUDA that finds no GPU, though none was hidden, is likely a mistake: the ranks still run, but slowly."""
    asked = os.environ.get("TRITON_DIST_SIMULATE", "") or os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if torch.version.cuda is not None and not asked and os.environ.get("RANK", "0") == "0":
        warnings.warn("torch finds no GPU here, so the ranks are CPU processes; CUDA_VISIBLE_DEVICES= says that it is meant", stacklevel=3)


def finalize() -> None:
    """Leave the world: waits until this rank's device work has finished.

    Under torchrun every rank calls it, and the heap is gone afterwards.
    A world in which a wait timed out or a rank was lost is left as well; raises that error if no call has raised it before. Call it before
    ``torch.distributed.destroy_process_group``, without which the ranks can't wait for each other as they leave. Whatever it raises, the
    world is left and ``initialize`` may be called again.
    """
    global _process_world
    here: object = current_world()
    closing = _process_world
    if closing is None or closing is not here:
        require_world("finalize()").synchronize(why="finalize()")
        return
    _process_world = None
    failure = closing.close()
    if failure is not None:
        raise failure


def check() -> None:
    """Raise what went wrong on this rank without waiting, or return at once if all is well.

    WaitTimeoutError, PeerLostError; on CPU processes DeadlockError and what a kernel did wrong, too.
    Under torchrun, where kernels run on while the host does other things. In ``simulate`` what went wrong is raised by what waits for it.
    """
    world = require_world("check()")
    if _process_world is not None and world is _process_world:
        _process_world.check()


def shmem_or_default(shmem: str | None) -> str:
    """The backing of ``libshmem_device``: the argument, else TRITON_DIST_SHMEM, else "peers". Raises InvalidArgumentError."""
    source = "shmem"
    if shmem is None:
        source, shmem = "TRITON_DIST_SHMEM", os.environ.get("TRITON_DIST_SHMEM", "") or "peers"
    if shmem not in ("peers", "nvshmem"):
        raise InvalidArgumentError(f'{source}={shmem!r} is not known; use "peers" or "nvshmem"')
    return shmem


def heap_size_or_default(heap_size: int | None, default: int) -> int:
    """Bytes of a heap: the argument, else TRITON_DIST_HEAP_SIZE, else ``default``. Raises InvalidArgumentError."""
    source = "heap_size"
    if heap_size is None:
        text = os.environ.get("TRITON_DIST_HEAP_SIZE", "")
        if not text:
            return default
        source = "TRITON_DIST_HEAP_SIZE"
        try:
            heap_size = int(text)
        except ValueError:
            raise InvalidArgumentError(f"{source}={text!r} is not a number of bytes") from None
    if not isinstance(heap_size, int) or isinstance(heap_size, bool) or heap_size < 1:
        raise InvalidArgumentError(f"{source}={heap_size!r} must be a positive number of bytes")
    if heap_size > MAX_HEAP_SIZE:
        raise InvalidArgumentError(
            f"{source}={heap_size} does not fit into a rank's slot of the address map, which takes up to {MAX_HEAP_SIZE} bytes"
        )
    return heap_size
