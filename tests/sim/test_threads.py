"""Code that differs from thread to thread: masked execution of scalars that come from ``tid``."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.language.extra.language_extra import (
    __syncthreads,
    atomic_add,
    atomic_cas,
    ld,
    num_threads,
    num_warps,
    st,
    threads_per_warp,
    tid,
)


@triton_dist.jit
def thread_copy_kernel(source, target, count):
    """A grid-stride loop of threads, as in CUDA."""
    index = tl.program_id(0) * num_threads() + tid(0)
    while index < count:
        st(target + index, ld(source + index, "gpu", "relaxed") + 1, "gpu", "relaxed")
        index += tl.num_programs(0) * num_threads()


@pytest.mark.parametrize("count", [1, 127, 128, 1000])
@pytest.mark.parametrize("warps", [1, 4])
def test_grid_stride_copy(count, warps):
    source, target = torch.arange(count, dtype=torch.int32), torch.zeros(count, dtype=torch.int32)
    thread_copy_kernel[(3,)](source, target, count, num_warps=warps)
    assert torch.equal(target, source + 1)


@triton_dist.jit
def thread_range_kernel(source, target, count):
    for index in range(tid(0), count, num_threads()):
        st(target + index, ld(source + index, "gpu", "relaxed") * 2, "gpu", "relaxed")


def test_a_range_that_starts_at_the_thread():
    source, target = torch.arange(300, dtype=torch.int64), torch.zeros(300, dtype=torch.int64)
    thread_range_kernel[(1,)](source, target, 300)
    assert torch.equal(target, source * 2)


@triton_dist.jit
def add_kernel(counter, olds):
    old = atomic_add(counter, 1, "gpu", "relaxed")
    st(olds + tid(0), old, "gpu", "relaxed")


def test_every_thread_adds():
    """A block of 128 threads adds 128 times; each sees another old value."""
    counter, olds = torch.zeros(1, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    add_kernel[(1,)](counter, olds)
    assert counter.item() == 128 and sorted(olds.tolist()) == list(range(128))


@triton_dist.jit
def first_thread_adds_kernel(counter):
    if tid(0) == 0:
        atomic_add(counter, 1, "gpu", "relaxed")
    __syncthreads()
    if tid(0) < 32:
        atomic_add(counter + 1, 1, "gpu", "relaxed")


def test_only_some_threads_add():
    counter = torch.zeros(2, dtype=torch.int32)
    first_thread_adds_kernel[(5,)](counter)
    assert counter.tolist() == [5, 160]


@triton_dist.jit
def cas_kernel(lock, winner):
    if atomic_cas(lock, 0, tid(0) + 1, "gpu", "acquire") == 0:
        st(winner, tid(0), "gpu", "relaxed")


def test_one_thread_wins_a_compare_and_swap():
    lock, winner = torch.zeros(1, dtype=torch.int32), torch.full((1,), -1, dtype=torch.int32)
    cas_kernel[(1,)](lock, winner)
    assert winner.item() + 1 == lock.item()


@triton_dist.jit
def two_sides_kernel(flag, out):
    """Thread 0 waits in one branch for what thread 1 does in the other."""
    if tid(0) == 0:
        while ld(flag, "gpu", "acquire") != 1:
            pass
        st(out, 7, "gpu", "relaxed")
    else:
        if tid(0) == 1:
            st(flag, 1, "gpu", "release")


def test_branches_run_side_by_side():
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    two_sides_kernel[(1,)](flag, out)
    assert out.item() == 7


@triton_dist.jit
def select_kernel(out, number):
    index = tid(0)
    value = index * 3 if index % 2 == 0 else number - index
    total = 0
    if index > 10:
        value += 1000
        total = value
    st(out + index, value + total, "gpu", "relaxed")


def test_values_merge_after_a_branch():
    out = torch.zeros(128, dtype=torch.int32)
    select_kernel[(1,)](out, 5)
    values = [index * 3 if index % 2 == 0 else 5 - index for index in range(128)]
    assert out.tolist() == [2 * (value + 1000) if index > 10 else value for index, value in enumerate(values)]


@triton_dist.jit
def notify_by_threads_kernel(flags):
    """Each of the first threads tells one peer; each of them waits for one word."""
    index = tid(0)
    if index < dl.num_ranks():
        st(dl.symm_at(flags, index) + dl.rank(), 1, "sys", "release")
    __syncthreads()
    if index < dl.num_ranks():
        while ld(flags + index, "sys", "acquire") != 1:
            pass
    __syncthreads()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_one_thread_a_peer(world_size):
    def run():
        flags = triton_dist.symm_zeros((world_size,), torch.int32)
        notify_by_threads_kernel[(1,)](flags)
        return flags.tolist()

    for seed in range(3):
        assert triton_dist.simulate(run, world_size, seed=seed) == [[1] * world_size] * world_size


@triton_dist.jit
def hang_by_thread_kernel(flags):
    index = tid(0)
    if index < 4:
        while ld(flags + index, "sys", "acquire") != 1:
            pass


def test_threads_that_spin_for_ever_are_a_deadlock():
    flags = torch.tensor([1, 1, 0, 1], dtype=torch.int32)
    with pytest.raises(errors.DeadlockError, match="spins in a loop that sees no change"):
        hang_by_thread_kernel[(1,)](flags)


@triton_dist.jit
def barrier_in_branch_kernel(out):
    if tid(0) < 32:
        __syncthreads()
    tl.store(out, 1)


def test_a_barrier_that_only_some_threads_reach_is_named():
    with pytest.raises(errors.SimulationError, match="block barrier is reached by 32 of 128 threads"):
        barrier_in_branch_kernel[(1,)](torch.zeros(1, dtype=torch.int32))


@triton_dist.jit
def tile_use_kernel(out):
    offset = tid(0) + tl.arange(0, 16)
    tl.store(out + offset, offset)


def test_a_varying_value_in_a_tile_is_named():
    with pytest.raises(errors.UnsupportedOperationError, match="varies from thread to thread"):
        tile_use_kernel[(1,)](torch.zeros(256, dtype=torch.int32))


@triton_dist.jit
def same_store_kernel(out, FIRST: tl.constexpr):
    """What stock Triton stores as a scalar, thread 0 stores: here the others have the same."""
    if tid(0) < FIRST:
        tl.store(out + tid(0) // 512, tid(0) // 256 + 5)


@pytest.mark.parametrize(("first", "stored"), [(128, 5), (7, 5), (1, 5), (0, 0)])
def test_a_stock_store_is_that_of_thread_0(first, stored):
    out = torch.zeros(1, dtype=torch.int32)
    same_store_kernel[(1,)](out, first)
    assert out.item() == stored


@triton_dist.jit
def store_of_all_kernel(out):
    tl.store(out, tid(0) + 5)


@triton_dist.jit
def store_to_all_kernel(out):
    tl.store(out + tid(0), 5)


@triton_dist.jit
def store_of_another_kernel(out):
    if tid(0) == 3:
        tl.store(out, 5)


@triton_dist.jit
def store_of_the_others_kernel(out):
    tl.store(out, 5, mask=tid(0) >= 1)


@triton_dist.jit
def store_in_a_loop_kernel(out):
    for index in range(tid(0), 300, num_threads()):
        tl.store(out, index // 300)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (store_of_all_kernel, "thread 1 has another address or value"),
        (store_to_all_kernel, "thread 1 has another address or value"),
        (store_of_another_kernel, "thread 0 does not come here"),
        (store_of_the_others_kernel, "thread 0 does not come here"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.bfloat16, torch.int64, torch.int8])
def test_a_stock_store_that_is_lost_is_named(kernel, why, dtype):
    with pytest.raises(errors.SimulationError, match=rf"test_threads.py:\d+: tl.store of a scalar .* {why}"):
        kernel[(1,)](torch.zeros(128, dtype=dtype))


def test_a_stock_store_in_a_loop_of_threads():
    store_in_a_loop_kernel[(1,)](torch.zeros(1))


@triton_dist.jit
def varying_notify_kernel(flags):
    dl.notify(flags, tid(0) % 2, signal=1, sig_op="set", comm_scope="intra_node")


def test_a_notify_with_varying_arguments_is_named():
    def run():
        varying_notify_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32))
        triton_dist.synchronize()

    with pytest.raises(errors.UnsupportedOperationError, match="notify is a call of the whole block"):
        triton_dist.simulate(run, 2)


@triton_dist.jit
def constants_kernel(out):
    tl.store(out, num_threads())
    tl.store(out + 1, num_warps())
    tl.store(out + 2, threads_per_warp())


@pytest.mark.parametrize("warps", [1, 2, 8])
def test_sizes_of_a_block(warps):
    out = torch.zeros(3, dtype=torch.int32)
    constants_kernel[(1,)](out, num_warps=warps)
    assert out.tolist() == [32 * warps, warps, 32]


@triton.jit
def nested_loop_kernel(out, count):
    index = tid(0)
    total = 0
    outer = 0
    while outer < index % 3:
        for inner in range(0, count):
            total += inner + outer
        outer += 1
    st(out + index, total, "gpu", "relaxed")


def test_uniform_loop_inside_a_varying_one():
    out = torch.zeros(128, dtype=torch.int32)
    nested_loop_kernel[(1,)](out, 4)
    assert out.tolist() == [sum(inner + outer for outer in range(index % 3) for inner in range(4)) for index in range(128)]


@triton_dist.jit
def wait_by_thread_kernel(flags, out):
    """Each thread waits for a word of its own, by the block's ``wait``."""
    dl.wait(flags + tid(0) % 4, 1, "sys", "acquire", waitValue=1)
    tl.store(out, 1)


@triton.jit
def set_words_kernel(flags):
    tl.atomic_xchg(flags + tl.program_id(0), 1, sem="release")


def test_a_wait_whose_words_differ_from_thread_to_thread():
    def run():
        flags, out = triton_dist.symm_zeros((4,), torch.int32), torch.zeros(1, dtype=torch.int32)
        with triton_dist.stream(triton_dist.Stream()):
            wait_by_thread_kernel[(1,)](flags, out)
        set_words_kernel[(4,)](flags)
        triton_dist.synchronize()
        return out.item()

    assert triton_dist.simulate(run, 2) == [1, 1]


@triton_dist.jit
def wait_in_branch_kernel(flags, out):
    """Thread 0 waits for what thread 40 sets."""
    if tid(0) == 0:
        dl.wait(flags, 1, "gpu", "acquire")
        st(out, 3, "gpu", "relaxed")
    elif tid(0) == 40:
        st(flags, 1, "gpu", "release")


def test_a_wait_under_a_varying_condition_is_named():
    """The wait itself is fulfilled by the other branch, but it is a call of the whole block and ends in its barrier."""
    flags, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(errors.SimulationError, match="block barrier is reached by 1 of 128 threads"):
        wait_in_branch_kernel[(1,)](flags, out)


@triton_dist.jit
def hang_in_branch_kernel(flags):
    if tid(0) == 0:
        dl.wait(flags, 1, "gpu", "acquire", waitValue=5)  # the line that hangs
    else:
        st(flags, 1, "gpu", "release")


def test_a_wait_under_a_varying_condition_that_never_ends_is_named_with_its_line():
    with open(__file__, encoding="utf-8") as file:
        line = next(number for number, text in enumerate(file, 1) if "# the line that hangs" in text)
    with pytest.raises(errors.DeadlockError, match=rf"test_threads.py:{line} waits for flags\[0\] == 5; it is 1, last written by rank 0"):
        hang_in_branch_kernel[(1,)](torch.zeros(1, dtype=torch.int32))


@triton_dist.jit
def load_by_thread_kernel(source, out, count):
    """A scalar load of stock Triton is done by each thread; a masked one gives 0."""
    index = tid(0)
    st(out + index, tl.load(source + index, mask=index < count), "gpu", "relaxed")


def test_stock_loads_with_varying_pointers():
    source, out = torch.arange(1, 129, dtype=torch.int32), torch.full((128,), -1, dtype=torch.int32)
    load_by_thread_kernel[(1,)](source, out, 100)
    assert out.tolist() == [index + 1 if index < 100 else 0 for index in range(128)]


@triton_dist.jit
def load_beside_kernel(source, out, count, OTHER: tl.constexpr, VARYING: tl.constexpr):
    """The mask differs from thread to thread, and the pointer, too, if VARYING."""
    index = tid(0)
    value = tl.load(source + (index if VARYING else 3), mask=index < count, other=OTHER)
    limit = value + 1 if value > 2 else value - 1
    st(out + index, limit, "gpu", "relaxed")


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("varying", [False, True])
def test_arithmetic_on_what_each_thread_loads(dtype, varying):
    source, out = torch.arange(128).to(dtype), torch.zeros(128, dtype=dtype)
    load_beside_kernel[(1,)](source, out, 100, -7, varying)
    loaded = torch.where(torch.arange(128) < 100, source if varying else source[3], torch.tensor(-7).to(dtype))
    assert torch.equal(out, torch.where(loaded > 2, loaded + 1, loaded - 1))


@triton_dist.jit
def loop_on_loaded_kernel(source, out):
    index = tl.load(source + tid(0))
    steps = 0
    while index < 10:
        index += 1
        steps += 1
    st(out + tid(0), steps, "gpu", "relaxed")


def test_a_loop_that_goes_by_what_each_thread_loads():
    out = torch.zeros(128, dtype=torch.int32)
    loop_on_loaded_kernel[(1,)](torch.arange(128, dtype=torch.int32), out)
    assert out.tolist() == [max(0, 10 - index) for index in range(128)]


@triton_dist.jit
def loaded_into_tile_kernel(source, out):
    value = tl.load(source + tid(0))
    tl.store(out + tl.arange(0, 64), tl.zeros((64,), out.dtype.element_ty) + value)


@triton_dist.jit
def loaded_into_full_kernel(source, out):
    tl.store(out + tl.arange(0, 128), tl.full((128,), tl.load(source, mask=tid(0) < 4, other=0), out.dtype.element_ty))


@pytest.mark.parametrize("kernel", [loaded_into_tile_kernel, loaded_into_full_kernel])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_what_each_thread_loads_in_a_tile_is_named(kernel, dtype):
    with pytest.raises(errors.UnsupportedOperationError, match="varies from thread to thread"):
        kernel[(1,)](torch.ones(128, dtype=dtype), torch.zeros(128, dtype=dtype))


@triton_dist.jit
def else_only_kernel(out):
    if tid(0) >= 0:
        st(out + tid(0), 1, "gpu", "relaxed")
    else:
        st(out, 99, "gpu", "relaxed")
    if tid(0) < 0:
        st(out, 98, "gpu", "relaxed")
    else:
        st(out + tid(0), 2, "gpu", "relaxed")


def test_a_varying_condition_that_all_threads_agree_on():
    out = torch.zeros(128, dtype=torch.int32)
    else_only_kernel[(1,)](out)
    assert out.tolist() == [2] * 128


@triton_dist.jit
def zero_step_kernel(out, step):
    for index in range(tid(0), 10, step):
        st(out, index, "gpu", "relaxed")


def test_a_varying_range_with_a_step_of_zero_is_named():
    with pytest.raises(errors.DeviceAssertionError, match="step of a range"):
        zero_step_kernel[(1,)](torch.zeros(1, dtype=torch.int32), 0)


@triton_dist.jit
def tile_in_branch_kernel(out):
    if tid(0) == 0:
        tl.store(out + tl.arange(0, 16), tl.zeros((16,), tl.int32))


@triton_dist.jit
def atomic_in_branch_kernel(out):
    if tid(0) == 0:
        tl.atomic_add(out, 1)


@triton_dist.jit
def varying_return_kernel(out):
    if tid(0) == 0:
        return
    st(out, 1, "gpu", "relaxed")


@triton.jit(noinline=True)
def called(out, index):
    st(out + index, 1, "gpu", "relaxed")


@triton_dist.jit
def notify_in_branch_kernel(out):
    if tid(0) == 0:
        dl.notify(out, 0)


@triton_dist.jit
def varying_call_kernel(out):
    called(out, tid(0))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (tile_in_branch_kernel, "only some threads"),
        (atomic_in_branch_kernel, "only some threads"),
        (varying_return_kernel, "only some threads take"),
        (notify_in_branch_kernel, "notify is a call of the whole block, but only some threads .*; use st or atomic_add"),
        (varying_call_kernel, "drop noinline"),
    ],
)
def test_what_all_threads_have_to_do_is_refused_in_a_branch(kernel, message):
    with pytest.raises(errors.UnsupportedOperationError, match=message) as caught:
        kernel[(1,)](torch.zeros(128, dtype=torch.int32))
    assert "test_threads.py:" in str(caught.value)
