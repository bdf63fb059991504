"""What the GPU's program of names does with threads gives the same on the simulator, and what it does with random numbers."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.gpu.names_program import HOST, THREADS
from triton_dist import utils


@pytest.mark.parametrize("part", THREADS)
def test_on_the_simulator(part):
    torch.manual_seed(0)
    assert THREADS[part]("cpu")


def test_in_a_simulated_rank():
    def body():
        utils.initialize_distributed()
        return HOST["random_numbers"]("cpu")

    assert triton_dist.simulate(body, 1) == [True]
