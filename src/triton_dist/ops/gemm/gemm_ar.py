"""GEMM + all-reduce: every rank gets ``sum over the ranks of a @ b``.

"all_reduce": cuBLAS, then ``ops.all_reduce``: for the smallest results. "split": cuBLAS, then one kernel that pushes the product to all
ranks and adds up what the others pushed: between two ranks, where nothing moves less. "two_shot": the same with parts of the product: each
rank adds up one, and pushes the sum to all. Neither copies what travels: it goes from the product into the memory of the rank that reads
it. "pipelined": products in pieces, whose sums travel while others are multiplied, see ``ar_pipeline``: for large results. "small": one
kernel, which multiplies and pushes its tiles from registers. "library": cuBLAS, then ``torch.distributed``.

Partial products are rounded to the output's dtype, in which they travel, then added up in fp32 from the group's first rank to its last
and rounded once: the same bits on all ranks and in all runs. ("library", and "all_reduce" of what it leaves to a library: as that does it.)
How the signals go: see ``gemm_rs`` and ``collectives.staging``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from ...runtime.preload import Launch
from ...runtime.world import require_world
from ..collectives.all_reduce import auto_launch
from ..team import Team
from ..tensors import filled
from . import library
from .ar_pipeline import pipelined
from .call import Call, Operator, run_call
from .epilogues import Epilogue, apply_to, arguments_of, refuse_epilogue
from .gradients import GemmAr, refuse_output, wants_gradient
from .operands import Operands, Request
from .scatter_plan import AR_METHODS, choose_ar_method
from .small import push_and_add_launch, small_launch, suits_small, two_shot_launch


def gemm_ar(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    pieces: int | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    epilogue: Epilogue | JITFunction | None = None,
) -> torch.Tensor:
    """``sum over the ranks of a @ b, + bias`` on every rank of ``group``, in stream order of the current stream.

    All ranks of the group call it, with tensors of the same shapes and dtypes and the same options; strides may differ.

    a: (M, K_local), this rank's columns of A, any strides; fp32, fp16, bf16 or fp8. b: (K_local, N), this rank's rows of B, any strides,
    of the same dtype. bias: (N,), of the output's dtype, the same on all ranks; added once ("all_reduce", "library": to the first rank's
    product). out: (M, N), contiguous; allocated if None.
    group: a ``torch.distributed`` group (or what else ``find_team`` takes) whose ranks reach each other by direct pointers; None is all.
    method: one of ``AR_METHODS`` (see the module), or "auto". "pipelined" needs a row for each rank.
    pieces: of each rank's rows in "pipelined", up to 8, instead of what is chosen.
    epilogue: what is done to the sum, once, after the bias, in fp32 before it is rounded ("all_reduce", "library": after that too); see
    ``epilogues``. scale_a, scale_b, out_dtype: as for ``gemm_rs``. Autograd and ``torch.compile`` go through it as through ``gemm_rs``.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError,
    and CaptureError for the first call with a shape inside a CUDA graph's capture.
    """
    options: dict = {"group": group, "method": method, "scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    if torch.compiler.is_compiling():
        from . import custom_ops

        refuse_epilogue("gemm_ar", epilogue, "torch.compile traces")
        options["out_dtype"] = out.dtype if out_dtype is None and out is not None else out_dtype
        options["group"] = custom_ops.name_of("gemm_ar", group)
        result = custom_ops.gemm_ar_op(a, b, bias, *options.values())
        return filled("gemm_ar", result, out)
    if wants_gradient(a, b, bias, *arguments_of(epilogue)):
        refuse_output("gemm_ar", out, scale_a, scale_b)
        refuse_epilogue("gemm_ar", epilogue, "autograd knows")
        return GemmAr.apply(a, b, bias, lambda a, b, bias: run_gemm_ar(a, b, bias=bias, pieces=pieces, **options))
    return run_gemm_ar(a, b, bias=bias, out=out, pieces=pieces, epilogue=epilogue, **options)


def run_gemm_ar(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """``gemm_ar`` that autograd and ``torch.compile`` do not look at. options: as for it."""
    return run_call(_OPERATOR, Request(a, b, **options), _prepare)


_OPERATOR = Operator("gemm_ar", AR_METHODS, lambda rows, team: rows)


def _prepare(call: Call) -> Callable[[], None] | None:
    operands, out, team, group = call.operands, call.out, call.team, call.group
    heap = require_world("gemm_ar").heap.size
    row_bytes, depth_bytes = out.shape[1] * out.element_size(), operands.depth * operands.a.element_size()
    chosen = choose_ar_method(call.method, team.size, out.shape[0], row_bytes, out.device.type, heap, depth_bytes)
    if chosen in ("split", "two_shot"):
        return _pushed(operands, out, team, group, two_shot=chosen == "two_shot")
    if chosen == "pipelined":
        return pipelined(operands, out, call.pieces, team, group)
    if chosen == "small":
        return _small(operands, out, team, group)
    if chosen == "all_reduce":
        addition = auto_launch(out, out, team, group)
        if addition is not None:
            return functools.partial(_multiply_and_add, operands, out, team, addition)
    library.all_reduce_product(operands, out, team, group)
    apply_to(out, operands.epilogue)
    return None


def _multiply_and_add(operands: Operands, out: torch.Tensor, team: Team, addition: Launch) -> None:
    """The product by cuBLAS, and the all-reduce of it."""
    library.matmul(operands.a, operands.b, out, operands.scales, operands.bias if team.index == 0 else None)
    addition.run()
    apply_to(out, operands.epilogue)


def _pushed(operands: Operands, out: torch.Tensor, team: Team, group: object, *, two_shot: bool) -> Callable[[], None]:
    """The product by cuBLAS, and the kernel that pushes and adds, ready to be queued on the current stream."""
    # The product lies in ``out``: a program has read all of a tile that it reads before it stores the sum there, and no other reads it.
    addition = (
        two_shot_launch(out, out, operands, team, group) if two_shot else push_and_add_launch("gemm_ar", out, out, operands, team, group)
    )

    def enqueue() -> None:
        library.matmul(operands.a, operands.b, out, operands.scales)
        addition.run()

    return enqueue


def _small(operands: Operands, out: torch.Tensor, team: Team, group: object) -> Callable[[], None]:
    """One kernel for product and sum."""
    suits_small("gemm_ar", operands)
    return small_launch("gemm_ar", operands, out, team, group, scatter=False).run
