"""One process of a world of ranks on GPUs: its place, its device, its heap, and how the ranks agree on things."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ...errors import InvalidArgumentError, NotInitializedError, TritonDistError, UnreachablePeerError
from .. import context_layout
from ..address_map import CONTEXT, MAX_WORLD_SIZE
from ..agreement import agreed
from . import driver
from .heap import CudaHeap
from .peers import check_peers
from .streams import CudaStreams
from .team_gather import gather_among

DEFAULT_HEAP_SIZE = 1 << 30
"""Bytes of each rank's heap unless ``initialize(heap_size=...)`` or TRITON_DIST_HEAP_SIZE says otherwise."""

_TIMEOUT = timedelta(minutes=5)


class CudaWorld:
    """The world as this process sees it; made by all ranks together, on one host.

    Starts ``torch.distributed`` from the launcher's environment if it is not running. heap_size: bytes a rank.
    Raises the same error on every rank when one of them can't: NotInitializedError, AddressInUseError, HeapFullError,
    UnreachablePeerError, InvalidArgumentError.
    """

    def __init__(self, heap_size: int) -> None:
        if not torch.cuda.is_available():
            raise NotInitializedError(
                "initialize() needs a world of ranks, and there is no GPU here: "
                "run the function by triton_dist.simulate(fn, world_size=...), or the script where GPUs are"
            )
        driver.bindings()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        # A launcher may show each process only its own GPU.
        self.device = torch.device("cuda", self.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        torch.cuda.init()
        torch.zeros(1, device=self.device)
        if not dist.is_initialized():
            _check_launcher()
            # No device_id: NCCL starts when it is first used, so that ranks that only use this package may share a GPU.
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=_TIMEOUT)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", str(self.world_size)))
        self.num_nodes = max(1, self.world_size // self.local_world_size)
        self.node = self.rank // self.local_world_size
        self.workspaces: dict[Hashable, Any] = {}
        self.shmem_initialized = False
        self._control = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        try:
            self.together("looking at the world", self._check_place)
            check_peers(self.device.index, self.world_size, self.gather)
            self.streams = CudaStreams(self)
            self.heap = CudaHeap(self, heap_size)
            self._write_context_page()
        except TritonDistError:
            # All ranks have failed alike, and have nothing mapped; initialize() may be called again.
            dist.destroy_process_group(self._control)
            raise

    # ------------------------------------------------------------------ agreement

    def gather(self, value: Any) -> list[Any]:
        """Every rank's ``value``, by rank."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def together(self, what: str, act: Callable[[], Any]) -> None:
        """Run ``act`` on every rank; if it fails on one, raise an error of that rank's class on all."""
        agreed(self.gather, range(self.world_size), what, act)

    def gather_among(self, ranks: Sequence[int], value: Any) -> list[Any]:
        """The ``value`` of each of ``ranks``, in their order; each of them calls it, and no other rank. Raises AllocationMismatchError."""
        if tuple(ranks) == tuple(range(self.world_size)):
            return self.gather(value)
        return gather_among(ranks, self.rank, value, self._control)

    def _check_place(self) -> None:
        if self.world_size > MAX_WORLD_SIZE:
            raise InvalidArgumentError(f"{self.world_size} ranks are more than the {MAX_WORLD_SIZE} that the address map has room for")
        if self.num_nodes > 1:
            raise UnreachablePeerError(f"the ranks are on {self.num_nodes} hosts; the symmetric heap reaches the GPUs of one host")

    # ------------------------------------------------------------------ the context page

    def _write_context_page(self) -> None:
        """What kernels read at the constant address: who they are and which heaps are mapped."""
        words = torch.zeros(context_layout.TEAM_TABLE // 4, dtype=torch.int32)
        for offset, value in (
            (context_layout.RANK, self.rank),
            (context_layout.NUM_RANKS, self.world_size),
            (context_layout.LOCAL_RANK, self.local_rank),
            (context_layout.LOCAL_NUM_RANKS, self.local_world_size),
        ):
            words[offset // 4] = value
        mask = words[context_layout.PEER_MASK // 4 : context_layout.PEER_MASK // 4 + 4].view(torch.uint8)
        for peer in range(self.world_size):
            mask[peer // 8] |= 1 << (peer % 8)
        self.heap.bytes_at(CONTEXT, words.numel() * 4).copy_(words.view(torch.uint8))
        torch.cuda.synchronize(self.device)
        self.gather("context page written")

    # ------------------------------------------------------------------ what operators ask

    @property
    def stream(self) -> int:
        """The current stream, as a number."""
        return torch.cuda.current_stream(self.device).cuda_stream

    def synchronize(self, stream: torch.cuda.Stream | None = None, why: str = "synchronize()") -> None:
        """Wait until the work on ``stream`` (default: on every stream) has finished."""
        if stream is None:
            torch.cuda.synchronize(self.device)
        else:
            stream.synchronize()

    def close(self) -> None:
        """Leave the world; all ranks call it. Nothing of the heap may be used afterwards.

        ``torch.distributed`` goes on: torch can't start it again under torchrun once it was ended.
        """
        torch.cuda.synchronize(self.device)
        self.gather("closing")
        self.workspaces.clear()
        self.together("leaving", self.heap.close)
        dist.destroy_process_group(self._control)


def _check_launcher() -> None:
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise NotInitializedError(
            f"initialize() finds no {', '.join(missing)} in the environment: start the script by torchrun, "
            "or call torch.distributed.init_process_group first"
        )
