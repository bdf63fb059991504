"""Gradients of the products over ranks: the backward of ag_gemm is gemm_rs, and that of gemm_rs is ag_gemm.

As is usual for tensor parallelism, the gradient of a result that all ranks have (``gemm_ar``) is taken as the same on all ranks and of one
loss, so that nothing is added up over the ranks. A gradient is that of this rank's own tensor: the bias of ``gemm_rs`` gets the sum over
this rank's rows, to be added up over the ranks like that of any parameter of which each rank has a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...errors import InvalidArgumentError
from ..autocast import without_autocast
from ..collectives.all_gather import all_gather

Gradients = tuple[torch.Tensor | None, ...]


def wants_gradient(*tensors: object) -> bool:
    """Whether autograd has to know of a call with these operands."""
    return torch.is_grad_enabled() and any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def refuse_output(what: str, out: torch.Tensor | None, *scales: torch.Tensor | None) -> None:
    """Raises InvalidArgumentError for what has no gradient: a given output, fp8."""
    if out is not None or any(scale is not None for scale in scales):
        raise InvalidArgumentError(
            f"{what}: there is no gradient with out= or scales; leave them out, or call it under torch.no_grad() or with detached operands"
        )


class _NoSecondGradient(torch.autograd.Function):
    """``apply(what, gradient)``: the gradient, which can't be differentiated again."""

    @staticmethod
    def forward(ctx: Any, what: str, gradient: torch.Tensor) -> torch.Tensor:
        ctx.what = what
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Gradients:
        raise InvalidArgumentError(
            f"{ctx.what}: its gradient has no gradient (create_graph=True); compute what is differentiated twice by torch's own operators"
        )


def differentiable_once(what: str) -> Callable[[Callable], Callable]:
    """Makes a ``backward`` that autograd does not look into, in the dtypes of what it is given.

    Where its result depends on what requires a gradient, differentiating it raises InvalidArgumentError: torch's ``once_differentiable``
    sees that of the incoming gradient only, and takes saved operands for constants. what: the operator.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def wrapped(ctx: Any, *grads: torch.Tensor) -> Gradients:
            with torch.no_grad(), without_autocast(grads[0].device.type):
                made = backward(ctx, *grads)
            if not wants_gradient(*grads, *ctx.saved_tensors):
                return made
            return tuple(None if each is None else _NoSecondGradient.apply(what, each.detach().requires_grad_()) for each in made)

        return wrapped

    return decorate


def ag_gemm_gradients(grad: torch.Tensor, a_shard: torch.Tensor, b: torch.Tensor, needs: tuple, gather: Any, gemm_rs: Any) -> Gradients:
    """Of a_shard and b. gather(x), gemm_rs(a, b): the operators on the same group. needs: which gradients are asked for."""
    grad = grad.contiguous()
    return gemm_rs(grad, b.t()) if needs[0] else None, gather(a_shard).t() @ grad if needs[1] else None


def gemm_rs_gradients(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, needs: tuple, gather: Any, ag_gemm: Any) -> Gradients:
    """Of a, b and the bias. With b's, the gathered gradient is needed in whole, and serves both products."""
    grad = grad.contiguous()
    grad_bias = grad.sum(0) if needs[2] else None
    if not needs[1]:
        return ag_gemm(grad, b.t()) if needs[0] else None, None, grad_bias
    complete = gather(grad)
    return complete @ b.t() if needs[0] else None, a.t() @ complete, grad_bias


def gemm_ar_gradients(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, needs: tuple) -> Gradients:
    """Of a, b and the bias."""
    return grad @ b.t() if needs[0] else None, a.t() @ grad if needs[1] else None, grad.sum(0) if needs[2] else None


class AgGemm(torch.autograd.Function):
    """``apply(a_shard, b, run, gemm_rs, group)``; run(a_shard, b): the operator itself; gemm_rs: that of the backward."""

    @staticmethod
    def forward(ctx: Any, a_shard: torch.Tensor, b: torch.Tensor, run: Callable, gemm_rs: Callable, group: object) -> torch.Tensor:
        ctx.save_for_backward(a_shard, b)
        ctx.gemm_rs, ctx.group = gemm_rs, group
        return run(a_shard.detach(), b.detach())

    @staticmethod
    @differentiable_once("ag_gemm")
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        def gather(x: torch.Tensor) -> torch.Tensor:
            return all_gather(x, group=ctx.group)

        a_shard, b = ctx.saved_tensors
        return *ag_gemm_gradients(grad, a_shard, b, ctx.needs_input_grad, gather, ctx.gemm_rs), None, None, None


class GemmRs(torch.autograd.Function):
    """``apply(a, b, bias, run, ag_gemm, group)``; run(a, b, bias): the operator itself; ag_gemm: that of the backward."""

    @staticmethod
    def forward(
        ctx: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, run: Callable, ag_gemm: Callable, group: object
    ) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        ctx.ag_gemm, ctx.group = ag_gemm, group
        return run(a.detach(), b.detach(), None if bias is None else bias.detach())

    @staticmethod
    @differentiable_once("gemm_rs")
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        def gather(x: torch.Tensor) -> torch.Tensor:
            return all_gather(x, group=ctx.group)

        a, b = ctx.saved_tensors
        return *gemm_rs_gradients(grad, a, b, ctx.needs_input_grad, gather, ctx.ag_gemm), None, None, None


class GemmAr(torch.autograd.Function):
    """``apply(a, b, bias, run)``; run(a, b, bias): the operator itself."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, run: Callable) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        return run(a.detach(), b.detach(), None if bias is None else bias.detach())

    @staticmethod
    @differentiable_once("gemm_ar")
    def backward(ctx: Any, grad: torch.Tensor) -> Gradients:
        a, b = ctx.saved_tensors
        return *gemm_ar_gradients(grad, a, b, ctx.needs_input_grad), None
