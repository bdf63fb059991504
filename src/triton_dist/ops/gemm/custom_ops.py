"""The products over ranks as operators of ``torch.library``, so that ``torch.compile`` traces them: with shapes, and with gradients.

A traced call names its group, since a graph holds no objects: a ``torch.distributed`` process group, or "" for all ranks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...errors import InvalidArgumentError
from ..collectives.all_gather import all_gather
from ..team import find_team, without_mesh
from .ag_gemm import run_ag_gemm
from .gemm_ar import run_gemm_ar
from .gemm_rs import run_gemm_rs
from .gradients import ag_gemm_gradients, gemm_ar_gradients, gemm_rs_gradients
from .operands import FP8
from .plan import METHODS
from .scatter_plan import AR_METHODS, RS_METHODS

Tensor = torch.Tensor
_OPTIONS = "str group, str method, Tensor? scale_a, Tensor? scale_b, ScalarType? out_dtype"


def name_of(what: str, group: object) -> str:
    """What a traced call writes for ``group``. Raises InvalidArgumentError for a Team and what else ``torch.distributed`` does not name."""
    if group is None:
        return ""
    if isinstance(group, DeviceMesh | tuple):
        group = without_mesh(group, what)
    name = getattr(group, "group_name", None)
    if not isinstance(name, str):
        raise InvalidArgumentError(
            f"{what}: under torch.compile group has to be a torch.distributed process group, a DeviceMesh or None, not {group!r}"
        )
    return name


def group_of(name: str) -> object:
    """The process group of a name in a graph; None for all ranks. Raises what torch raises for a name that it does not know."""
    return dist.distributed_c10d._resolve_process_group(name) if name else None  # type: ignore[arg-type]


def _size(name: str) -> int:
    return find_team(group_of(name), "torch.compile").size


def _check(what: str, methods: tuple[str, ...], method: str, a: Tensor, b: Tensor) -> None:
    """What a trace is refused for: errors of the call itself would come when the compiled graph runs. Raises InvalidArgumentError."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        raise InvalidArgumentError(
            f"{what}: the operands are {tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}; they have to be matrices of one dtype "
            "with equal inner sizes"
        )
    if method not in ("auto", *methods):
        raise InvalidArgumentError(f"{what}: method={method!r} is not known; use 'auto' or one of {methods}")


def _dtype(a: Tensor, out_dtype: torch.dtype | None) -> torch.dtype:
    return out_dtype or (torch.bfloat16 if a.dtype in FP8 else a.dtype)


def _ag_gemm(a_shard: Tensor, b: Tensor, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    return run_ag_gemm(a_shard, b, group=group_of(group), method=method, scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype)


def _ag_gemm_gathered(
    a_shard: Tensor, b: Tensor, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any
) -> tuple[Tensor, Tensor]:
    gathered = a_shard.new_empty((a_shard.shape[0] * _size(group), a_shard.shape[1]))
    options = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return run_ag_gemm(a_shard, b, gathered=gathered, group=group_of(group), method=method, **options), gathered


def _gemm_rs(a: Tensor, b: Tensor, bias: Any, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    options = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return run_gemm_rs(a, b, bias=bias, group=group_of(group), method=method, **options)


def _gemm_ar(a: Tensor, b: Tensor, bias: Any, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    options = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    return run_gemm_ar(a, b, bias=bias, group=group_of(group), method=method, **options)


def _gather(x: Tensor, group: str) -> Tensor:
    return all_gather(x, group=group_of(group))


ag_gemm_op = torch.library.custom_op(
    "triton_dist::ag_gemm", _ag_gemm, mutates_args=(), schema=f"(Tensor a_shard, Tensor b, {_OPTIONS}) -> Tensor"
)
ag_gemm_gathered_op = torch.library.custom_op(
    "triton_dist::ag_gemm_gathered",
    _ag_gemm_gathered,
    mutates_args=(),
    schema=f"(Tensor a_shard, Tensor b, {_OPTIONS}) -> (Tensor, Tensor)",
)
gemm_rs_op = torch.library.custom_op(
    "triton_dist::gemm_rs", _gemm_rs, mutates_args=(), schema=f"(Tensor a, Tensor b, Tensor? bias, {_OPTIONS}) -> Tensor"
)
gemm_ar_op = torch.library.custom_op(
    "triton_dist::gemm_ar", _gemm_ar, mutates_args=(), schema=f"(Tensor a, Tensor b, Tensor? bias, {_OPTIONS}) -> Tensor"
)
gather_op = torch.library.custom_op("triton_dist::gather_rows", _gather, mutates_args=(), schema="(Tensor x, str group) -> Tensor")


@ag_gemm_op.register_fake
def _(a_shard: Tensor, b: Tensor, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    _check("ag_gemm", METHODS, method, a_shard, b)
    return a_shard.new_empty((a_shard.shape[0] * _size(group), b.shape[1]), dtype=_dtype(a_shard, out_dtype))


@ag_gemm_gathered_op.register_fake
def _(a_shard: Tensor, b: Tensor, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> tuple[Tensor, Tensor]:
    _check("ag_gemm", METHODS, method, a_shard, b)
    rows = a_shard.shape[0] * _size(group)
    return a_shard.new_empty((rows, b.shape[1]), dtype=_dtype(a_shard, out_dtype)), a_shard.new_empty((rows, a_shard.shape[1]))


@gemm_rs_op.register_fake
def _(a: Tensor, b: Tensor, bias: Any, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    _check("gemm_rs", RS_METHODS, method, a, b)
    return a.new_empty((a.shape[0] // _size(group), b.shape[1]), dtype=_dtype(a, out_dtype))


@gemm_ar_op.register_fake
def _(a: Tensor, b: Tensor, bias: Any, group: str, method: str, scale_a: Any, scale_b: Any, out_dtype: Any) -> Tensor:
    _check("gemm_ar", AR_METHODS, method, a, b)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=_dtype(a, out_dtype))


@gather_op.register_fake
def _(x: Tensor, group: str) -> Tensor:
    return x.new_empty((x.shape[0] * _size(group), *x.shape[1:]))


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.group = next(value for value in inputs if isinstance(value, str))


def _ag_gemm_backward(ctx: Any, grad: Tensor) -> tuple:
    def scatter(a: Tensor, b: Tensor) -> Tensor:
        return gemm_rs_op(a, b, None, ctx.group, "auto", None, None, None)

    a_shard, b = ctx.saved_tensors
    gradients = ag_gemm_gradients(grad, a_shard, b, ctx.needs_input_grad, lambda x: gather_op(x, ctx.group), scatter)
    return (*gradients, *[None] * 5)


def _gemm_rs_backward(ctx: Any, grad: Tensor) -> tuple:
    def multiply(a: Tensor, b: Tensor) -> Tensor:
        return ag_gemm_op(a, b, ctx.group, "auto", None, None, None)

    a, b = ctx.saved_tensors
    gradients = gemm_rs_gradients(grad, a, b, ctx.needs_input_grad, lambda x: gather_op(x, ctx.group), multiply)
    return (*gradients, *[None] * 5)


def _gemm_ar_backward(ctx: Any, grad: Tensor) -> tuple:
    a, b = ctx.saved_tensors
    return (*gemm_ar_gradients(grad, a, b, ctx.needs_input_grad), *[None] * 5)


ag_gemm_op.register_autograd(_ag_gemm_backward, setup_context=_save)
gemm_rs_op.register_autograd(_gemm_rs_backward, setup_context=_save)
gemm_ar_op.register_autograd(_gemm_ar_backward, setup_context=_save)
