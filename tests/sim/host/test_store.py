"""The key-value store of the simulated ranks, as torch.distributed's own code uses it."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from triton_dist.errors import DeadlockError, NotInitializedError
from triton_dist.runtime import world
from triton_dist.sim.simulate import simulate
from triton_dist.sim.store import HostStore

pytestmark = pytest.mark.host_code


def test_ranks_share_it():
    def fn():
        dist.init_process_group("gloo")
        store = _get_default_store()
        rank, size = world.rank(), world.world_size()
        if rank == size - 1:
            store.set("word", "from the last rank")
        store.set(f"rank {rank}", bytes([rank]))
        store.wait([f"rank {peer}" for peer in range(size)])
        return store.get("word").decode(), store.add("count", rank) >= rank, [store.get(f"rank {peer}")[0] for peer in range(size)]

    for seed in range(3):
        assert simulate(fn, 3, seed=seed) == [("from the last rank", True, [0, 1, 2])] * 3


def test_store_that_the_script_makes(tmp_path):
    def fn():
        store = dist.FileStore(str(tmp_path / "store"), world.world_size())
        if world.rank():
            store.wait([f"rank {world.rank() - 1}"])
        store.set(f"rank {world.rank()}", "there")
        return store.get(f"rank {world.world_size() - 1}")

    assert simulate(fn, 3) == [b"there"] * 3
    store = dist.HashStore()
    store.set("outside", "as ever")
    assert store.get("outside") == b"as ever"


def test_key_of_a_file_that_is_never_set(tmp_path):
    def fn():
        dist.FileStore(str(tmp_path / "store"), world.world_size()).wait(["never"])

    with pytest.raises(DeadlockError, match="store.wait for .*never"):
        simulate(fn, 2)


def test_barrier_after_init():
    def fn():
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
        dist.init_process_group("gloo")
        group = dist.new_group([0, 1])
        return group is not dist.GroupMember.NON_GROUP_MEMBER

    assert simulate(fn, 3) == [True, True, False]


def test_key_that_is_never_set():
    def fn():
        dist.init_process_group("gloo")
        _get_default_store().get("missing")

    with pytest.raises(DeadlockError, match="store.wait for .*missing"):
        simulate(fn, 2)


def test_operations():
    store = HostStore()
    store.set("a", "1")
    assert store.add("a", 4) == 5
    assert store.check(["a"])
    assert not store.check(["a", "b"])
    assert store.compare_set("a", "5", "6") == b"6"
    assert store.compare_set("a", "5", "7") == b"6"
    assert store.compare_set("new", "", "first") == b"first"
    assert store.compare_set("newer", "x", "y") == b"x"
    assert store.num_keys() == 2
    assert store.delete_key("a")
    assert not store.delete_key("a")
    with pytest.raises(NotInitializedError, match="outside simulate"):
        store.wait(["a"])


def test_store_given_by_the_caller():
    def fn(store):
        dist.init_process_group("gloo", store=store, rank=world.rank(), world_size=world.world_size())
        total = torch.tensor([1])
        dist.all_reduce(total)
        return total.item()

    assert simulate(fn, 3, args=(dist.HashStore(),)) == [3, 3, 3]
