"""Linear layers that are split over the ranks of a group, by output features or by input features, in two forms.

Sequence parallel: each rank has its rows (tokens) of what goes between such pairs of layers. ``ColumnParallelLinear`` is ``ag_gemm`` then,
and ``RowParallelLinear`` ``gemm_rs``; the backward of one is the other. Replicated: every rank has all rows; a product of this rank's own,
and ``gemm_ar``, which is also the backward of the first. The first form moves half as much and works on fewer rows in between; the second
needs no number of rows that the ranks can share, which is what decoding has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _module

from ..errors import InvalidArgumentError
from ..ops import ag_gemm, all_gather, gemm_ar, gemm_rs
from ..ops.autocast import autocasted, dtype_here, in_dtype, without_autocast
from ..ops.gemm.gradients import differentiable_once, refuse_output, wants_gradient
from ..ops.tensors import check_output
from .placement import Placement

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class ColumnParallelLinear(nn.Module):
    """``x @ weight.T + bias`` with this rank's part of the output features. Every rank of the group makes it and calls it.

    weight: (out of this rank, in_features); bias: (out of this rank,), or None.
    """

    def __init__(
        self,
        in_features: int,
        sections: int | Sequence[int],
        *,
        bias: bool = False,
        sequence_parallel: bool = True,
        group: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """in_features: of all ranks. sections: output features of all ranks together; several if some layers are one, as q, k and v are:
        each rank has its part of each, one behind the other.
        sequence_parallel: the form, see the module; a call may choose otherwise. group: what ``find_team`` takes.
        Parameters are drawn on each rank for itself, as ``nn.Linear`` draws them. Raises InvalidArgumentError, NotInTeamError,
        NotInitializedError.
        """
        super().__init__()
        self.placement = Placement("ColumnParallelLinear", group)
        self.in_features, self.sequence_parallel = in_features, sequence_parallel
        self.sections = (sections,) if isinstance(sections, int) else tuple(sections)
        own = sum(self.placement.share("ColumnParallelLinear", "an output section", section) for section in self.sections)
        options = _options("ColumnParallelLinear", self.placement, device, dtype)
        self.weight = nn.Parameter(torch.empty((own, in_features), **options))
        self.bias = nn.Parameter(torch.empty((own,), **options)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw this rank's parameters anew."""
        _draw(self.weight, self.in_features)
        if self.bias is not None:
            _draw(self.bias, self.in_features)

    def forward(
        self, x: torch.Tensor, *, sequence_parallel: bool | None = None, with_bias: bool = True, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x: (M, ..., in_features), of the weight's dtype: this rank's rows, the same number on all, or in the replicated form all rows.

        Returns (size * M, ..., out of this rank), in the replicated form (M, ..., out of this rank). with_bias: False leaves it to who
        calls. out: a matrix for the rows of the result, contiguous, without autograd only.
        """
        scattered = self.sequence_parallel if sequence_parallel is None else sequence_parallel
        rows = as_rows("ColumnParallelLinear", x, self.weight)
        weight, bias = in_dtype(self.weight, rows.dtype), in_dtype(self.bias if with_bias else None, rows.dtype)
        with without_autocast(rows.device.type):
            result = ag_gemm(rows, weight.t(), group=self.placement.group, out=out) if scattered else self._replicated(rows, weight, out)
            if bias is not None:
                result = result + bias if out is None else result.add_(bias)
        tokens = x.shape[0] * (self.placement.size if scattered else 1)
        return result if x.dim() == 2 else result.view(tokens, *x.shape[1:-1], weight.shape[0])

    def _replicated(self, rows: torch.Tensor, weight: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        if torch.compiler.is_compiling() or wants_gradient(rows, weight):
            refuse_output("ColumnParallelLinear", out)
            return ReplicatedProduct.apply(rows, weight, self.placement.group)
        if out is not None:
            check_output("ColumnParallelLinear", out, (rows.shape[0], weight.shape[0]), rows)
        return torch.matmul(rows, weight.t(), out=out)

    def load_full(self, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor] = ()) -> None:
        """Take this rank's part of the full weights, (section, in_features) each, and biases, (section,) each."""
        with torch.no_grad():
            self.weight.copy_(torch.cat([self.placement.part(weight, 0).to(self.weight.device) for weight in weights]))
            if self.bias is not None:
                self.bias.copy_(torch.cat([self.placement.part(bias, 0).to(self.weight.device) for bias in biases]))

    def full(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The full weights and biases by section, gathered from all ranks; every rank calls it."""
        lengths = [section // self.placement.size for section in self.sections]
        gathered = []
        for parameter in (self.weight, self.bias):
            own = [] if parameter is None else parameter.detach().split(lengths)
            gathered.append([all_gather(part.contiguous(), group=self.placement.group) for part in own])
        return gathered[0], gathered[1]

    def extra_repr(self) -> str:
        """For ``print``."""
        return f"in_features={self.in_features}, sections={self.sections}, {_form(self)}"


class RowParallelLinear(nn.Module):
    """``sum over the ranks of x @ weight.T, + bias`` with this rank's part of the input features. Every rank makes it and calls it.

    weight: (out_features, in of this rank). bias: (out_features,), the same on all ranks, or None; its gradient is that of all rows.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = False,
        sequence_parallel: bool = True,
        group: object = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """As ``ColumnParallelLinear``; in_features: of all ranks together. The bias, the same on all ranks, is 0 at first."""
        super().__init__()
        self.placement = Placement("RowParallelLinear", group)
        self.in_features, self.out_features, self.sequence_parallel = in_features, out_features, sequence_parallel
        own = self.placement.share("RowParallelLinear", "in_features", in_features)
        options = _options("RowParallelLinear", self.placement, device, dtype)
        self.weight = nn.Parameter(torch.empty((out_features, own), **options))
        self.bias = nn.Parameter(torch.empty((out_features,), **options)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw this rank's weight anew."""
        _draw(self.weight, self.in_features)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: torch.Tensor, *, sequence_parallel: bool | None = None, out: torch.Tensor | None = None) -> torch.Tensor:
        """x: (M, ..., in of this rank), all rows. Returns (M / size, ..., out_features), this rank's rows; in the replicated form all.

        out: a matrix for the rows of the result, contiguous, without autograd only. Raises InvalidArgumentError where the group's size
        does not divide M.
        """
        scattered = self.sequence_parallel if sequence_parallel is None else sequence_parallel
        size, group = self.placement.size, self.placement.group
        rows = as_rows("RowParallelLinear", x, self.weight)
        weight, bias = in_dtype(self.weight, rows.dtype), in_dtype(self.bias, rows.dtype)
        if scattered:
            if x.shape[0] % size:
                raise InvalidArgumentError(
                    f"RowParallelLinear: the first dimension of x, {tuple(x.shape)}, can't be shared evenly by {size} ranks; append "
                    f"{-x.shape[0] % size} of zeros, or call it with sequence_parallel=False"
                )
            if bias is not None and (torch.compiler.is_compiling() or wants_gradient(bias)):
                bias = SummedGradient.apply(bias, group)
            result = gemm_rs(rows, weight.t(), bias=bias, group=group, out=out)
        else:
            result = gemm_ar(rows, weight.t(), bias=bias, group=group, out=out)
        tokens = x.shape[0] // size if scattered else x.shape[0]
        return result if x.dim() == 2 else result.view(tokens, *x.shape[1:-1], self.out_features)

    def load_full(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Take this rank's part of the full weight, (out_features, in_features), and the bias, (out_features,)."""
        with torch.no_grad():
            self.weight.copy_(self.placement.part(weight, 1))
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias)

    def full(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The full weight, gathered from all ranks, and the bias; every rank calls it."""
        gathered = all_gather(self.weight.detach().t().contiguous(), group=self.placement.group)
        return gathered.t().contiguous(), None if self.bias is None else self.bias.detach().clone()

    def extra_repr(self) -> str:
        """For ``print``."""
        return f"in_features={self.in_features}, out_features={self.out_features}, {_form(self)}"


class ReplicatedProduct(torch.autograd.Function):
    """``apply(x, weight, group)``: ``x @ weight.T`` of rows that all ranks have; x's gradient is the sum of the ranks'."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, group: object) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.group = group
        return x @ weight.t()

    @staticmethod
    @differentiable_once("ColumnParallelLinear")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = gemm_ar(grad, weight, group=ctx.group) if ctx.needs_input_grad[0] else None
        return grad_x, grad.t() @ x if ctx.needs_input_grad[1] else None, None


class SummedGradient(torch.autograd.Function):
    """``apply(x, group)``: a vector that all ranks have a copy of and use for different rows; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: object) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @differentiable_once("RowParallelLinear")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _gathered(grad.contiguous()[None], ctx.group).sum(0, dtype=torch.float32).to(grad.dtype), None


def _gathered(x: torch.Tensor, group: object) -> torch.Tensor:
    """``all_gather`` that ``torch.compile`` traces."""
    if not torch.compiler.is_compiling():
        return all_gather(x, group=group)
    from ..ops.gemm import custom_ops

    return custom_ops.gather_op(x, custom_ops.name_of("all_gather", group))


def as_rows(what: str, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x as a matrix of the dtype in which the layer computes: the weight's, or that of ``torch.autocast``.

    Raises InvalidArgumentError unless it has rows of as many features as the weight takes, of its dtype where there is no autocast.
    """
    x = autocasted(x, weight)
    if not isinstance(x, torch.Tensor) or x.dim() < 2 or x.shape[-1] != weight.shape[1] or x.dtype != dtype_here(weight):
        seen = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, torch.Tensor) else repr(x)
        raise InvalidArgumentError(f"{what}: x is {seen}; it has to be (rows, ..., {weight.shape[1]}) {weight.dtype}")
    if weight.device != x.device:
        raise InvalidArgumentError(
            f"{what}: x is on {x.device}, and the layer's weight on {weight.device}; move one of them, and after device='meta' call "
            "layer.to_empty(device=...) and load the weights"
        )
    return x if x.dim() == 2 else x.flatten(0, -2)


def hooked(*modules: nn.Module) -> bool:
    """Whether somebody sees, and may keep, what goes into or comes out of these modules."""
    return bool(_module._global_forward_hooks or _module._global_forward_pre_hooks) or any(
        module._forward_hooks or module._forward_pre_hooks for module in modules
    )


def _options(what: str, placement: Placement, device: torch.device | str | None, dtype: torch.dtype | None) -> dict[str, Any]:
    """How parameters are made. Raises InvalidArgumentError for a dtype that the operators do not take."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in DTYPES:
        raise InvalidArgumentError(f"{what}: dtype={dtype} is not one of {DTYPES}")
    return {"dtype": dtype, "device": placement.device if device is None else device}


def _draw(parameter: torch.Tensor, in_features: int) -> None:
    """As ``nn.Linear`` draws its weight and its bias, from the number of input features of all ranks."""
    bound = 1 / math.sqrt(in_features) if in_features > 0 else 0.0
    nn.init.uniform_(parameter, -bound, bound)


def _form(layer: ColumnParallelLinear | RowParallelLinear) -> str:
    form = "sequence parallel" if layer.sequence_parallel else "replicated"
    return f"bias={layer.bias is not None}, rank {layer.placement.index} of {layer.placement.size}, {form}"
