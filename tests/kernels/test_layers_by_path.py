"""Layers by the paths under which scripts for Triton-distributed import them."""

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError
from triton_dist.layers.nvidia import AllGatherLayer
from triton_dist.sim.simulate import simulate

METHODS = [name for name in vars(AllGatherLayer) if name.startswith("forward_")]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("check", [None, "race"])
def test_gathers_in_place(method, world_size, check):
    def fn():
        rank, size = triton_dist.rank(), triton_dist.world_size()
        buffers = triton_dist.symm_zeros((2, size * 16), torch.int8)
        layer, seen = AllGatherLayer(1, size, rank, size * 16), []
        for call in range(4):
            buffer = buffers[layer.signal_target % layer.stages]
            buffer[rank * 16 : (rank + 1) * 16] = 10 * call + rank
            assert getattr(layer, method)(buffer) is buffer
            seen.append(buffer.view(size, 16)[:, 3].tolist())
        layer.finalize()
        return seen

    assert simulate(fn, world_size, check=check) == [[[10 * call + rank for rank in range(world_size)] for call in range(4)]] * world_size


@pytest.mark.parametrize(
    "make",
    [
        lambda: AllGatherLayer(2, 4, 0),
        lambda: AllGatherLayer(1, 4, 4),
        lambda: AllGatherLayer(1, 2, 0, 8).forward_pull(torch.zeros(9, dtype=torch.int8)),
        lambda: AllGatherLayer(1, 2, 0, 8).forward_pull(torch.zeros(7, dtype=torch.int8)),
        lambda: AllGatherLayer(1, 2, 0, 8).forward_pull(torch.zeros(2, 2, dtype=torch.int8).t()),
    ],
)
def test_bad_input_is_named(make):
    with pytest.raises(InvalidArgumentError, match="AllGatherLayer"):
        simulate(make, 2)
