"""Kernels launched by the host functions of several ranks: lifetimes, streams, autotuning, signals from the host."""

import gc

import numpy as np
import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

from triton_dist.errors import DeadlockError, InvalidArgumentError, OutOfBoundsError, UseAfterFreeError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim.simulate import simulate

SEEDS = range(4)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def spin_kernel(flag_ptr, out_ptr):
    while tl.load(flag_ptr, volatile=True) != 1:
        pass
    tl.store(out_ptr, 5.0)


@triton.jit
def table_kernel(table_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    source = tl.load(table_ptr + row).to(tl.pointer_type(tl.float32))
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + row * BLOCK + offsets, tl.load(source + offsets))


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_tensors_may_be_dropped_while_launches_are_queued(world_size):
    def fn():
        out = torch.zeros(1000)
        for value in range(4):
            x, y = torch.full((1000,), float(value)), torch.full((1000,), world.rank() + 1.0)
            add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
            del x, y
            gc.collect()
            torch.full((1000,), -1e9)
        return out.sum().item()

    assert simulate(fn, world_size) == [1000.0 * (3 + rank + 1) for rank in range(world_size)]


@pytest.mark.parametrize("seed", SEEDS)
def test_torch_operators_and_launches_take_turns(seed):
    def fn():
        x, out = torch.ones(700), torch.empty(700)
        for _ in range(3):
            x.mul_(2)
            add_kernel[(3,)](x, x, out, 700, BLOCK=256)
            x = out + 0
        return x.unique().tolist()

    assert simulate(fn, 3, seed=seed) == [[64.0]] * 3


def test_host_opens_what_a_kernel_spins_on():
    def fn():
        flag, out = symmetric.symm_zeros(1, torch.int32), torch.zeros(1)
        spin_kernel[(1,)](flag, out)
        assert world.require_world("busy").busy()
        with streams.stream(streams.Stream()):
            symmetric.symm_peer(flag, (world.rank() + 1) % world.world_size()).fill_(1)
        return out.item()

    for seed in SEEDS:
        assert simulate(fn, 3, seed=seed) == [5.0] * 3


def test_host_writes_through_numpy():
    """A word that numpy changes behind torch's back still wakes the kernel."""

    def fn():
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
        view = flag.numpy()
        spin_kernel[(1,)](flag, out)
        view[0] = 1
        return out.item()

    assert simulate(fn, 2) == [5.0] * 2


def test_kernel_that_nobody_wakes():
    def fn():
        flag = symmetric.symm_zeros(1, torch.int32)
        spin_kernel[(1,)](flag, torch.zeros(1))

    with pytest.raises(DeadlockError, match="spin_kernel"):
        simulate(fn, 2)


def test_tables_of_pointers():
    def fn():
        rows = [torch.full((16,), float(row)) for row in range(3)]
        table = torch.tensor([row.data_ptr() for row in rows])
        out = torch.empty(3, 16)
        table_kernel[(3,)](table, out, BLOCK=16)
        return out.sum(1).tolist()

    assert simulate(fn, 2) == [[0.0, 16.0, 32.0]] * 2


def test_symmetric_memory_in_kernels():
    def freed():
        words = symmetric.symm_zeros(256)
        symmetric.symm_free(words)
        add_kernel[(1,)](words, words, words, 256, BLOCK=256)

    with pytest.raises(UseAfterFreeError, match="words"):
        simulate(freed, 2)

    def short():
        words = symmetric.symm_zeros(200)
        add_kernel[(1,)](words, words, words, 256, BLOCK=256)

    with pytest.raises(OutOfBoundsError, match=r"words\[200\] of rank \d"):
        simulate(short, 2)


tuned = []


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, pre_hook=lambda arguments: tuned.append(world.rank())) for block in (64, 256)],
    key=["n"],
    restore_value=["out_ptr"],
)
@triton.jit
def accumulate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(out_ptr + offsets, mask=mask) + tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


@pytest.mark.parametrize("seed", SEEDS)
def test_autotuned_kernels(seed):
    """All ranks tune the same kernel object, one inside the other's benchmark."""
    accumulate_kernel.cache.clear()
    tuned.clear()

    def fn():
        x, out = torch.full((1000,), world.rank() + 1.0), torch.ones(1000)
        accumulate_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
        return out.unique().tolist()

    assert simulate(fn, 4, seed=seed) == [[rank + 2.0] for rank in range(4)]
    assert set(tuned) == set(range(4))


def test_launches_follow_the_current_stream():
    def fn():
        dist.init_process_group("gloo")
        flag, out = symmetric.symm_zeros(1, torch.int32), torch.zeros(1)
        held, free = streams.Stream(), streams.Stream()
        with streams.stream(held):
            spin_kernel[(1,)](flag, out)
        with streams.stream(free):
            sums = torch.empty(10)
            add_kernel[(1,)](torch.ones(10), torch.ones(10), sums, 10, BLOCK=16)
            assert sums.tolist() == [2.0] * 10
        assert not held.query()
        streams.write_value(flag, 1)
        held.synchronize()
        return out.item()

    assert simulate(fn, 2) == [5.0] * 2


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ((1.5,), "dimension x is 1.5; it has to be an integer"),
        (("2",), "dimension x is '2'"),
        ((-1,), "dimension x is -1; a GPU takes 0 to 2147483647"),
        ((1, 65_536), "dimension y is 65536; a GPU takes 0 to 65535"),
        ((1, 1, 70_000), "dimension z is 70000"),
    ],
)
def test_grids_that_no_gpu_takes(grid, text):
    with pytest.raises(InvalidArgumentError, match=text):
        add_kernel[grid](torch.zeros(4), torch.zeros(4), torch.zeros(4), 4, 4)


def test_grids_of_any_integer_type():
    out = torch.zeros(6)
    add_kernel[(np.int64(1), torch.tensor(2))](torch.ones(6), torch.ones(6), out, 6, 8)
    assert (out == 2.0).all()
