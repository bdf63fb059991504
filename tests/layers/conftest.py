"""A world for ``torch.compile``, which does not run on simulated ranks."""

from __future__ import annotations

import types

import pytest
import torch

from triton_dist.layers import placement
from triton_dist.ops.gemm import custom_ops
from triton_dist.runtime.team import Team


@pytest.fixture
def mirrored(monkeypatch):
    """Two ranks that have the same tensors, as seen by the first: what it gathers is its own part twice, and a sum is its own doubled."""

    def twice(x, group=None):
        return torch.cat([x, x])

    def ag_gemm(a, b, **options):
        return twice(a) @ b

    def gemm_ar(a, b, *, bias=None, **options):
        return 2 * (a @ b) if bias is None else 2 * (a @ b) + bias

    def gemm_rs(a, b, **options):
        return gemm_ar(a, b, **options)[: a.shape[0] // 2].clone()

    for name, operator in (("run_ag_gemm", ag_gemm), ("run_gemm_rs", gemm_rs), ("run_gemm_ar", gemm_ar), ("all_gather", twice)):
        monkeypatch.setattr(custom_ops, name, operator)
    monkeypatch.setattr(custom_ops, "_size", lambda name: 2)
    monkeypatch.setattr(placement, "require_world", lambda what: types.SimpleNamespace(rank=0, device=torch.device("cpu")))
    monkeypatch.setattr(placement, "find_team", lambda group, what: Team(0, (0, 1)))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
