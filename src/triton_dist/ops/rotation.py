"""Rotary embedding of the heads of q and k, with the bias of their projection, in one pass over memory and in place if wanted.

By separate torch operators it takes some twenty kernels, which is more than the products of a decoding step. No rank waits for another one
here. Method: arXiv 2104.09864; halves of a head are rotated against each other, as in Llama.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..errors import InvalidArgumentError
from ..runtime.preload import Launch
from .activation import DTYPES
from .gemm.gradients import differentiable_once, refuse_output, wants_gradient
from .repeat import repeated
from .team import find_team
from .tensors import check_here, check_output

_TILE = 1024
"""Pairs of elements of a program, about."""


@triton.jit
def rotary_kernel(
    x, bias, positions, frequencies, out, columns, batch, heads, rotated, blocks,
    BACK: tl.constexpr, BIASED: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Program ``p`` takes ``TILE`` heads of row ``p // blocks``; a row belongs to token ``row // batch``. out may be x.

    heads: those of a row that are written; the first ``rotated`` of them are rotated (BACK: backwards). DIM: elements of a head;
    HALF: half of them, up to a power of 2.
    """
    row = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    pair = tl.arange(0, HALF)
    frequency = tl.load(frequencies + pair, mask=pair < DIM // 2, other=0.0)
    angle = tl.load(positions + row // batch).to(tl.float32) * frequency
    turned = head[:, None] < rotated
    cosine = tl.where(turned, tl.cos(angle)[None, :], 1.0)
    sine = tl.where(turned, tl.sin(angle)[None, :], 0.0)
    if BACK:
        sine = -sine
    inside = (head[:, None] < heads) & (pair[None, :] < DIM // 2)
    column = head[:, None] * DIM + pair[None, :]
    first = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + row * columns + column + DIM // 2, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        first += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        second += tl.load(bias + column + DIM // 2, mask=inside, other=0.0).to(tl.float32)
    target = out + row * columns + column
    tl.store(target, (first * cosine - second * sine).to(out.dtype.element_ty), mask=inside)
    tl.store(target + DIM // 2, (second * cosine + first * sine).to(out.dtype.element_ty), mask=inside)


def rotary(
    x: torch.Tensor,
    positions: torch.Tensor,
    frequencies: torch.Tensor,
    *,
    rotated: int,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``x + bias`` with its first heads rotated by ``positions * frequencies``; in stream order of the current stream.

    x: (rows, heads * head_dim), contiguous; fp32, fp16 or bf16. positions: int64, one for each token; a token has as many rows as the
    others, one behind the other. frequencies: (head_dim / 2,) fp32, of the pairs of elements ``i`` and ``i + head_dim / 2``.
    rotated: heads, from the first one on, that are rotated. bias: for a row of x. out: like x; may be x; allocated if None.
    Computed in fp32 and rounded once. Autograd goes through it.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError.
    """
    _check(x, positions, frequencies, rotated, bias)
    x, bias = x.resolve_neg(), None if bias is None else bias.resolve_neg()
    if wants_gradient(x, bias):
        refuse_output("rotary", out)
        return _Rotary.apply(x, bias, positions, frequencies, rotated)
    if out is None:
        out = torch.empty_like(x)
    else:
        check_output("rotary", out, x.shape, x)
    _run(x, bias, positions, frequencies, out, rotated, back=False)
    return out


class _Rotary(torch.autograd.Function):
    """``apply(x, bias, positions, frequencies, rotated)``, checked before; the gradient is rotated back."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, positions: torch.Tensor, frequencies: torch.Tensor, rotated: int
    ) -> torch.Tensor:
        ctx.save_for_backward(positions, frequencies)
        ctx.rotated = rotated
        return rotary(x.detach(), positions, frequencies, rotated=rotated, bias=None if bias is None else bias.detach())

    @staticmethod
    @differentiable_once("rotary")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad = grad.resolve_neg().contiguous()
        made = torch.empty_like(grad)
        positions, frequencies = ctx.saved_tensors
        _run(grad, None, positions, frequencies, made, ctx.rotated, back=True)
        return made if ctx.needs_input_grad[0] else None, made.sum(0) if ctx.needs_input_grad[1] else None, None, None, None


def _run(
    x: torch.Tensor,
    bias: torch.Tensor | None,
    positions: torch.Tensor,
    frequencies: torch.Tensor,
    out: torch.Tensor,
    rotated: int,
    *,
    back: bool,
) -> None:
    """The kernel, for tensors that fit."""
    team = find_team(None, "rotary")
    if not x.numel():
        return
    dim, (rows, columns) = 2 * frequencies.shape[0], x.shape
    # In place, heads that stay as they are are left alone.
    heads = rotated if bias is None and out.data_ptr() == x.data_ptr() else columns // dim
    if not heads:
        return

    def make() -> Launch:
        half = max(2, triton.next_power_of_2(dim // 2))
        tile = min(triton.next_power_of_2(heads), max(1, _TILE // half))
        blocks = triton.cdiv(heads, tile)
        return Launch.of(rotary_kernel, rows * blocks)(
            x, x if bias is None else bias, positions, frequencies, out, columns, rows // positions.shape[0], heads, rotated, blocks,
            BACK=back, BIASED=bias is not None, DIM=dim, HALF=half, TILE=tile, num_warps=4,
        )  # fmt: skip

    given = (x, positions, frequencies, out) if bias is None else (x, bias, positions, frequencies, out)
    same = out.data_ptr() == x.data_ptr()
    repeated("rotary", team, (rotated, back, bias is None, same), given, make)


def _check(x: torch.Tensor, positions: torch.Tensor, frequencies: torch.Tensor, rotated: int, bias: torch.Tensor | None) -> None:
    """Raises InvalidArgumentError."""
    for name, tensor in (("x", x), ("positions", positions), ("frequencies", frequencies), ("bias", bias)):
        if tensor is not None or name != "bias":
            check_here("rotary", name, tensor)
    if x.dim() != 2 or x.dtype not in DTYPES or not x.is_contiguous():
        seen = f"{tuple(x.shape)} {x.dtype} with strides {x.stride()}"
        raise InvalidArgumentError(f"rotary: x is {seen}; it has to be a contiguous matrix of one of {DTYPES}")
    if frequencies.dim() != 1 or frequencies.dtype != torch.float32 or not frequencies.numel() or not frequencies.is_contiguous():
        raise InvalidArgumentError(f"rotary: frequencies are {tuple(frequencies.shape)} {frequencies.dtype}; one fp32 a pair")
    dim, tokens = 2 * frequencies.shape[0], positions.shape[0] if positions.dim() == 1 else 0
    if positions.dtype != torch.int64 or not positions.is_contiguous() or (x.shape[0] and (not tokens or x.shape[0] % tokens)):
        raise InvalidArgumentError(
            f"rotary: positions are {tuple(positions.shape)} {positions.dtype}; they have to be int64, one a token, and share the "
            f"{x.shape[0]} rows of x evenly"
        )
    if x.shape[1] % dim or not 0 <= rotated <= x.shape[1] // dim:
        raise InvalidArgumentError(f"rotary: x has {x.shape[1]} columns, which are not heads of {dim}, {rotated} of them to rotate")
    if bias is not None and (tuple(bias.shape) != (x.shape[1],) or bias.dtype != x.dtype or not bias.is_contiguous()):
        raise InvalidArgumentError(f"rotary: bias is {tuple(bias.shape)} {bias.dtype}; it has to be {(x.shape[1],)} {x.dtype}, contiguous")
