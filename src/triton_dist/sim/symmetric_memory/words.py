"""Words of 32 bits that the host sets in stream order."""

from __future__ import annotations

import torch

from ...errors import SymmetricMemoryError
from ..context import RankContext
from ..torch_mode import register
from ..work import WriteValue
from .arguments import whole_number


def memset32(rank: RankContext, tensor: torch.Tensor, offset: int, val: int, count: int = 1) -> torch.Tensor:
    """Set ``count`` words of a tensor from word ``offset`` on. Raises SymmetricMemoryError."""
    words = _words_of(tensor, offset, count, "memset32")
    words.view(torch.int32).fill_(_signed(val, "memset32"))
    return tensor


def stream_write_value32(rank: RankContext, tensor: torch.Tensor, offset: int, val: int) -> torch.Tensor:
    """Set one word as a signal: work queued before is visible to whoever sees it. Raises SymmetricMemoryError."""
    word = _words_of(tensor, offset, 1, "stream_write_value32")
    value = _signed(val, "stream_write_value32")
    register(rank, word)
    rank.submit(WriteValue(word.data_ptr(), value, 32), keep=word)
    return tensor


def _words_of(tensor: torch.Tensor, offset: int, count: int, what: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise SymmetricMemoryError(f"{what}: takes a tensor, not {tensor!r}")
    offset, count = whole_number(offset, what, "offset"), whole_number(count, what, "count")
    if tensor.dtype != torch.uint32 or tensor.dim() != 1 or not tensor.is_contiguous():
        raise SymmetricMemoryError(
            f"{what}: takes a contiguous tensor of torch.uint32 with one dimension, not {tensor.dtype} {list(tensor.shape)}; "
            "use .view(torch.uint32).view(-1)"
        )
    if offset < 0 or count < 1 or offset + count > tensor.numel():
        raise SymmetricMemoryError(f"{what}: words {offset} to {offset + count} of a tensor of {tensor.numel()} elements")
    return tensor[offset : offset + count]


def _signed(value: int, what: str) -> int:
    """An unsigned word as the signed one of the same bits."""
    value = whole_number(value, what, "val")
    if not 0 <= value < 1 << 32:
        raise SymmetricMemoryError(f"{what}: val={value} does not fit into an unsigned 32-bit word")
    return value - (1 << 32) if value >> 31 else value
