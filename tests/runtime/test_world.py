"""The neutral names of the world, and what they say outside of one."""

import pytest
import torch

from triton_dist.errors import NotInitializedError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim.simulate import simulate


def test_inside_a_simulation():
    def fn():
        world.initialize()
        assert world.is_initialized()
        facts = world.rank(), world.world_size(), world.local_rank(), world.local_world_size(), world.node(), world.num_nodes()
        world.finalize()
        return facts

    assert simulate(fn, 6, num_nodes=3)[3] == (3, 6, 1, 2, 1, 3)


def test_finalize_waits_for_the_device():
    def fn():
        word = symmetric.symm_zeros(1, torch.int32)
        streams.write_value(word, 1)
        world.finalize()
        assert not world.require_world("busy").busy()

    simulate(fn, 2)


OUTSIDE = {
    "rank": world.rank,
    "world_size": world.world_size,
    "local_rank": world.local_rank,
    "local_world_size": world.local_world_size,
    "node": world.node,
    "num_nodes": world.num_nodes,
    "initialize": world.initialize,
    "finalize": world.finalize,
    "symm_empty": lambda: symmetric.symm_empty(1),
    "symm_zeros": lambda: symmetric.symm_zeros(1),
    "symm_full": lambda: symmetric.symm_full(1, 0),
    "symm_peer": lambda: symmetric.symm_peer(torch.ones(1), 0),
    "symm_free": lambda: symmetric.symm_free(torch.ones(1)),
    "device": streams.device,
    "Stream": streams.Stream,
    "Event": streams.Event,
    "current_stream": streams.current_stream,
    "synchronize": streams.synchronize,
    "write_value": lambda: streams.write_value(torch.zeros(1, dtype=torch.int32), 1),
    "wait_value": lambda: streams.wait_value(torch.zeros(1, dtype=torch.int32), 1),
    "copy_async": lambda: streams.copy_async(torch.zeros(1), torch.zeros(1)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_a_world(name):
    with pytest.raises(NotInitializedError, match=rf"{name}.* needs a world.*triton_dist.simulate"):
        OUTSIDE[name]()


def test_questions_that_have_an_answer_outside():
    assert not world.is_initialized()
    assert not symmetric.is_symmetric(torch.ones(1))
