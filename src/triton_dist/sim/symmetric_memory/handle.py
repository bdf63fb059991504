"""What ``rendezvous`` returns: one rank's view of the memory and the signal pads of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ...errors import SymmetricMemoryError, UseAfterFreeError
from . import words
from .allocations import PAD_WORD, Members, Piece, Place
from .arguments import dtype_of, sizes_of, whole_number
from .signals import PadSignals, Swap

if TYPE_CHECKING:
    from ..context import RankContext


class SymmetricMemory:
    """Stands for torch's ``_SymmetricMemory``. Ranks are places in the group. It keeps the memory of its own rank.

    Signals and barriers are queued on the current stream, as torch's kernels are. ``timeout_ms`` is taken and has no effect: a wait that
    can't end is reported as a deadlock.
    """

    def __init__(self, context: RankContext, piece: Piece, members: Members, tensor: torch.Tensor) -> None:
        self._context = context
        self._piece = piece
        self._members = members
        self._tensor = tensor

    def __repr__(self) -> str:
        return f"SymmetricMemory({self._members.name!r}, rank {self.rank} of ranks {list(self._members.team.ranks)})"

    @property
    def rank(self) -> int:
        return self._members.team.index

    @property
    def world_size(self) -> int:
        return self._members.team.size

    @property
    def buffer_ptrs(self) -> list[int]:
        """The address of each rank's memory; 0 where there is no direct pointer."""
        return self._members.buffer_table.words.tolist()

    @property
    def buffer_ptrs_dev(self) -> int:
        """The address of a table of ``buffer_ptrs`` that kernels read."""
        return self._members.buffer_table.address

    @property
    def signal_pad_ptrs(self) -> list[int]:
        return self._members.pad_table.words.tolist()

    @property
    def signal_pad_ptrs_dev(self) -> int:
        return self._members.pad_table.address

    @property
    def multicast_ptr(self) -> int:
        """The address of all ranks' memory at once, for ``multimem`` instructions; 0 where there is none."""
        return self._members.multicast

    @property
    def buffer_size(self) -> int:
        """Bytes of each rank's memory."""
        return self._members.nbytes

    @property
    def signal_pad_size(self) -> int:
        """Bytes of each rank's signal pad."""
        return self._piece.pad.nbytes

    @property
    def offset(self) -> int:
        """Bytes from the start of the memory to the tensor that was brought."""
        return 0

    @property
    def device(self) -> torch.device:
        return self._context.shown_device or torch.device("cpu")

    def boxed(self) -> SymmetricMemory:
        """As operators take it."""
        return self

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """A tensor over the memory of a rank of the group. storage_offset: in elements. Raises SymmetricMemoryError beyond its end."""
        return self._over(self._members.blocks, rank, sizes, dtype, storage_offset, "get_buffer")

    def get_remote_tensor(self, peer: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """As ``get_buffer``, for the tensor that ``peer`` brought."""
        return self._over(self._members.blocks, peer, sizes, dtype, 0, "get_remote_tensor")

    def get_signal_pad(
        self, rank: int, sizes: Sequence[int] = (), dtype: torch.dtype | None = None, storage_offset: int = 0
    ) -> torch.Tensor:
        """A tensor over the signal pad of a rank; all of it where no sizes are given. dtype: uint32 by default."""
        dtype = torch.uint32 if dtype is None else dtype_of(dtype, "get_signal_pad")
        start = whole_number(0 if storage_offset is None else storage_offset, "get_signal_pad", "storage_offset")
        sizes = sizes_of(sizes, "get_signal_pad") or (max(self.signal_pad_size // dtype.itemsize - start, 0),)
        return self._over(self._members.pads, rank, sizes, dtype, storage_offset, "get_signal_pad")

    def _over(
        self, blocks: list[Place], rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int | None, what: str
    ) -> torch.Tensor:
        place, sizes, dtype = self._checked(rank, what), sizes_of(sizes, what), dtype_of(dtype, what)
        block, count, start = (
            blocks[place],
            math.prod(sizes),
            whole_number(0 if storage_offset is None else storage_offset, what, "storage_offset"),
        )
        if block.freed:
            raise UseAfterFreeError(f"{what}: {block.name!r} was freed before")
        if start < 0 or (start + count) * dtype.itemsize > block.nbytes:
            raise SymmetricMemoryError(
                f"{what}: {count} elements of {dtype} from element {start} on end at byte {(start + count) * dtype.itemsize}, but "
                f"{block.name!r} has {block.nbytes} bytes"
            )
        whole = torch.frombuffer(block.buffer(self._members.team.ranks[place]), dtype=torch.uint8)
        return whole[: block.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)[start : start + count].view(tuple(sizes))

    def _checked(self, rank: int, what: str) -> int:
        rank = whole_number(rank, what, "rank")
        if not 0 <= rank < self.world_size:
            raise SymmetricMemoryError(f"{what}: rank {rank} is not in the group, whose ranks go from 0 to {self.world_size - 1}")
        return rank

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Make the current stream wait for the current streams of the other ranks to come to the same barrier."""
        self._slot(self.rank, channel, "barrier")
        peers = [peer for peer in range(self.world_size) if peer != self.rank]
        threads = [(self._put(peer, channel, "barrier"), self._wait(peer, channel, "barrier")) for peer in peers]
        self._queue(f"barrier(channel={channel}) of {self._members.name!r}", threads)

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Signal a rank in stream order, once it has taken the signal before."""
        swap = self._put(self._checked(dst_rank, "put_signal"), channel, "put_signal")
        self._queue(f"put_signal(dst_rank={dst_rank}, channel={channel}) of {self._members.name!r}", [(swap,)])

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Make the current stream wait for a signal of a rank, and take it."""
        swap = self._wait(self._checked(src_rank, "wait_signal"), channel, "wait_signal")
        self._queue(f"wait_signal(src_rank={src_rank}, channel={channel}) of {self._members.name!r}", [(swap,)])

    def stream_write_value32(self, tensor: torch.Tensor, offset: int, val: int) -> torch.Tensor:
        """Set a word of any tensor as a signal, in stream order."""
        return words.stream_write_value32(self._context, tensor, offset, val)

    def memset32(self, tensor: torch.Tensor, offset: int, val: int, count: int = 1) -> torch.Tensor:
        """Set words of any tensor, in stream order."""
        return words.memset32(self._context, tensor, offset, val, count)

    def _put(self, peer: int, channel: int, what: str) -> Swap:
        return Swap(self._members.pad_address(peer) + PAD_WORD * self._slot(self.rank, channel, what), 0, 1)

    def _wait(self, peer: int, channel: int, what: str) -> Swap:
        return Swap(self._members.pad_address(self.rank) + PAD_WORD * self._slot(peer, channel, what), 1, 0)

    def _slot(self, sender: int, channel: int, what: str) -> int:
        """The word of a pad by which a rank signals on a channel."""
        channel = whole_number(channel, what, "channel")
        channels = self.signal_pad_size // (PAD_WORD * self.world_size)
        if not 0 <= channel < channels:
            raise SymmetricMemoryError(
                f"{what}: channel {channel} of a signal pad of {self.signal_pad_size} bytes, which has {channels} channels for "
                f"{self.world_size} ranks; use a smaller one, or set_signal_pad_size before the memory is allocated"
            )
        return self.world_size * channel + sender

    def _queue(self, label: str, threads: Sequence[Sequence[Swap]]) -> None:
        self._context.submit(PadSignals(label, threads), keep=self)
