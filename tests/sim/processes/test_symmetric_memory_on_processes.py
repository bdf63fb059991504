"""torch's symmetric memory on CPU processes, and the same bodies on simulated ranks of one process."""

from __future__ import annotations

import pytest
import torch

from tests.symmetric_memory import bodies
from tests.worlds.world import simulated_world
from triton_dist.errors import DeadlockError

BODIES = (
    bodies.buffers_and_pads,
    bodies.signals_in_a_ring,
    bodies.collectives,
    bodies.products,
    bodies.splits_of_all_to_all,
    bodies.nvshmem_functions,
    bodies.every_dtype,
    bodies.arguments_of_the_handle,
    bodies.arguments_of_operators,
    bodies.bad_input,
    bodies.rendezvous_of_other_sizes,
)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("world_size", [2, 4])
def test_on_processes(world, body, world_size):
    world(body, world_size)


@pytest.mark.parametrize("body", BODIES[:-2])
def test_on_simulated_ranks(body):
    simulated_world(body, 3, heap_size=16 << 20)


def test_memory_comes_back(world):
    world(bodies.memory_comes_back, 2, args=(15 << 20,))  # of heaps of 64 MiB


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_kernel(world, dtype, world_size):
    world(bodies.one_shot_kernel, world_size, args=(dtype,))


def test_inline_ptx(world):
    for world_size in (2, 4):
        world(bodies.inline_ptx, world_size)
    simulated_world(bodies.inline_ptx, 4, check="race")


@pytest.mark.parametrize("world_size", [2, 4])
def test_sub_groups(world, world_size):
    world(bodies.sub_groups, world_size)
    world(bodies.fresh_world, world_size)
    simulated_world(bodies.sub_groups, world_size)


def test_operators_that_differ(world):
    world(bodies.operators_that_differ, 2)


def test_a_signal_that_never_comes(world):
    with pytest.raises(DeadlockError, match=r"wait_signal\(src_rank=1, channel=2\).*waits for signal_pad of tensor\[5\] of rank 0 == 1"):
        world(bodies.signal_that_never_comes, 2)


def test_a_rendezvous_that_leaves_a_rank_out(world):
    with pytest.raises(DeadlockError, match="rendezvous of 'tensor'.*waits for ranks \\[0\\]"):
        world(bodies.rank_that_stays_away, 3)
