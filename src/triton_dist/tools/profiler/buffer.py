"""Buffers that kernels record into: made, emptied, and looked at on the host."""

from __future__ import annotations

import numpy as np
import torch

from ...errors import InvalidArgumentError
from ...runtime import streams, world
from . import layout

_CHUNK_WORDS = 2 * layout.CHUNK
_MOST_SLOTS = 1 << 28


def alloc_profiler_buffer(max_num_profile_slots: int) -> torch.Tensor:
    """A buffer for about ``max_num_profile_slots`` records, empty, on this rank's device.

    Start and end of a task are a record each, a wait and a notify two. Blocks take room for 15 records at a time, and for half as many
    each the buffer is made: 32 bytes a slot. Give at least 8 for each block (of each launch). Records that find no room are counted.
    Raises InvalidArgumentError.
    """
    if not isinstance(max_num_profile_slots, int) or not 1 <= max_num_profile_slots <= _MOST_SLOTS:
        raise InvalidArgumentError(f"max_num_profile_slots={max_num_profile_slots!r} must be a number from 1 to {_MOST_SLOTS}")
    chunks = -(-max_num_profile_slots // layout.SLOTS_A_CHUNK)
    device = streams.device() if world.is_initialized() else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words = torch.zeros(layout.HEADER + chunks * _CHUNK_WORDS, dtype=torch.int64, device=device)
    machine = getattr(world.current_world(), "machine", None)
    if machine is not None:
        # Blocks take their chunks in whatever order they run, and must not wait for each other's time by it.
        machine.memory.register(words, name="profiler buffer").timeless = True
    _write_header(words)
    return words.view(torch.uint64)


def reset_profiler_buffer(profiler_buffer: torch.Tensor) -> None:
    """Empty a buffer, on the current stream. Raises InvalidArgumentError for what is no profiler buffer."""
    words = _words(profiler_buffer)
    words.zero_()
    _write_header(words)


def _words(profiler_buffer: torch.Tensor) -> torch.Tensor:
    """A buffer as signed words, after a look at its form."""
    if not isinstance(profiler_buffer, torch.Tensor):
        raise InvalidArgumentError(f"profiler_buffer={type(profiler_buffer).__name__}; pass what alloc_profiler_buffer returned")
    words = profiler_buffer.numel() - layout.HEADER
    if profiler_buffer.dtype is not torch.uint64 or profiler_buffer.dim() != 1 or words <= 0 or words % _CHUNK_WORDS:
        raise InvalidArgumentError(
            f"a tensor of {profiler_buffer.dtype} and shape {tuple(profiler_buffer.shape)} is no profiler buffer; "
            "pass what alloc_profiler_buffer returned"
        )
    return profiler_buffer.view(torch.int64)


def _write_header(words: torch.Tensor) -> None:
    words[0].fill_(layout.MAGIC)
    words[layout.CAPACITY].fill_((words.numel() - layout.HEADER) // _CHUNK_WORDS)


def read_words(profiler_buffer: torch.Tensor) -> np.ndarray:
    """A copy of a buffer's words, uint64, of its header and the chunks in use; waits for this rank's device work.

    Raises InvalidArgumentError for a tensor that is no profiler buffer, or was overwritten.
    """
    words = _words(profiler_buffer)
    if world.is_initialized():
        streams.synchronize()
    elif words.is_cuda:
        torch.cuda.synchronize(words.device)
    capacity = (words.numel() - layout.HEADER) // _CHUNK_WORDS
    header = words[: layout.HEADER].cpu().numpy().view(np.uint64)
    if int(header[0]) != layout.MAGIC or int(header[layout.CAPACITY]) != capacity:
        raise InvalidArgumentError(
            f"a profiler buffer begins with {layout.MAGIC:#x}, {capacity}, this tensor with {int(header[0]):#x}, {int(header[1])}; pass "
            "what alloc_profiler_buffer returned, and look for a kernel that writes over it"
        )
    used = min(int(header[layout.TAKEN]), capacity)
    return words[: layout.HEADER + used * _CHUNK_WORDS].cpu().numpy().view(np.uint64).copy()
