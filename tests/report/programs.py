"""Small programs whose reports the tests look at."""

import torch
import torch.distributed as dist
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device


@triton_dist.jit
def ring_kernel(flags, ROUNDS: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    for number in range(ROUNDS):
        dl.notify(flags + tl.program_id(0), peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(flags + tl.program_id(0), 1, "sys", "acquire", waitValue=number + 1, cmp="ge")


def ring(rounds=2, programs=2):
    flags = triton_dist.symm_zeros((programs,), torch.int32)
    ring_kernel[(programs,)](flags, ROUNDS=rounds)


@triton_dist.jit
def race_kernel(inbox, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, 1 - dl.rank()) + offset, offset)
    tl.store(out + offset, tl.load(inbox + offset))


def race():
    inbox = triton_dist.symm_zeros((16,), torch.int32)
    race_kernel[(1,)](inbox, torch.zeros(16, dtype=torch.int32), COUNT=16)


@triton_dist.jit
def stuck_kernel(flags, out, ROUNDS: tl.constexpr):
    dl.wait(flags, 1, "sys", "acquire", waitValue=1)
    for _ in range(ROUNDS):
        tl.store(out + tl.arange(0, 4), 5)
        tl.device_print("went on", tl.program_id(0))
        dl.notify(flags, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="set", comm_scope="intra_node")


def stuck(rounds=1, out=None):
    flags = triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(4, dtype=torch.int32) if out is None else out
    stuck_kernel[(1,)](flags, out, ROUNDS=rounds)
    triton_dist.synchronize()


@triton_dist.jit
def spin_kernel(flag):
    while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") == 0:
        pass


@triton_dist.jit
def beyond_kernel(values):
    tl.store(values + 4 * tl.program_id(0) + tl.arange(0, 4), 1)


def beyond():
    beyond_kernel[(2,)](triton_dist.symm_zeros((4,), torch.int32))


def fails(text):
    ring()
    if triton_dist.rank() == 1:
        raise ValueError(text)
    triton_dist.synchronize()


@triton_dist.jit
def tile_flags_kernel(flags):
    """Rank 0 stores a tile of flags, rank 1 a single flag by its copy engine; each waits for the other one."""
    offset = tl.arange(0, 4)
    if dl.rank() == 0:
        tl.store(dl.symm_at(flags, 1) + offset, 1 + offset)
    dl.wait(flags + 2, 1, "sys", "acquire", waitValue=3)


def tile_flags():
    flags, source = triton_dist.symm_zeros((4,), torch.int32), torch.arange(1, 5, dtype=torch.int32)
    other = triton_dist.Stream()
    tile_flags_kernel[(1,)](flags)
    if triton_dist.rank() == 1:
        triton_dist.wait_value(flags[2:3], 3, stream=other)
        triton_dist.copy_async(triton_dist.symm_peer(flags, 0), source, stream=other)


@triton_dist.jit
def put_kernel(inbox, source):
    libshmem_device.putmem_nbi_block(inbox, source, 64, (libshmem_device.my_pe() + 1) % libshmem_device.n_pes())
    libshmem_device.barrier_all_block()


def put():
    inbox, source = triton_dist.symm_zeros((16,), torch.int32), triton_dist.symm_zeros((16,), torch.int32)
    put_kernel[(1,)](inbox, source)


def streams():
    """Copies, events, values that streams write and wait for, operators and a collective."""
    mine, flag = triton_dist.symm_zeros((256,), torch.float32), triton_dist.symm_zeros((1,), torch.int32)
    inbox = triton_dist.symm_zeros((128,), torch.float32)
    peer = 1 - triton_dist.rank()
    other = triton_dist.Stream()
    ring()
    mine.add_(1)
    other.wait_stream(triton_dist.current_stream())
    triton_dist.copy_async(triton_dist.symm_peer(inbox, peer), mine[128:], stream=other)
    triton_dist.write_value(triton_dist.symm_peer(flag, peer), 1, stream=other)
    triton_dist.wait_value(flag, 1, stream=other)
    other.synchronize()
    dist.init_process_group("gloo")
    dist.all_reduce(mine)
    return float(mine.sum())
