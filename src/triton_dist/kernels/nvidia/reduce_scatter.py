"""The sum of the parts that the ranks have put into one buffer: the last step of a reduce-scatter."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError

_BLOCK = 4096


@triton.jit
def _sum_kernel(parts, out, count, num_splits, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(count, BLOCK), tl.num_programs(0)):
        offsets = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < count
        total = tl.zeros((BLOCK,), tl.float32)
        for split in range(num_splits):
            total += tl.load(parts + tl.cast(split, tl.int64) * count + offsets, mask=mask).to(tl.float32)
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=mask)


def ring_reduce(input: torch.Tensor, output: torch.Tensor, begin_idx: int, num_splits: int, num_sms: int = -1) -> torch.Tensor:
    """Sum ``num_splits`` parts of ``input`` [num_splits * M, N] into ``output`` [M, N] on the current stream, and return that.

    The sum is in fp32, in the order of the parts, so that every rank gets the same bits; ``begin_idx`` is accepted and changes nothing.
    num_sms: programs to use at most; -1 for as many as there are tiles. Raises InvalidArgumentError for shapes that do not fit, and
    tensors that are not contiguous.
    """
    fits = input.dim() == output.dim() == 2 and num_splits >= 1 and input.shape == (num_splits * output.shape[0], output.shape[1])
    if not fits or not (input.is_contiguous() and output.is_contiguous()):
        raise InvalidArgumentError(
            f"ring_reduce: input {list(input.shape)} must be {num_splits} contiguous parts of output's shape {list(output.shape)}"
        )
    if num_sms != -1 and num_sms < 1:
        raise InvalidArgumentError(f"ring_reduce: num_sms={num_sms} must be -1 or at least 1")
    tiles = triton.cdiv(output.numel(), _BLOCK)
    if tiles:
        _sum_kernel[(tiles if num_sms == -1 else min(tiles, num_sms),)](input, output, output.numel(), num_splits, _BLOCK)
    return output
