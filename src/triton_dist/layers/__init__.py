"""Layers that are split over the ranks of a group, and those of Triton-distributed by their paths. Names are loaded when first used."""

from __future__ import annotations

import importlib

_HOMES = {
    "ColumnParallelLinear": "triton_dist.layers.parallel_linear",
    "KVCache": "triton_dist.layers.kv_cache",
    "RowParallelLinear": "triton_dist.layers.parallel_linear",
    "TPAttention": "triton_dist.layers.tp_attention",
    "TPMLP": "triton_dist.layers.tp_mlp",
}

__all__ = [*_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'triton_dist.layers' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
