"""What the checks say of misuse of torch's symmetric memory: signal pads that are shared or left set, workspaces that grew."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
from triton_dist.errors import MisuseError, UseAfterFreeError
from triton_dist.sim.check.actors import too_narrow
from triton_dist.sim.simulate import simulate

from .kernels import one_shot_all_reduce_kernel


@triton.jit
def fill_kernel(address, value, COUNT: tl.constexpr):
    tl.store(address.to(tl.pointer_type(tl.float32)) + tl.arange(0, COUNT), tl.zeros([COUNT], tl.float32) + value)


def handle_of(count=64, group=None):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    buffer = symm_mem.empty(count, device="cuda").fill_(0)
    return symm_mem.rendezvous(buffer, group or dist.group.WORLD)


def barriers_on_two_streams(channels):
    def fn():
        handle, side = handle_of(), triton_dist.Stream()
        handle.barrier(channel=0)
        with triton_dist.stream(side):
            handle.barrier(channel=channels)

    return fn


@pytest.mark.parametrize("seed", range(3))
def test_two_streams_that_share_a_channel(seed):
    with pytest.raises(MisuseError, match=r"TD110.*signal_pad of buffer\[\d\].*two streams of rank \d use it.*channel of its own"):
        simulate(barriers_on_two_streams(0), 2, check="lint", seed=seed)
    simulate(barriers_on_two_streams(1), 2, check="lint", seed=seed)


def test_two_streams_in_order_may_share_a_channel():
    def fn():
        handle, side = handle_of(), triton_dist.Stream()
        handle.barrier()
        side.wait_stream(triton_dist.current_stream())
        with triton_dist.stream(side):
            handle.barrier()

    simulate(fn, 2, check="all")


@pytest.mark.parametrize("slots", [0, 1])
def test_kernels_on_two_streams(slots):
    """slots: by how many groups of words the second kernel's are further."""

    def fn():
        handle, side = handle_of(), triton_dist.Stream()
        pads = handle.signal_pad_ptrs_dev
        other = torch.tensor([address + 4 * slots * handle.world_size for address in handle.signal_pad_ptrs])
        results = [torch.empty(64), torch.empty(64)]

        def launch(pads, result):
            one_shot_all_reduce_kernel[(1,)](
                handle.buffer_ptrs_dev, pads, result, 64, handle.rank, WORLD=2, BLOCK=64, MEET_BEFORE=True, MEET_AFTER=True
            )

        launch(pads, results[0])
        with triton_dist.stream(side):
            launch(other.data_ptr(), results[1])
        triton_dist.synchronize()

    if slots:
        simulate(fn, 2, check="lint")
        return
    with pytest.raises(MisuseError, match=r"TD110.*two streams of rank \d use it"):
        simulate(fn, 2, check="lint")


def test_groups_that_share_a_pad():
    def fn():
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        groups = [dist.new_group([0, 1]), dist.new_group([0, 2])]
        buffer = symm_mem.empty(16, device="cuda")
        for group, members in zip(groups, ([0, 1], [0, 2]), strict=True):
            if rank in members:
                symm_mem.rendezvous(buffer, group).barrier()

    with pytest.raises(MisuseError, match=r"TD110.*signal_pad of buffer\[1\] of rank 0.*two ranks signal by it, of different groups"):
        simulate(fn, 3, check="lint")


def test_a_signal_that_nobody_waits_for():
    def fn(waits):
        handle = handle_of()
        if handle.rank == 0:
            handle.put_signal(1, channel=2)
        elif waits:
            handle.wait_signal(0, channel=2)

    simulate(fn, 2, args=(True,), check="lint")
    with pytest.raises(MisuseError, match=r"TD118.*signal_pad of buffer\[4\] of rank 1 is 1 .*put_signal\(dst_rank=1, channel=2\)"):
        simulate(fn, 2, args=(False,), check="lint")


def test_addresses_of_a_workspace_that_grew():
    def fn(again):
        dist.init_process_group("nccl")
        group = dist.group.WORLD.group_name
        address = symm_mem.get_symm_mem_workspace(group, 1 << 18).buffer_ptrs[dist.get_rank()]
        fill_kernel[(1,)](address + (1 << 17), 1.0, 64)
        triton_dist.synchronize()
        if again:
            address = symm_mem.get_symm_mem_workspace(group, 1 << 19).buffer_ptrs[dist.get_rank()]
        else:
            symm_mem.get_symm_mem_workspace(group, 1 << 19)
        dist.barrier()
        symm_mem.empty(1 << 17)
        fill_kernel[(1,)](address + (1 << 17), 2.0, 64)

    simulate(fn, 2, args=(True,))
    with pytest.raises(UseAfterFreeError, match=r"store of workspace_of_group_0\[\d+\] of rank \d, which was freed before"):
        simulate(fn, 2, args=(False,))


@triton.jit
def count_kernel(signal_pads, rank, ROUNDS: tl.constexpr):
    """A word of the next rank's pad that counts: the other one adds, its owner looks at it by swapping 0 for 0, and takes off."""
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    own = tl.load(tables + rank).to(tl.pointer_type(tl.int64)) + 8
    peer = tl.load(tables + 1 - rank).to(tl.pointer_type(tl.int64)) + 8
    for _ in range(ROUNDS):
        tl.atomic_add(peer, 1, sem="release", scope="sys")
        zero = tl.cast(0, tl.int64)
        while tl.atomic_cas(own, zero, zero, sem="acquire", scope="sys") < 1:
            pass
        tl.atomic_add(own, -1, sem="relaxed", scope="sys")


@pytest.mark.parametrize("seed", range(3))
def test_a_word_of_a_pad_that_counts(seed):
    def fn():
        handle = handle_of()
        count_kernel[(1,)](handle.signal_pad_ptrs_dev, handle.rank, 4)

    simulate(fn, 2, check="lint", seed=seed)


def test_texts_of_accesses_that_no_rank_makes():
    assert too_narrow(1, 0, 2, -1) == 'its scope gpu does not reach what a stream or a copy writes; use "sys"'
    assert too_narrow(1, 0, 2, 1) == 'its scope gpu does not reach from rank 0 to rank 1; use "sys"'


@triton.jit
def read_kernel(address, out, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    tl.store(out + places, tl.load(address.to(tl.pointer_type(tl.float32)) + places))


def keep_by_barrier(handle):
    handle.barrier()


def keep_by_signals(handle):
    peer = 1 - handle.rank
    handle.put_signal(peer)
    handle.wait_signal(peer)


KEEPERS = {
    "nothing": lambda handle: None,
    "barrier": keep_by_barrier,
    "signals": keep_by_signals,
    "two barriers": lambda handle: (handle.barrier(0), handle.barrier(1)),
    "memset32": lambda handle: handle.memset32(handle.get_signal_pad(handle.rank), 64, 0, 1),
}
"""What is queued on a stream with the handle, which lives as long as that has not run."""


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_is_queued_keeps_the_memory_until_it_has_run_and_no_longer(keeper, launched):
    def fn():
        dist.init_process_group("nccl")
        buffer = symm_mem.empty(256)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        address = handle.buffer_ptrs[1 - handle.rank]
        KEEPERS[keeper](handle)
        if launched:
            read_kernel[(1,)](address, torch.empty(64), 64)
        triton_dist.synchronize()
        dist.barrier()
        del buffer, handle
        symm_mem.empty(7)
        dist.barrier()
        symm_mem.empty(9)
        read_kernel[(1,)](address, torch.empty(64), 64)

    with pytest.raises(UseAfterFreeError, match=r"load of buffer\[0\] of rank \d, which was freed before"):
        simulate(fn, 2)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_workspace_that_grew_behind_a_barrier(keeper):
    def fn():
        dist.init_process_group("nccl")
        group = dist.group.WORLD.group_name
        handle = symm_mem.get_symm_mem_workspace(group, 1024)
        address = handle.buffer_ptrs[1 - handle.rank]
        KEEPERS[keeper](handle)
        triton_dist.synchronize()
        del handle
        symm_mem.get_symm_mem_workspace(group, 4096)
        read_kernel[(1,)](address, torch.empty(64), 64)

    with pytest.raises(UseAfterFreeError, match=r"load of workspace_of_group_0\[0\] of rank \d, which was freed before"):
        simulate(fn, 2)


@pytest.mark.parametrize("seed", range(4))
def test_memory_that_queued_work_uses_is_not_given_back(seed):
    def fn():
        dist.init_process_group("nccl")
        out = torch.empty(64)
        buffer = symm_mem.empty(256)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        fill_kernel[(1,)](handle.buffer_ptrs[handle.rank], 3.0, 64)
        handle.barrier()
        read_kernel[(1,)](handle.buffer_ptrs[1 - handle.rank], out, 64)
        handle.barrier()
        del buffer, handle
        for size in (256, 7, 256):
            symm_mem.rendezvous(symm_mem.empty(size), dist.group.WORLD)
        triton_dist.synchronize()
        assert out.tolist() == [3.0] * 64

    simulate(fn, 2, seed=seed)
