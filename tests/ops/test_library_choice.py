"""What ``method="auto"`` may leave to ``torch.distributed``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from triton_dist.ops.collectives import arguments
from triton_dist.runtime.cuda.peers import Gpu
from triton_dist.runtime.cuda.world import CudaWorld

CUDA = torch.device("cuda", 0)


@pytest.fixture
def nccl(monkeypatch):
    """torch.distributed as if it ran, with NCCL for GPUs."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend_config", lambda group: "cpu:gloo,cuda:nccl")


@pytest.mark.parametrize("op", ["sum", "avg", "max", "min"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_a_maximum_that_might_lose_a_nan_stays_here(nccl, op, dtype):
    loses = op in ("max", "min") and dtype.is_floating_point
    assert arguments.library_reduces(None, torch.zeros(3, dtype=dtype), op) is not loses


@pytest.mark.parametrize("dtype", [torch.int16, torch.float8_e5m2])
def test_dtypes_that_the_library_does_not_add(nccl, dtype):
    assert not arguments.library_reduces(None, torch.zeros(3, dtype=dtype), "sum")


@pytest.mark.parametrize("shared", [True, False])
def test_no_nccl_where_ranks_share_a_gpu(nccl, monkeypatch, shared):
    world = CudaWorld.__new__(CudaWorld)
    world.world_size, world._gpus = 2, [Gpu("60", "0:1"), Gpu("60" if shared else "61", "0:1" if shared else "0:2")]
    monkeypatch.setattr(arguments, "current_world", lambda: world)
    assert arguments.library_can(None, CUDA) is not shared
    assert arguments.library_can(None, torch.device("cpu"))


def test_no_library_without_a_process_group(nccl, monkeypatch):
    monkeypatch.setattr(arguments, "current_world", lambda: SimpleNamespace())
    assert arguments.library_can(None, CUDA)
    assert not arguments.library_can(SimpleNamespace(), CUDA)  # a Team
    monkeypatch.setattr(dist, "get_backend_config", lambda group: "cpu:gloo")
    assert not arguments.library_can(None, CUDA)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    assert not arguments.library_can(None, torch.device("cpu"))
