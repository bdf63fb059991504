"""What the products whose depth is split over the ranks take: operands, scales, bias and output, checked in one place."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch

from ...errors import InvalidArgumentError

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, *FP8)


@dataclass(frozen=True)
class Operands:
    """One rank's part of a product. a: (M, depth). b: (depth, columns). bias: (columns,) or None, of the output's dtype."""

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    scales: tuple[torch.Tensor, torch.Tensor] | None
    out_dtype: torch.dtype

    @property
    def columns(self) -> int:
        return self.b.shape[1]

    @property
    def depth(self) -> int:
        return self.a.shape[1]


def checked_operands(
    what: str,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    scales: tuple[torch.Tensor | None, torch.Tensor | None],
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> Operands:
    """The operands of one call, with the output's dtype decided. what: the operator. Raises InvalidArgumentError."""
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2:
            seen = f"shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else repr(type(tensor))
            raise InvalidArgumentError(f"{what}: {name} has to be a matrix, got {seen}")
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        raise InvalidArgumentError(f"{what}: a is {a.dtype} and b {b.dtype}; both have to be one of {DTYPES}")
    if a.shape[1] != b.shape[0]:
        raise InvalidArgumentError(f"{what}: a is {tuple(a.shape)} and b {tuple(b.shape)}; the inner sizes have to be equal")
    given = [scale for scale in scales if scale is not None]
    if given and (a.dtype not in FP8 or len(given) != 2 or any(scale.numel() != 1 or scale.dtype != torch.float32 for scale in given)):
        raise InvalidArgumentError(f"{what}: scale_a and scale_b go together, with fp8 inputs, and are one fp32 element each")
    if out_dtype is None:
        out_dtype = out.dtype if out is not None else torch.bfloat16 if a.dtype in FP8 else a.dtype
    allowed = (torch.bfloat16, torch.float16, torch.float32) if a.dtype in FP8 else (a.dtype,)
    if out_dtype not in allowed:
        raise InvalidArgumentError(f"{what}: the output can't be {out_dtype} for {a.dtype} inputs; use one of {allowed}")
    if bias is not None and (tuple(bias.shape) != (b.shape[1],) or bias.dtype != out_dtype or not bias.is_contiguous()):
        raise InvalidArgumentError(
            f"{what}: bias is {tuple(bias.shape)} {bias.dtype}; it has to be {(b.shape[1],)} {out_dtype}, contiguous"
        )
    pair = None if len(given) != 2 else (given[0], given[1])
    # A library takes fp8 rows only as they lie in memory one behind the other.
    return Operands(a.contiguous() if a.dtype in FP8 else a, b, bias, pair, out_dtype)


def checked_output(what: str, out: torch.Tensor | None, rows: int, operands: Operands) -> torch.Tensor:
    """``out``, or a new tensor (rows, columns). Raises InvalidArgumentError if it is not of that shape and dtype, or not contiguous."""
    wanted = (rows, operands.columns)
    if out is None:
        return torch.empty(wanted, dtype=operands.out_dtype, device=operands.a.device)
    if tuple(out.shape) != wanted or out.dtype != operands.out_dtype or not out.is_contiguous():
        raise InvalidArgumentError(
            f"{what}: out is {tuple(out.shape)} {out.dtype} with strides {out.stride()}; it has to be {wanted} {operands.out_dtype}, "
            "contiguous"
        )
    return out


def call_key(what: str, tensors: tuple, method: object, tiles: object = None) -> Hashable:
    """What makes two calls of an operator the same to the device (see ``replay``); None for what is no call, as the checks will say.

    tensors: those of the call, None where an optional one is not given.
    """
    if not isinstance(method, str) or not all(tensor is None or isinstance(tensor, torch.Tensor) for tensor in tensors):
        return None
    seen = [None if t is None else (t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tensors]
    try:
        hash(tiles)
    except TypeError:
        return None
    return (what, method, tiles, *seen)
