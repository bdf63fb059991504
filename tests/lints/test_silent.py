"""Right programs that look like misuse: nothing is found in them."""

from __future__ import annotations

import warnings

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import simulate
from triton_dist.errors import MisuseWarning
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.ops.collectives.barrier import barrier


@triton_dist.jit
def set_once_kernel(ready):
    for peer in range(dl.num_ranks()):
        dl.notify(ready + dl.rank(), peer, signal=1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def wait_for_all_kernel(ready):
    dl.wait(ready, dl.num_ranks(), "sys", "acquire", waitValue=1)


def flag_that_several_calls_wait_for() -> None:
    ready = triton_dist.symm_zeros((8,), torch.int32)
    set_once_kernel[(1,)](ready)
    for _ in range(3):
        wait_for_all_kernel[(2,)](ready)


def flag_of_two_streams() -> None:
    ready, side = triton_dist.symm_zeros((8,), torch.int32), triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    set_once_kernel[(1,)](ready)
    wait_for_all_kernel[(1,)](ready)
    with triton_dist.stream(side):
        wait_for_all_kernel[(1,)](ready)
    triton_dist.current_stream().wait_stream(side)


@triton_dist.jit
def produce_kernel(count, tiles):
    for _ in range(tiles):
        dl.notify(count, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="add", comm_scope="intra_node")


@triton_dist.jit
def consume_kernel(count, tiles):
    for tile in range(tiles):
        dl.wait(count, 1, "sys", "acquire", waitValue=tile + 1, cmp="ge")


def tiles_that_are_waited_for_twice() -> None:
    count, side = triton_dist.symm_zeros((1,), torch.int32), triton_dist.Stream()
    side.wait_stream(triton_dist.current_stream())
    with triton_dist.stream(side):
        produce_kernel[(1,)](count, 8)
    consume_kernel[(1,)](count, 3)
    consume_kernel[(1,)](count, 8)
    triton_dist.current_stream().wait_stream(side)


@triton_dist.jit
def sense_kernel(flags, sense):
    for peer in range(dl.num_ranks()):
        dl.notify(flags + dl.rank(), peer, signal=sense, sig_op="set", comm_scope="intra_node")
    dl.wait(flags, dl.num_ranks(), "sys", "acquire", waitValue=sense)


def barriers_of_alternating_sense() -> None:
    # Two words in turn: with one, a fast rank's next sense could come before a slow rank has seen this one.
    first, second = triton_dist.symm_zeros((8,), torch.int32), triton_dist.symm_zeros((8,), torch.int32)
    for call in range(6):
        sense_kernel[(1,)](first if call % 2 else second, 1 - call // 2 % 2)


@triton_dist.jit
def locked_kernel(lock, total):
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") != 0:
        pass
    tl.debug_barrier()
    tl.store(total, tl.load(total) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release", scope="gpu")


def lock_that_programs_share() -> None:
    total = torch.zeros(1, dtype=torch.int32)
    locked_kernel[(6,)](torch.zeros(1, dtype=torch.int32), total)
    assert total.item() == 6


@triton_dist.jit
def arrive_kernel(count):
    for peer in range(dl.num_ranks()):
        dl.notify(count, peer, signal=1, sig_op="add", comm_scope="intra_node")
    dl.wait(count, 1, "sys", "acquire", waitValue=dl.num_ranks() * tl.num_programs(0))


def count_that_the_host_resets() -> None:
    count = triton_dist.symm_zeros((1,), torch.int32)
    for _ in range(3):
        arrive_kernel[(2,)](count)
        barrier()
        count.zero_()
        barrier()


@triton_dist.jit
def defined_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    on = offset < count
    value = tl.load(x + offset, mask=on)
    large = (value > 0) & on
    tl.store(out + offset, value * 2, mask=on & (offset > 3))
    tl.store(out + offset, tl.where(large, value, 0.0))
    tl.store(out + BLOCK, tl.sum(tl.where(on, value, 0.0)))
    everything = tl.load(x + offset % count, mask=offset < BLOCK)
    tl.store(out + BLOCK + 1, tl.sum(everything))
    part = tl.load(x + offset, mask=on)
    if count > BLOCK:
        tl.store(out, tl.sum(part))


def values_that_are_masked_again() -> None:
    defined_kernel[(1,)](torch.ones(100), torch.zeros(130), 100, BLOCK=128)


@triton_dist.jit
def smallest_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    on = offset < count
    value = tl.load(x + offset, mask=on)
    tl.atomic_min(out + offset, value, mask=on)
    tl.atomic_max(out, tl.max(tl.where(on, value, -1.0)))


def values_that_atomics_combine() -> None:
    smallest_kernel[(2,)](torch.ones(100), torch.zeros(100), 100, BLOCK=128)


@triton_dist.jit
def wrapping_kernel(x, out, size, stride, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    hashed = (offset * 1000003 * 7919) % size
    hashed = tl.where(hashed < 0, hashed + size, hashed)
    row = offset * stride
    far = tl.load(x + row, mask=offset < 1, other=0)
    back = offset * stride - offset * (stride - 1)
    tl.store(out + offset, tl.load(x + hashed) + far + tl.load(x + back))


def offsets_that_may_wrap() -> None:
    wrapping_kernel[(1,)](torch.zeros(64), torch.zeros(64), 64, 1 << 27, BLOCK=64)


def offsets_of_lanes_that_are_off() -> None:
    wrapping_kernel[(1,)](torch.zeros(64), torch.zeros(64), 64, 32, BLOCK=64)


@triton_dist.jit
def put_and_read_kernel(data, flag, source, out, COUNT: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    shmem.putmem_signal_block(data, source, COUNT * 4, flag, 1, shmem.NVSHMEM_SIGNAL_SET, after)
    if dl.tid(0) == 0:
        shmem.signal_wait_until(flag, shmem.NVSHMEM_CMP_EQ, 1)
    dl.__syncthreads()
    tl.store(out + place, tl.load(data + place))


def memory_that_a_put_fills() -> None:
    data, flag = triton_dist.symm_empty((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int64)
    put_and_read_kernel[(1,)](data, flag, torch.full((64,), -1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), COUNT=64)


def memory_that_numpy_fills() -> None:
    data = triton_dist.symm_empty((64,), torch.int32)
    data.numpy()[:] = 3
    assert (data * 2).sum().item() == 64 * 6


def padding_that_is_copied() -> None:
    data = triton_dist.symm_empty((64,), torch.int32)
    data[:40] = 1
    assert data.clone()[:40].sum().item() == 40


@triton_dist.jit
def number_kernel(out, number):
    tl.store(out + number, number)


def numbers_that_are_no_ranks() -> None:
    out = torch.zeros(8, dtype=torch.int32)
    for number in range(4):
        number_kernel[(1,)](out, number)


@triton_dist.jit
def tiles_kernel(a, ready, out, TILES: tl.constexpr, TILE: tl.constexpr):
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    after = (dl.rank() + 1) % dl.num_ranks()
    for tile in range(TILES):
        dl.notify(ready + tile, after, signal=1, sig_op="set", comm_scope="intra_node")
        dl.wait(ready + tile, 1, "sys", "acquire", waitValue=1)
        total = tl.zeros((TILE, TILE), tl.float32)
        for step in range(3):
            part = tl.load(a + step * TILE * TILE + row * TILE + column)
            total = tl.dot(part, part, total)
        tl.store(out + row * TILE + column, total)


def wait_once_for_each_tile() -> None:
    ready = triton_dist.symm_zeros((2,), torch.int32)
    tiles_kernel[(1,)](torch.ones(3, 16, 16), ready, torch.zeros(16, 16), TILES=2, TILE=16)


PROGRAMS = [
    flag_that_several_calls_wait_for,
    flag_of_two_streams,
    tiles_that_are_waited_for_twice,
    barriers_of_alternating_sense,
    lock_that_programs_share,
    count_that_the_host_resets,
    values_that_are_masked_again,
    values_that_atomics_combine,
    offsets_that_may_wrap,
    offsets_of_lanes_that_are_off,
    memory_that_a_put_fills,
    memory_that_numpy_fills,
    padding_that_is_copied,
    numbers_that_are_no_ranks,
    wait_once_for_each_tile,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_is_silent(program):
    with warnings.catch_warnings():
        warnings.simplefilter("error", MisuseWarning)
        for seed in range(3):
            simulate(program, 3, check="all", seed=seed)
