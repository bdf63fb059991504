"""Operators: host functions with their kernels, one file an operator. Names are loaded when first used."""

from __future__ import annotations

import importlib

_HOMES = {
    "activate": "triton_dist.ops.activation",
    "InductorPass": "triton_dist.ops.inductor.graph_pass",
    "ag_gemm": "triton_dist.ops.gemm.ag_gemm",
    "all_gather": "triton_dist.ops.collectives.all_gather",
    "all_reduce": "triton_dist.ops.collectives.all_reduce",
    "all_to_all": "triton_dist.ops.collectives.all_to_all",
    "barrier": "triton_dist.ops.collectives.barrier",
    "broadcast": "triton_dist.ops.collectives.broadcast",
    "disable_inductor_pass": "triton_dist.ops.inductor.graph_pass",
    "enable_inductor_pass": "triton_dist.ops.inductor.graph_pass",
    "gemm_ar": "triton_dist.ops.gemm.gemm_ar",
    "gemm_rs": "triton_dist.ops.gemm.gemm_rs",
    "inductor_pass": "triton_dist.ops.inductor.graph_pass",
    "reduce_scatter": "triton_dist.ops.collectives.reduce_scatter",
    "rotary": "triton_dist.ops.rotation",
}

__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'triton_dist.ops' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
