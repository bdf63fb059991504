"""One-sided operators of a stream: words, puts, gets and signals."""

from __future__ import annotations

import torch

from ....errors import NotSymmetricError, SymmetricMemoryError
from ....runtime.address_map import STRIDE
from ....runtime.symmetric import address_of
from ...context import RankContext
from ...torch_mode import register
from ...work import Copy, WaitValue, WriteValue
from .. import words
from .common import Operator


def _on_peer(rank: RankContext, tensor: torch.Tensor, peer: int, what: str) -> int:
    """The address of the same bytes on world rank ``peer``."""
    piece = rank.simulation.symmetric_memory.require(tensor, what)
    if not tensor.is_contiguous():
        raise SymmetricMemoryError(f"{what}: takes contiguous tensors, not one of shape {list(tensor.shape)} and stride {tensor.stride()}")
    if not 0 <= peer < rank.world_size:
        raise SymmetricMemoryError(f"{what}: there is no rank {peer} in a world of {rank.world_size}")
    if piece.backend != "NVSHMEM":
        raise NotSymmetricError(
            f"{what}: {piece.block.name!r} was allocated by the backend {piece.backend!r}; "
            'call set_backend("NVSHMEM") before it is allocated'
        )
    register(rank, tensor)
    return address_of(tensor) + (peer - rank.rank) * STRIDE


def _put(rank: RankContext, tensor: torch.Tensor, peer: int) -> None:
    target = _on_peer(rank, tensor, peer, "nvshmem_put")
    rank.submit(Copy(target, address_of(tensor), tensor.numel() * tensor.element_size(), "nvshmem_put"), keep=tensor)


def _get(rank: RankContext, tensor: torch.Tensor, peer: int) -> None:
    source = _on_peer(rank, tensor, peer, "nvshmem_get")
    rank.submit(Copy(address_of(tensor), source, tensor.numel() * tensor.element_size(), "nvshmem_get"), keep=tensor)


def _put_with_signal(rank: RankContext, tensor: torch.Tensor, sigpad: torch.Tensor, signal: int, peer: int) -> None:
    """The peer's word ``sigpad`` is ``signal`` once the data is there."""
    name = "nvshmem_put_with_signal"
    target, word = _on_peer(rank, tensor, peer, name), _on_peer(rank, _word(sigpad, name), peer, name)
    rank.submit(Copy(target, address_of(tensor), tensor.numel() * tensor.element_size(), name), keep=tensor)
    rank.submit(WriteValue(word, signal, 64), keep=sigpad)


def _wait_for_signal(rank: RankContext, sigpad: torch.Tensor, signal: int, peer: int) -> None:
    register(rank, _word(sigpad, "nvshmem_wait_for_signal"))
    rank.submit(WaitValue(address_of(sigpad), signal, "eq", 64), keep=sigpad)


def _word(sigpad: torch.Tensor, what: str) -> torch.Tensor:
    if sigpad.numel() * sigpad.element_size() < 8:
        raise SymmetricMemoryError(f"{what}: sigpad has {sigpad.numel()} elements of {sigpad.dtype}; it must hold a word of 64 bits")
    return sigpad


OPERATORS: dict[str, Operator] = {
    "memset32_": lambda rank, input, offset, val, count: words.memset32(rank, input, offset, val, count),
    "stream_write_value32_": lambda rank, input, offset, val: words.stream_write_value32(rank, input, offset, val),
    "nvshmem_put": _put,
    "nvshmem_get": _get,
    "nvshmem_put_with_signal": _put_with_signal,
    "nvshmem_wait_for_signal": _wait_for_signal,
}
