"""Torch's Triton functions for NVSHMEM (``_nvshmem_triton``) on simulated ranks."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.distributed._symmetric_memory._nvshmem_triton as nvshmem
import triton
import triton.language as tl
from triton.language import core

from triton_dist.errors import DataRaceError, DeadlockError, NotSymmetricError, SimulationError
from triton_dist.sim.simulate import simulate


@triton.jit
def put_kernel(dest, source, count, peer):
    nvshmem.put(dest, source, count, peer)


@triton.jit
def get_kernel(dest, source, count, peer, LATER: tl.constexpr):
    if LATER:
        nvshmem.get_nbi(dest, source, count, peer)
        nvshmem.quiet()
    else:
        nvshmem.get(dest, source, count, peer)


@triton.jit
def put_signal_kernel(dest, source, nbytes, word, value, operation, peer):
    nvshmem.putmem_signal_block(dest, source, nbytes, word, value, operation, peer)


@core.extern
def _putmem_signal_nbi_block(dest, source, nbytes, word, value, operation, peer, _semantic=None):
    """As Helion declares it; torch has no function for it."""
    types = [core.dtype(name) for name in ("int64", "int64", "int64", "int64", "uint64", "int32", "int32")]
    symbol = ("nvshmemx_putmem_signal_nbi_block", core.dtype("int32"))
    arguments = [dest, source, nbytes, word, value, operation, peer]
    return core.extern_elementwise("", "", arguments, {tuple(types): symbol}, is_pure=False, _semantic=_semantic)


@triton.jit
def put_signal_later_kernel(dest, source, nbytes, word, value, operation, peer):
    size, value = tl.cast(nbytes, tl.int64), tl.cast(value, tl.uint64)
    operation, peer = tl.cast(operation, tl.int32), tl.cast(peer, tl.int32)
    _putmem_signal_nbi_block(dest.to(tl.int64), source.to(tl.int64), size, word.to(tl.int64), value, operation, peer)


@triton.jit
def signal_wait_kernel(word, comparison, value):
    nvshmem.signal_wait_until(word, comparison, value)


@triton.jit
def wait_until_kernel(word, comparison, value):
    nvshmem.wait_until(word, comparison, value)


@triton.jit
def put_fence_flag_kernel(dest, source, flag, one, nbytes, peer, ORDERED: tl.constexpr):
    nvshmem.put(dest, source, nbytes, peer)
    if ORDERED:
        nvshmem.fence()
    nvshmem.put(flag, one, 1, peer)


@triton.jit
def barrier_kernel(dest, source, count):
    pe = nvshmem.my_pe()
    if pe == 0:
        for peer in range(1, nvshmem.n_pes()):
            nvshmem.put(dest, source, count, peer)
    nvshmem.barrier_all()
    if pe != 0:
        tl.store(dest, tl.load(dest) + pe)


@triton.jit
def collectives_kernel(everyone, gathered, swapped, source, count, root, OPERATION: tl.constexpr):
    nvshmem.broadcast(0, everyone, source, count, root)
    nvshmem.alltoall(0, swapped, source, count)
    nvshmem.sync_all()
    nvshmem.reduce(0, gathered, source, count, OPERATION)


@triton.jit
def signal_op_kernel(word, value, operation, peer):
    nvshmem.signal_op(word.to(tl.int64), value.to(tl.int64), operation, peer)


def symmetric(*size, dtype=torch.float32, value=0):
    """A symmetric tensor with a value, on all ranks that have it when this returns."""
    tensor = symm_mem.empty(*size, dtype=dtype, device="cuda").fill_(value)
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    handle.barrier()
    return tensor


def in_ranks(body, world_size=2, **options):
    def fn():
        dist.init_process_group("nccl")
        symm_mem.set_backend("NVSHMEM")
        return body(dist.get_rank())

    options.setdefault("check", "all")
    return simulate(fn, world_size, **options)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("way", ["put", "get", "get_nbi"])
def test_puts_and_gets(dtype, way):
    def body(rank):
        source, dest = symmetric(9, dtype=dtype, value=rank + 3), symmetric(9, dtype=dtype)
        if way == "put":
            put_kernel[(1,)](dest, source, 8, 1 - rank)
        else:
            get_kernel[(1,)](dest, source, 8, 1 - rank, way == "get_nbi")
        symm_mem.rendezvous(dest, dist.group.WORLD).barrier()
        return dest.tolist()

    assert in_ranks(body) == [[4.0] * 8 + [0.0], [3.0] * 8 + [0.0]]


@pytest.mark.parametrize("kernel", [put_signal_kernel, put_signal_later_kernel])
@pytest.mark.parametrize("operation, seen", [(9, 5), (10, 12)])
@pytest.mark.parametrize("seed", range(3))
def test_a_put_with_a_signal(kernel, operation, seen, seed):
    def body(rank):
        source, dest, word = symmetric(64, value=rank + 1), symmetric(64), symmetric(1, dtype=torch.int64, value=7)
        if rank == 0:
            kernel[(1,)](dest, source, 256, word, 5, operation, 1)
            return None
        signal_wait_kernel[(1,)](word, 0, seen)
        return dest.tolist()

    assert in_ranks(body, seed=seed)[1] == [1.0] * 64


def test_a_put_without_its_signal_races():
    def body(rank):
        source, dest = symmetric(64, value=rank), symmetric(64)
        if rank == 0:
            put_kernel[(1,)](dest, source, 64, 1)
        return dest.clone()

    with pytest.raises(DataRaceError, match=r"dest|tensor"):
        in_ranks(body, check="race")


@pytest.mark.parametrize("comparison, value", [(0, 1), (1, 0), (2, 0), (5, 1)])
def test_waits_for_a_word_of_32_bits(comparison, value):
    def body(rank):
        one, data = symmetric(1, dtype=torch.int32, value=1), symmetric(4, value=rank + 1)
        dest, flag = symmetric(4), symmetric(1, dtype=torch.int32)
        if rank == 0:
            put_fence_flag_kernel[(1,)](dest, data, flag, one, 4, 1, True)
            return None
        wait_until_kernel[(1,)](flag, comparison, value)
        return dest.tolist()

    assert in_ranks(body, check=None)[1] == [1.0] * 4


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_barriers(world_size):
    def body(rank):
        source, dest = symmetric(8, dtype=torch.int32, value=42 + rank), symmetric(8, dtype=torch.int32)
        barrier_kernel[(1,)](dest, source, 8)
        return dest.tolist()

    results = in_ranks(body, world_size)
    assert results[0] == [0] * 8
    assert results[1:] == [[42 + rank] + [42] * 7 for rank in range(1, world_size)]


REDUCED = {"sum": sum, "max": max, "min": min, "prod": lambda values: torch.tensor(list(values)).prod().item()}


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("operation", sorted(REDUCED))
def test_collectives(operation, dtype):
    world_size = 3

    def body(rank):
        source = symmetric(4 * world_size, dtype=dtype, value=rank + 2)
        outs = [symmetric(4 * world_size, dtype=dtype) for _ in range(3)]
        collectives_kernel[(1,)](*outs, source, 4, 1, operation)
        return [out.tolist() for out in outs]

    reduced = REDUCED[operation](range(2, 2 + world_size))
    for everyone, gathered, swapped in in_ranks(body, world_size):
        assert everyone == [3] * 4 + [0] * 8
        assert gathered == [reduced] * 4 + [0] * 8
        assert swapped == [2] * 4 + [3] * 4 + [4] * 4


def test_every_thread_of_a_block_makes_a_signal():
    def body(rank):
        word = symmetric(1, dtype=torch.int64)
        if rank == 0:
            signal_op_kernel[(1,)](word, 2, 10, 1, num_warps=1)
        else:
            signal_wait_kernel[(1,)](word, 0, 64)

    in_ranks(body, check=None)


def test_a_wait_that_nobody_answers_names_the_call():
    def body(rank):
        word = symmetric(1, dtype=torch.int64)
        signal_wait_kernel[(1,)](word, 0, 1)

    seen = r"signal_wait_kernel at .*test_nvshmem_triton.py:\d+ waits for tensor\[0\] of rank 0 == 1; it is 0"
    with pytest.raises(DeadlockError, match=seen):
        in_ranks(body)


def test_a_comparison_that_is_none():
    def body(rank):
        signal_wait_kernel[(1,)](symmetric(1, dtype=torch.int64), 6, 1)

    with pytest.raises(SimulationError, match="comparison 6 is none of NVSHMEM's"):
        in_ranks(body)


def test_memory_of_another_backend_is_refused():
    def body(rank):
        symm_mem.set_backend("CUDA")
        a, b = symmetric(4), symmetric(4)
        put_kernel[(1,)](a, b, 4, 1 - rank)

    with pytest.raises(NotSymmetricError, match='allocated by the backend "CUDA".*set_backend'):
        in_ranks(body)


def test_the_decorator_of_torch():
    hook = triton.knobs.runtime.jit_post_compile_hook

    def body(rank):
        decorated = nvshmem.requires_nvshmem(put_kernel)
        source, dest = symmetric(4, value=rank + 3), symmetric(4)
        decorated[(1,)](dest, source, 4, 1 - rank)
        symm_mem.rendezvous(dest, dist.group.WORLD).barrier()
        return dest.tolist()

    assert in_ranks(body) == [[4.0] * 4, [3.0] * 4]
    assert triton.knobs.runtime.jit_post_compile_hook is hook
