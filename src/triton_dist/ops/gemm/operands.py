"""What the products over ranks take: operands, scales, bias, epilogue and output, checked in one place."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch

from ...errors import InvalidArgumentError
from ..tensors import check_here, check_written, overlap
from .epilogues import Epilogue, as_epilogue
from .plan import Tiles

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, *FP8)


@dataclass(frozen=True)
class Operands:
    """One rank's part of a product. a: (M, depth). b: (depth, columns). bias: (columns,) or None, of the output's dtype.

    epilogue: what is done to the result, once, after the bias.
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    scales: tuple[torch.Tensor, torch.Tensor] | None
    out_dtype: torch.dtype
    epilogue: Epilogue | None = None

    @property
    def columns(self) -> int:
        return self.b.shape[1]

    @property
    def depth(self) -> int:
        return self.a.shape[1]

    def after(self, rows: int) -> Operands:
        """For a part of the result that begins ``rows`` rows further down."""
        return self if self.epilogue is None else replace(self, epilogue=self.epilogue.after(rows))


@dataclass(slots=True)
class Request:
    """One call as a caller made it; see ``ag_gemm``, ``gemm_rs`` and ``gemm_ar``.

    gathered: for ``ag_gemm``, (size * M_local, K), contiguous, of A's dtype: gets the gathered rows of A. pieces: for "pipelined" sums.
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None = None
    out: torch.Tensor | None = None
    group: object = None
    method: str = "auto"
    tiles: Tiles | None = None
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    out_dtype: torch.dtype | None = None
    epilogue: object = None
    gathered: torch.Tensor | None = None
    pieces: int | None = None

    def key(self, what: str, out: torch.Tensor | None) -> Hashable:
        """What makes two calls of an operator the same to the device, see ``replay``.

        None for what is no call, as the checks will say, and where a tensor is a lazily negated view, which is copied at each call.
        """
        epilogue = self.epilogue.identity() if isinstance(self.epilogue, Epilogue) else self.epilogue
        seen: list[Hashable] = [what, self.group, self.method, self.tiles, self.pieces, epilogue]
        try:
            seen.append(library_modes(self.a.dtype))
            for tensor in (self.a, self.b, self.bias, out, self.scale_a, self.scale_b, self.gathered):
                if tensor is None:
                    seen.append(None)
                elif tensor.is_neg():
                    return None
                else:
                    seen += (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            key = tuple(seen)
            hash(key)
        except (AttributeError, TypeError):  # no tensor, or nothing that decides
            return None
        return key


def library_modes(dtype: torch.dtype) -> Hashable:
    """The settings of torch, by name in ``torch.backends.cuda.matmul``, that decide how a library multiplies such operands on CUDA."""
    # As the properties of these names do, but those of float32 can't be read where a program uses the old and the new one.
    if dtype == torch.float32:
        newer = getattr(torch._C, "_get_fp32_precision_getter", None)
        return newer("cuda", "matmul") if newer is not None else torch._C._get_cublas_allow_tf32()
    if dtype == torch.float16:
        return torch._C._get_cublas_allow_fp16_reduced_precision_reduction(), torch._C._get_cublas_allow_fp16_accumulation()
    return torch._C._get_cublas_allow_bf16_reduced_precision_reduction() if dtype == torch.bfloat16 else None


def checked_operands(what: str, request: Request, *, a_name: str = "a", rows_in_line: bool = False) -> Operands:
    """The operands of one call, with the output's dtype decided. Raises InvalidArgumentError.

    what: the operator. a_name: what it calls A. rows_in_line: A's rows have to lie in memory one behind the other.
    """
    a, b, bias, out, out_dtype = request.a, request.b, request.bias, request.out, request.out_dtype
    given = {a_name: a, "b": b, "bias": bias, "scale_a": request.scale_a, "scale_b": request.scale_b, "out": out}
    for name, tensor in given.items():
        if tensor is not None or name in (a_name, "b"):
            check_here(what, name, tensor)
    for name, tensor in ((a_name, a), ("b", b)):
        if tensor.dim() != 2:
            raise InvalidArgumentError(f"{what}: {name} has to be a matrix, got shape {tuple(tensor.shape)}")
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        raise InvalidArgumentError(f"{what}: {a_name} is {a.dtype} and b {b.dtype}; both have to be one of {DTYPES}")
    if a.shape[1] != b.shape[0]:
        raise InvalidArgumentError(f"{what}: {a_name} is {tuple(a.shape)} and b {tuple(b.shape)}; the inner sizes have to be equal")
    scales = [scale for scale in (request.scale_a, request.scale_b) if scale is not None]
    if scales and (a.dtype not in FP8 or len(scales) != 2 or any(scale.numel() != 1 or scale.dtype != torch.float32 for scale in scales)):
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
    pair = None if len(scales) != 2 else (scales[0].resolve_neg(), scales[1].resolve_neg())
    a, b, bias = a.resolve_neg(), b.resolve_neg(), None if bias is None else bias.resolve_neg()
    # A library takes fp8 rows only as they lie in memory one behind the other.
    a = a.contiguous() if rows_in_line or a.dtype in FP8 else a
    return Operands(a, b, bias, pair, out_dtype, as_epilogue(what, request.epilogue))


def checked_output(what: str, out: torch.Tensor | None, rows: int, operands: Operands, *, strided: bool = False) -> torch.Tensor:
    """``out``, or a new tensor (rows, columns). strided: only the last dimension has to be contiguous.

    Raises InvalidArgumentError if it is not of that shape, dtype and layout, or not what the epilogue is for.
    """
    wanted = (rows, operands.columns)
    if out is None:
        out = torch.empty(wanted, dtype=operands.out_dtype, device=operands.a.device)
    in_line = out.is_contiguous() or (strided and out.dim() == 2 and out.stride(1) == 1 and out.stride(0) >= out.shape[1])
    if tuple(out.shape) != wanted or out.dtype != operands.out_dtype or not in_line:
        layout = "with rows in line that do not overlap" if strided else "contiguous"
        raise InvalidArgumentError(
            f"{what}: out is {tuple(out.shape)} {out.dtype} with strides {out.stride()}; it has to be {wanted} {operands.out_dtype}, "
            f"{layout}"
        )
    if out.is_neg():
        raise InvalidArgumentError(f"{what}: out is a lazily negated view, which no kernel writes; pass what it is a view of")
    check_written(what, out)
    for read in (operands.a, operands.b, operands.bias, *(operands.scales or ())):
        if read is not None and overlap(out, read):
            raise InvalidArgumentError(
                f"{what}: out shares memory with an operand of shape {tuple(read.shape)}, which is read while out is written; let it have "
                "memory of its own, or pass a clone of the operand"
            )
    if operands.epilogue is not None:
        operands.epilogue.check(what, out)
    return out
