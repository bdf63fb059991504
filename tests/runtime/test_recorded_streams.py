"""The parts of ``tests/gpu/stream_program.py``: on simulated ranks here, in CUDA graphs in ``tests/gpu``."""

from __future__ import annotations

import pytest

from tests.gpu import stream_program


@pytest.mark.parametrize("part", stream_program.PARTS, ids=lambda part: part.__name__)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_recorded_work_is_right_again_and_again(world, world_size, part):
    assert world(part, world_size, timeout=200) == [True] * world_size
