"""One process of a world of ranks on GPUs: its place, its device, its heap, and how the ranks agree on things."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from triton import knobs

from ...errors import (
    InvalidArgumentError,
    NotInitializedError,
    PeerLostError,
    TritonDistError,
    UnreachablePeerError,
    WaitTimeoutError,
)
from .. import context_layout, peers
from ..address_map import CONTEXT, MAX_WORLD_SIZE
from ..agreement import agreed
from ..context_words import first_words
from ..control_group import ControlGroup
from ..inductor_imports import import_names_in_inductor
from ..launcher import TIMEOUT, check_launcher
from ..messages import tell
from ..wait_board import BlockName, WaitBoard, remove_stale
from ..wait_layout import BOARD_BYTES
from . import driver
from .attempts import CudaAttempts
from .heap import CudaHeap
from .mapping import data_base
from .nvshmem import NvshmemBacking
from .peers import check_peers
from .streams import CudaStreams
from .undo import UndoStack, run_all
from .watchdog import Watchdog

_STREAMS_OF_TORCH = 32
"""Streams of one priority that torch has; it gives them out in turn."""


class CudaWorld:
    """The world as this process sees it; made by all ranks together, on one host.

    Starts ``torch.distributed`` from the launcher's environment if it is not running. heap_size: bytes a rank.
    wait_timeout: seconds that a wait in a kernel may take, None for ever. shmem: "peers", or "nvshmem" for NVSHMEM's own device functions.
    Raises the same error on every rank when one of them can't: NotInitializedError, AddressInUseError, HeapFullError,
    UnreachablePeerError, InvalidArgumentError; with NVSHMEM what ``nvshmem.NvshmemBacking`` does.
    """

    def __init__(self, heap_size: int, wait_timeout: float | None = None, shmem: str = "peers") -> None:
        if not torch.cuda.is_available():
            raise NotInitializedError(
                "initialize() needs a world of ranks, and there is no GPU here: "
                "run the function by triton_dist.simulate(fn, world_size=...), or start the script by torchrun, for a CPU process a rank"
            )
        driver.bindings()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        # A launcher may show each process only its own GPU.
        self.device = torch.device("cuda", self.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        torch.cuda.init()
        torch.zeros(1, device=self.device)
        # A stream that is made, or used for the first time, while the default stream waits for a word may wait for it, too.
        for _ in range(_STREAMS_OF_TORCH):
            torch.cuda.Stream(self.device).record_event()
        if not dist.is_initialized():
            check_launcher()
            # No device_id: NCCL starts when it is first used, so that ranks that only use this package may share a GPU.
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=TIMEOUT)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.world_size)))
        self.num_nodes = max(1, self.world_size // self.local_world_size)
        self.node = self.rank // self.local_world_size
        self.workspaces: dict[Hashable, Any] = {}
        self.shmem_initialized = False
        self._board: WaitBoard | None = None
        self._board_pointer = 0
        self._watchdog: Watchdog | None = None
        self._nvshmem: NvshmemBacking | None = None
        self._control = ControlGroup()
        self._begin()
        try:
            self._join(heap_size, wait_timeout, shmem)
        except BaseException:
            # All ranks have failed alike, or one of them is gone. Nothing stays mapped; initialize() may be called again.
            try:
                self._joined.run()
            except Exception as error:  # noqa: BLE001 - why the world could not be made is what the caller has to know
                tell(f"what a world that could not be made had done is not undone wholly: {type(error).__name__}: {error}")
            raise

    def _begin(self) -> None:
        """Begin to keep book of what ``close`` has to undo."""
        self._meets = False
        self._joined = UndoStack()
        self._joined.push(self._control.end)
        self._joined.push(lambda: self.gather("closed") if self._meets else None)

    def _join(self, heap_size: int, wait_timeout: float | None, shmem: str) -> None:
        """Do all that makes the ranks a world. Whatever may need it has its undoing noted before it is done."""
        self.together("looking at the world", self._check_place)
        self._gpus = check_peers(self.device.index, self.world_size, self.gather)
        self.streams = CudaStreams(self)
        self._joined.push(self.streams.close)
        self._joined.push(self._drop_board)
        self.together("making the wait board", lambda: self._make_board(wait_timeout))
        self._make_heap(heap_size)
        self._write_context_page()
        if shmem == "nvshmem":
            self._start_nvshmem()
        self._watch(wait_timeout)
        import_names_in_inductor()

    # ------------------------------------------------------------------ agreement

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank. Raises PeerLostError, WaitTimeoutError when ranks don't come."""
        if self._watchdog is None:
            return self._unwatched(lambda: self._control.gather(value))
        return self._watchdog.run_bounded("a call that all ranks make together", lambda: self._control.gather(value))

    def together(self, what: str, act: Callable[[], Any]) -> None:
        """Run ``act`` on every rank; if it fails on one, raise an error of that rank's class on all."""
        agreed(self.gather, range(self.world_size), what, act)

    def gather_among(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; each of them calls it, and no other rank. Raises AllocationMismatchError."""
        if tuple(ranks) == tuple(range(self.world_size)):
            return self.gather(value)
        if self._watchdog is None:
            return self._unwatched(lambda: self._control.gather_among(ranks, value))
        what = "a call that the ranks of a team make together"
        return self._watchdog.run_bounded(what, lambda: self._control.gather_among(ranks, value))

    def _unwatched(self, act: Callable[[], Any]) -> Any:
        """The result of ``act`` while nobody watches the other ranks: as the world begins, and behind its end."""
        try:
            return act()
        except TritonDistError:  # what the ranks told each other
            raise
        except RuntimeError as error:  # gloo's
            raise PeerLostError(f"rank {self.rank}: the other ranks can't be reached, one of them may have ended: {error}") from error

    def _check_place(self) -> None:
        if self.world_size > MAX_WORLD_SIZE:
            raise InvalidArgumentError(f"{self.world_size} ranks are more than the {MAX_WORLD_SIZE} that the address map has room for")
        if self.num_nodes > 1:
            raise UnreachablePeerError(f"the ranks are on {self.num_nodes} hosts; the symmetric heap reaches the GPUs of one host")

    @property
    def has_shared_gpus(self) -> bool:
        """Whether two ranks are on one GPU, where NCCL does not run."""
        return len(set(self._gpus)) < self.world_size

    @property
    def attempts(self) -> CudaAttempts:
        """How this rank makes calls that may hang."""
        if self._watchdog is None:
            raise NotInitializedError("this world has ended; call triton_dist.initialize() again")
        return CudaAttempts(self, self._watchdog)

    # ------------------------------------------------------------------ the context page and the wait board

    def _make_board(self, wait_timeout: float | None) -> None:
        remove_stale()
        self._board = WaitBoard.create(self.rank, self.world_size, knobs.cache.dir)
        try:
            self._board_pointer = driver.register_host_memory(self._board.address, BOARD_BYTES)
        except driver.CudaDriverError as error:
            if wait_timeout is not None:
                raise
            warnings.warn(f"kernels can't reach the wait board, so triton-dist attach won't see their waits: {error}", stacklevel=2)

    def _watch(self, wait_timeout: float | None) -> None:
        """Get to know the other ranks' processes, and bound the waits if that is asked for."""
        if self._board is None:
            raise NotInitializedError("this world has no wait board; call initialize() again")
        watched = peers.meet(self.rank, self.gather(peers.introduction(self._board)))
        self._watchdog = Watchdog(self._board, watched, self._board.blocks)
        self._joined.push(self._stop_watching)
        if wait_timeout is not None:
            self._watchdog.set_bound(wait_timeout)

    def _stop_watching(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None

    def _drop_board(self) -> None:
        """Undo ``_make_board``, if it came to that."""
        board, pointer = self._board, self._board_pointer
        self._board, self._board_pointer = None, 0
        if board is None:
            return
        try:
            if pointer:
                driver.unregister_host_memory(board.address)
        finally:
            board.close()

    def _make_heap(self, size: int) -> None:
        self.heap = CudaHeap(self, size)
        self._joined.push(lambda: self._leave("leaving", self.heap.close))
        self._joined.push(self.workspaces.clear)

    def publish_blocks(self, blocks: Iterable[Any]) -> None:
        """Put the heap's blocks (with ``name``, ``offset``, ``nbytes``) on the wait board, for words to be named by."""
        if self._board is not None:
            self._board.write_blocks(BlockName(block.name, block.offset, block.nbytes) for block in blocks)

    def _write_context_page(self) -> None:
        """What kernels read at the constant address: who they are and which heaps are mapped."""
        words = first_words(
            self.rank, self.world_size, self.local_rank, self.local_world_size, self._board_pointer, self.heap.words_address
        )
        self.heap.bytes_at(CONTEXT, words.numel()).copy_(words)
        torch.cuda.synchronize(self.device)
        self.gather("context page written")

    # ------------------------------------------------------------------ what operators ask

    def _start_nvshmem(self) -> None:
        """Start NVSHMEM and write where it knows the heap."""
        address, nbytes = data_base(self.rank), self.heap.mapped_bytes
        self._nvshmem = NvshmemBacking(self.rank, self.world_size, self.device, self.together, self.gather, address, nbytes)
        self._joined.push(self._leave_nvshmem)
        word = torch.tensor([self._nvshmem.distance], dtype=torch.int64, device="cpu").view(torch.uint8)
        self.heap.bytes_at(context_layout.word_address(context_layout.NVSHMEM_DELTA), 8).copy_(word)
        torch.cuda.synchronize(self.device)
        self.gather("NVSHMEM started")

    def _leave_nvshmem(self) -> None:
        backing, self._nvshmem = self._nvshmem, None
        if backing is not None:
            self._leave("leaving NVSHMEM", backing.close if self._meets else backing.abandon)

    @property
    def uses_nvshmem(self) -> bool:
        """Whether ``libshmem_device`` is NVSHMEM's in this world."""
        return self._nvshmem is not None

    @property
    def stream(self) -> int:
        """The current stream, as a number."""
        # torch.cuda.current_stream makes an object of it first, which costs the host ten times as much.
        return torch._C._cuda_getCurrentRawStream(self.device.index)

    def synchronize(self, stream: torch.cuda.Stream | None = None, why: str = "synchronize()") -> None:
        """Wait until the work on ``stream`` (default: on every stream) has finished. Raises WaitTimeoutError, PeerLostError."""
        if stream is None:
            torch.cuda.synchronize(self.device)
        else:
            stream.synchronize()
        self.raise_failure()

    def wait_for_device(self) -> None:
        """Wait until the work on every stream has finished, whatever came of it."""
        torch.cuda.synchronize(self.device)

    @property
    def bounded(self) -> bool:
        """Whether waits have a bound now; those of streams are kernels then."""
        return self._watchdog is not None and self._watchdog.bounded

    def set_wait_timeout(self, seconds: float) -> None:
        """Bound this rank's waits from now on, those of running kernels too, but not those of streams that were queued before."""
        if self._watchdog is not None:
            self._watchdog.set_bound(seconds)
            self.load_waits()

    def load_waits(self) -> None:
        """Load what the streams of a bounded world wait by."""
        from .stream_waits import load_waits

        if self.bounded:
            load_waits(self.device)

    def raise_failure(self) -> None:
        """Raise WaitTimeoutError or PeerLostError if this world has failed; cheap, for every call to make."""
        if self._watchdog is not None:
            self._watchdog.raise_failure()

    def check(self) -> None:
        """``raise_failure``, after a look whether the other ranks' processes live."""
        if self._watchdog is not None:
            self._watchdog.check()

    def close(self) -> TritonDistError | None:
        """Leave the world; all ranks call it. Nothing of the heap may be used afterwards.

        ``torch.distributed`` goes on: torch can't start it again under torchrun once it was ended. A world that has failed, or whose
        program has ended ``torch.distributed``, is left without meeting the others, who may not come; memory that they still have mapped
        stays theirs. Whatever fails, all else is undone. Returns the failure that no call has raised yet.
        """
        watchdog = self._watchdog
        told = watchdog is not None and watchdog.told
        run_all([self._meet_to_close, self._joined.run])
        return None if told or watchdog is None else watchdog.failure

    def _meet_to_close(self) -> None:
        """Find out whether all ranks have come here, with nothing left to do."""
        self.wait_for_device()
        try:
            self.raise_failure()
            self.gather("closing")
            self._meets = True
        except (WaitTimeoutError, PeerLostError):
            return
        except Exception as error:  # noqa: BLE001 - torch's, whose group is gone
            tell(
                f"finalize() leaves the world without meeting the other ranks ({type(error).__name__}: {error}); call it before "
                "torch.distributed.destroy_process_group()"
            )

    def _leave(self, what: str, act: Callable[[], Any]) -> None:
        """Undo one step: by all ranks together if they have met to leave the world."""
        if self._meets:
            self.together(what, act)
        else:
            act()
