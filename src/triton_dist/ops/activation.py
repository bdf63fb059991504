"""The activation between the two projections of an MLP, in one pass over memory: ``f(gate) * up`` or ``f(x)``, with the bias before it.

A gated activation of separate torch operators reads and writes its operands several times; this kernel reads each element once, adds the
bias that the projection left out, and rounds once. No rank waits for another one here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from ..errors import InvalidArgumentError
from ..runtime.preload import Launch
from .gemm.gradients import differentiable_once, refuse_output, wants_gradient
from .repeat import repeated
from .team import find_team
from .tensors import check_here, check_output, filled

FUNCTIONS = ("silu", "gelu", "gelu_tanh", "relu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TILES = (2048, 1024)
"""Elements of a program: whole 16 bytes for each of 128 threads, at 16 bits an element."""
_CUBIC = tl.constexpr(0.044715)
_SQRT_2_OVER_PI = tl.constexpr(math.sqrt(2 / math.pi))


@triton.jit
def _share(x, FUNCTION: tl.constexpr):
    """``f(x) / x``: the share of x that the function lets through."""
    if FUNCTION == "silu":
        share = tl.sigmoid(x)
    elif FUNCTION == "gelu":
        share = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
    elif FUNCTION == "gelu_tanh":
        share = tl.sigmoid(2 * _SQRT_2_OVER_PI * x * (1 + _CUBIC * x * x))  # (1 + tanh(u)) / 2 = sigmoid(2 u)
    else:
        share = (x > 0).to(tl.float32)
    return share


@triton.jit
def _activated(x, FUNCTION: tl.constexpr):
    """The function itself: of an infinity, too, where the share of relu would give NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) if FUNCTION == "relu" else x * _share(x, FUNCTION)


@triton.jit
def _share_slope(x, share, FUNCTION: tl.constexpr):
    """The derivative of ``_share``; not for relu, whose share has none."""
    if FUNCTION == "silu":
        slope = share * (1 - share)
    elif FUNCTION == "gelu":
        slope = tl.exp(-0.5 * x * x) * 0.3989422804014327
    else:
        slope = share * (1 - share) * 2 * _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
    return slope


@triton.jit
def _loaded(x, bias, inside, BIASED: tl.constexpr):
    """Elements and their bias in fp32."""
    value = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        value += tl.load(bias, mask=inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def activate_kernel(
    x, bias, out, row_stride, columns, blocks,
    FUNCTION: tl.constexpr, GATED: tl.constexpr, BIASED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Program ``p`` makes block ``p % blocks``, ``TILE`` columns, of row ``p // blocks`` of ``out``, (rows, columns).

    x: rows of ``row_stride`` elements; if GATED, ``columns`` gates, then as many that they multiply. bias: for a row of x.
    """
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    inside = column < columns
    here = x + row * row_stride + column
    value = _loaded(here, bias + column, inside, BIASED)
    result = _activated(value, FUNCTION)
    if GATED:
        result *= _loaded(here + columns, bias + columns + column, inside, BIASED)
    tl.store(out + row * columns + column, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def activation_gradient_kernel(
    x, bias, grad, out, row_stride, columns, blocks,
    FUNCTION: tl.constexpr, GATED: tl.constexpr, BIASED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """As ``activate_kernel``; grad: (rows, columns), of its result; out: x's gradient, contiguous."""
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * TILE + tl.arange(0, TILE)
    inside = column < columns
    here = x + row * row_stride + column
    value = _loaded(here, bias + column, inside, BIASED)
    received = tl.load(grad + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    share = _share(value, FUNCTION)
    slope = share if FUNCTION == "relu" else share + value * _share_slope(value, share, FUNCTION)
    if GATED:
        target = out + row * 2 * columns + column
        other = _loaded(here + columns, bias + columns + column, inside, BIASED)
        tl.store(target + columns, (received * _activated(value, FUNCTION)).to(out.dtype.element_ty), mask=inside)
        slope *= other
    else:
        target = out + row * columns + column
    tl.store(target, (received * slope).to(out.dtype.element_ty), mask=inside)


def activate(
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    function: str = "silu",
    gated: bool = True,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``f(gate) * up`` for ``gate | up = x + bias``, or ``f(x + bias)``; in stream order of the current stream.

    x: (rows, 2 * columns) if gated, gates first, else (rows, columns); last dimension contiguous; fp32, fp16 or bf16. bias: for a row
    of x, of its dtype. function: one of ``FUNCTIONS``; "gelu_tanh" is gelu by its approximation. out: (rows, columns), contiguous;
    allocated if None. Computed in fp32 and rounded once. Autograd goes through it, in one pass back too, and so does ``torch.compile``,
    to which it is torch's own operators.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError.
    """
    if torch.compiler.is_compiling():
        made = _by_torch(x, bias, function, gated)
        return filled("activate", made, out)
    columns = _check(x, bias, function, gated)
    x, bias = x.resolve_neg(), None if bias is None else bias.resolve_neg()
    if wants_gradient(x, bias):
        refuse_output("activate", out)
        return _Activation.apply(x, bias, function, gated)
    if out is None:
        out = torch.empty((x.shape[0], columns), dtype=x.dtype, device=x.device)
    else:
        check_output("activate", out, (x.shape[0], columns), x)
    _run(activate_kernel, x, bias, (out,), columns, function, gated)
    return out


class _Activation(torch.autograd.Function):
    """``apply(x, bias, function, gated)``, checked before."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, function: str, gated: bool) -> torch.Tensor:
        ctx.save_for_backward(x, bias)
        ctx.function, ctx.gated = function, gated
        return activate(x.detach(), None if bias is None else bias.detach(), function=function, gated=gated)

    @staticmethod
    @differentiable_once("activate")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        made = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        _run(activation_gradient_kernel, x, bias, (grad.resolve_neg().contiguous(), made), grad.shape[1], ctx.function, ctx.gated)
        return made if ctx.needs_input_grad[0] else None, made.sum(0) if ctx.needs_input_grad[1] else None, None, None


def _run(kernel: Any, x: torch.Tensor, bias: torch.Tensor | None, others: tuple, columns: int, function: str, gated: bool) -> None:
    """One of the two kernels, for tensors that fit. others: what it takes between bias and sizes."""
    team = find_team(None, "activate")
    if not x.shape[0] or not columns:
        return

    def make() -> Launch:
        tile = tile_columns(columns)
        blocks = triton.cdiv(columns, tile)
        return Launch.of(kernel, x.shape[0] * blocks)(
            x, x if bias is None else bias, *others, x.stride(0), columns, blocks,
            FUNCTION=function, GATED=gated, BIASED=bias is not None, TILE=tile, num_warps=4,
        )  # fmt: skip

    given = (x, *others) if bias is None else (x, bias, *others)
    repeated(kernel.__name__, team, (function, gated, bias is None), given, make)


def tile_columns(columns: int) -> int:
    """Columns of a program: of the widths whose blocks have the fewest columns too many, the largest."""
    if columns < _TILES[-1]:
        return max(16, triton.next_power_of_2(columns))
    return min(_TILES, key=lambda width: triton.cdiv(columns, width) * width)


def check_function(what: str, function: object) -> None:
    """Raises InvalidArgumentError unless ``function`` is one of ``FUNCTIONS``."""
    if function not in FUNCTIONS:
        raise InvalidArgumentError(f"{what}: the activation {function!r} is not known; use one of {FUNCTIONS}")


def _check(x: torch.Tensor, bias: torch.Tensor | None, function: str, gated: bool) -> int:
    """Columns of the result. Raises InvalidArgumentError."""
    check_function("activate", function)
    check_here("activate", "x", x)
    if bias is not None:
        check_here("activate", "bias", bias)
    if x.dim() != 2 or x.dtype not in DTYPES or (x.shape[1] > 1 and x.stride(1) != 1):
        seen = f"{tuple(x.shape)} {x.dtype} with strides {x.stride()}"
        raise InvalidArgumentError(f"activate: x is {seen}; it has to be a matrix of one of {DTYPES} whose rows are contiguous")
    if gated and x.shape[1] % 2:
        raise InvalidArgumentError(
            f"activate: x has {x.shape[1]} columns; gates and what they multiply are as many, so pass an even number"
        )
    if bias is not None and (tuple(bias.shape) != (x.shape[1],) or bias.dtype != x.dtype or not bias.is_contiguous()):
        raise InvalidArgumentError(
            f"activate: bias is {tuple(bias.shape)} {bias.dtype}; it has to be {(x.shape[1],)} {x.dtype}, contiguous"
        )
    return x.shape[1] // 2 if gated else x.shape[1]


def _by_torch(x: torch.Tensor, bias: torch.Tensor | None, function: str, gated: bool) -> torch.Tensor:
    """The same by operators that a compiler fuses."""
    wide = x.float() if bias is None else x.float() + bias.float()
    gate, *rest = wide.chunk(2, dim=-1) if gated else (wide,)
    if function.startswith("gelu"):
        result = torch.nn.functional.gelu(gate, approximate="tanh" if function == "gelu_tanh" else "none")
    else:
        result = torch.relu(gate) if function == "relu" else torch.nn.functional.silu(gate)
    return (result * rest[0] if rest else result).to(x.dtype)
