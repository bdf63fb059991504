"""Tensors as the words that a collective moves, and how its programs divide them; the same bytes for each on all ranks.

Ranks may see their memory as words of different width, as its alignment allows, but program ``p`` reads what programs ``p`` of the peers
have staged: so pieces, blocks and parts are whole lines, whatever the words.
"""

from __future__ import annotations

import torch
import triton

from .staging import LINE, programs_for

_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.int8))
MOST_BYTES_AT_A_TIME = 32 << 10
"""What a program loads from all ranks together: some 128 bytes of each thread."""


def round_up(number: int, step: int) -> int:
    """The next multiple of ``step``."""
    return triton.cdiv(number, step) * step


def dense(x: torch.Tensor) -> torch.Tensor:
    """``x``, or a copy of it if its elements do not stand in memory one behind the other as they are."""
    return x.resolve_conj().resolve_neg().contiguous()


def word_of(nbytes: int, *tensors: torch.Tensor) -> tuple[int, torch.dtype]:
    """Bytes and dtype of the widest words that begin at the tensors' addresses and at multiples of ``nbytes`` behind them.

    They begin at whole words of the tensors' storage, too, as torch's views of another dtype have to.
    """
    alignment = nbytes
    for tensor in tensors:
        alignment |= tensor.data_ptr() | int(tensor.storage_offset()) * tensor.element_size()
    return next((width, word) for width, word in _WORDS if alignment % width == 0)


def division(nbytes: int, most: int) -> tuple[int, int]:
    """Programs, and bytes of a block, of which each moves one after the other, for ``nbytes`` in all. most: bytes, a power of 2."""
    programs = programs_for(nbytes)
    return programs, max(LINE, min(most, triton.next_power_of_2(triton.cdiv(nbytes, programs))))
