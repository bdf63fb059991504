"""What kernels written for torch's symmetric memory take of a handle, of a symmetric tensor of this package."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..errors import InvalidArgumentError
from .streams import device
from .symmetric import address_of, assigned_name, symm_peer, symm_zeros
from .team import Team, find_team

PAD_BYTES = 9216
"""Bytes of a signal pad where nothing else is asked for; torch's default."""


class SymmHandle:
    """The memory of all ranks of a group as tables of pointers, with a signal pad. Ranks are places in the group.

    The names are those of torch's ``_SymmetricMemory``. Tensors live as long as the handle.
    """

    def __init__(self, tensor: torch.Tensor, team: Team, pad: torch.Tensor) -> None:
        self._team = team
        self._tensor = tensor
        self._pad = pad
        self._peers = [tensor if peer == team.ranks[team.index] else symm_peer(tensor, peer) for peer in team.ranks]
        self._pads = [pad if peer == team.ranks[team.index] else symm_peer(pad, peer) for peer in team.ranks]
        self._tables = [torch.tensor(pointers, dtype=torch.int64, device=device()) for pointers in (self.buffer_ptrs, self.signal_pad_ptrs)]

    @property
    def rank(self) -> int:
        return self._team.index

    @property
    def world_size(self) -> int:
        return self._team.size

    @property
    def buffer_ptrs(self) -> list[int]:
        """The address of the tensor's first element on each rank."""
        return [address_of(peer) for peer in self._peers]

    @property
    def buffer_ptrs_dev(self) -> int:
        """The address of a table of ``buffer_ptrs`` in this rank's memory, for kernels."""
        return self._tables[0].data_ptr()

    @property
    def signal_pad_ptrs(self) -> list[int]:
        return [address_of(pad) for pad in self._pads]

    @property
    def signal_pad_ptrs_dev(self) -> int:
        return self._tables[1].data_ptr()

    @property
    def buffer_size(self) -> int:
        """Bytes from the tensor's first element on that each rank has."""
        return self._tensor.numel() * self._tensor.element_size()

    @property
    def signal_pad_size(self) -> int:
        return self._pad.numel() * self._pad.element_size()

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """A tensor over a rank's memory. storage_offset: in elements. Raises InvalidArgumentError beyond its end."""
        return self._over(self._peers, rank, sizes, dtype, storage_offset, "get_buffer")

    def get_signal_pad(
        self, rank: int, sizes: Sequence[int] = (), dtype: torch.dtype = torch.uint32, storage_offset: int = 0
    ) -> torch.Tensor:
        """A tensor over a rank's signal pad; all of it where no sizes are given."""
        sizes = tuple(sizes) or (self.signal_pad_size // dtype.itemsize - storage_offset,)
        return self._over(self._pads, rank, sizes, dtype, storage_offset, "get_signal_pad")

    def _over(
        self, tensors: list[torch.Tensor], rank: int, sizes: Sequence[int], dtype: torch.dtype, start: int, what: str
    ) -> torch.Tensor:
        if not 0 <= rank < self.world_size:
            raise InvalidArgumentError(f"{what}: rank {rank} is not in the group, whose ranks go from 0 to {self.world_size - 1}")
        whole = tensors[rank].view(-1).view(torch.uint8)
        end = (start + math.prod(sizes)) * dtype.itemsize
        if start < 0 or end > whole.numel():
            raise InvalidArgumentError(f"{what}: {list(sizes)} elements of {dtype} from {start} on end at byte {end} of {whole.numel()}")
        return whole[start * dtype.itemsize : end].view(dtype).view(tuple(sizes))


def symm_handle(tensor: torch.Tensor, *, group: object = None, signal_pad_size: int = PAD_BYTES) -> SymmHandle:
    """Tables of pointers and a signal pad for a contiguous symmetric tensor, as kernels for torch's symmetric memory take them.

    Collective over ``group`` (as for ``symm_empty``), whose ranks have a direct pointer to each other. signal_pad_size: bytes, zero at
    first. Torch's own operators (``torch.ops.symm_mem``) take memory of torch's only. Raises InvalidArgumentError for a tensor that is not
    contiguous, NotSymmetricError, UnreachablePeerError.
    """
    team = find_team(group, "symm_handle")
    if not tensor.is_contiguous() or signal_pad_size < 4 or signal_pad_size % 4:
        raise InvalidArgumentError(
            f"symm_handle: a tensor of shape {list(tensor.shape)} and stride {tensor.stride()} must be contiguous, and "
            f"signal_pad_size={signal_pad_size} a number of 32-bit words in bytes"
        )
    for peer in team.ranks:
        symm_peer(tensor, peer)
    pad = symm_zeros(signal_pad_size // 4, torch.int32, name=f"signal_pad of {assigned_name() or 'a tensor'}", group=group)
    return SymmHandle(tensor, team, pad)
