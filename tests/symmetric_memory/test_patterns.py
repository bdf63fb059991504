"""Patterns of public kernels for torch's symmetric memory, written anew, each with a twin that is wrong."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
from triton_dist.errors import DataRaceError
from triton_dist.sim.simulate import simulate

from .kernels import meet_peers

SIZES = [1, 2, 4, 8]


def memory(*size, dtype=torch.float32, name=None):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    buffer = symm_mem.empty(*size, dtype=dtype, device="cuda")
    return buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)


@triton.jit
def two_shot_kernel(buffers, signal_pads, RANK: tl.constexpr, WORLD: tl.constexpr, PART: tl.constexpr, MEET_BETWEEN: tl.constexpr):
    """Each rank reduces one part in place in its own memory, then copies the parts of the others."""
    meet_peers(signal_pads, 0, RANK, WORLD)
    tables, offsets = buffers.to(tl.pointer_type(tl.uint64)), tl.arange(0, PART)
    own = tl.load(tables + RANK).to(tl.pointer_type(tl.float32))
    total = tl.zeros([PART], tl.float32)
    for peer in range(WORLD):
        total += tl.load(tl.load(tables + peer).to(tl.pointer_type(tl.float32)) + RANK * PART + offsets)
    tl.store(own + RANK * PART + offsets, total)
    if MEET_BETWEEN:
        tl.debug_barrier()
        meet_peers(signal_pads, 1, RANK, WORLD)
    for step in range(1, WORLD):
        peer = (RANK + step) % WORLD
        part = tl.load(tl.load(tables + peer).to(tl.pointer_type(tl.float32)) + peer * PART + offsets)
        tl.store(own + peer * PART + offsets, part)
    tl.debug_barrier()
    meet_peers(signal_pads, 2, RANK, WORLD)


def two_shot(meet_between=True, part=32):
    dist.init_process_group("nccl")
    buffer, handle = memory(part * dist.get_world_size())
    results = []
    for number in range(2):
        buffer.copy_(torch.arange(buffer.numel()) + handle.rank + number)
        two_shot_kernel[(1,)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size, PART=part, MEET_BETWEEN=meet_between
        )
        results.append(buffer.clone())
    return results


@pytest.mark.parametrize("world_size", SIZES)
def test_two_shot_all_reduce(world_size):
    for results in simulate(two_shot, world_size, check="all"):
        for number, result in enumerate(results):
            assert torch.equal(result, sum(torch.arange(32.0 * world_size) + rank + number for rank in range(world_size)))


def test_two_shot_without_the_meeting_between():
    with pytest.raises(DataRaceError, match="buffer"):
        simulate(two_shot, 2, args=(False,), check="race")


@triton.jit
def consume_kernel(gathered, progress, out, PART: tl.constexpr, WAITS: tl.constexpr):
    """One program a part of the gathered matrix, as soon as the copy engine has said that it is there."""
    part = tl.program_id(0)
    if WAITS:
        while tl.atomic_add(progress + part, 0, sem="acquire", scope="sys") != 1:
            pass
    offsets = part * PART + tl.arange(0, PART)
    tl.store(out + offsets, tl.load(gathered + offsets) * 2)


def gather_with_progress(waits=True, part=64):
    shard, handle = memory(part)
    rank, world_size = handle.rank, handle.world_size
    shard.fill_(rank + 1)
    gathered, out = torch.empty(part * world_size), torch.empty(part * world_size)
    progress, side = torch.zeros(world_size, dtype=torch.int32), triton_dist.Stream()
    handle.barrier()
    side.wait_stream(triton_dist.current_stream())
    with triton_dist.stream(side):
        for step in range(world_size):
            peer = (rank + step) % world_size
            gathered[peer * part : (peer + 1) * part].copy_(handle.get_buffer(peer, (part,), torch.float32))
            handle.stream_write_value32(progress.view(torch.uint32), offset=peer, val=1)
        handle.barrier()
    consume_kernel[(world_size,)](gathered, progress, out, PART=part, WAITS=waits)
    triton_dist.current_stream().wait_stream(side)
    return out.tolist()


@pytest.mark.parametrize("world_size", SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_gather_with_progress(world_size, seed):
    wanted = [2.0 * (rank + 1) for rank in range(world_size) for _ in range(64)]
    assert simulate(gather_with_progress, world_size, check="all", seed=seed) == [wanted] * world_size


def test_gather_without_waiting_for_the_progress():
    with pytest.raises(DataRaceError, match="gathered"):
        simulate(gather_with_progress, 2, args=(False,), check="race")


@triton.jit
def gemm_all_reduce_kernel(
    a, b, out, buffers, signal_pads, K, RANK: tl.constexpr, WORLD: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr,
    COVERED: tl.constexpr,
):  # fmt: skip
    """Product of this rank into its memory, then the sum of all ranks' products. COVERED: the stores of all threads before the signal."""
    rows, columns, inner = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BLOCK_K)
    product = tl.zeros([M, N], tl.float32)
    for k in range(0, K, BLOCK_K):
        product += tl.dot(tl.load(a + rows * K + k + inner[None, :]), tl.load(b + (k + inner[:, None]) * N + columns))
    tables = buffers.to(tl.pointer_type(tl.uint64))
    tl.store(tl.load(tables + RANK).to(tl.pointer_type(tl.float32)) + rows * N + columns, product)
    if COVERED:
        tl.debug_barrier()
    meet_peers(signal_pads, 0, RANK, WORLD)
    total = tl.zeros([M, N], tl.float32)
    for peer in range(WORLD):
        total += tl.load(tl.load(tables + peer).to(tl.pointer_type(tl.float32)) + rows * N + columns)
    tl.store(out + rows * N + columns, total)
    tl.debug_barrier()
    meet_peers(signal_pads, 0, RANK, WORLD)


def product_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(32, 48, generator=generator).bfloat16(), torch.randn(48, 16, generator=generator).bfloat16()


def gemm_all_reduce(covered=True):
    dist.init_process_group("nccl")
    workspace = symm_mem.get_symm_mem_workspace(dist.group.WORLD.group_name, 32 * 16 * 4)
    a, b = product_of(workspace.rank)
    out = torch.empty(32, 16)
    gemm_all_reduce_kernel[(1,)](
        a, b, out, workspace.buffer_ptrs_dev, workspace.signal_pad_ptrs_dev, 48, workspace.rank, workspace.world_size, 32, 16, 16, covered
    )
    return out.clone()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_gemm_all_reduce(world_size):
    wanted = sum(a.double() @ b.double() for a, b in map(product_of, range(world_size))).float()
    for result in simulate(gemm_all_reduce, world_size, check="all"):
        torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)


def test_gemm_all_reduce_without_a_block_barrier():
    with pytest.raises(DataRaceError, match="workspace_of_group_0.*TD103|TD103"):
        simulate(gemm_all_reduce, 2, args=(False,), check="race")
