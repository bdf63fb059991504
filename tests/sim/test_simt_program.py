"""The parts of the GPU's program for single threads give the same on the simulator."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.simt_program import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_on_the_simulator(part):
    torch.manual_seed(0)
    assert PARTS[part]("cpu")
