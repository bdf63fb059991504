"""One rank of a world on GPUs; started by torchrun, checks itself, prints ``name: right`` for each part on rank 0.

``torchrun --nproc-per-node 2 tests/gpu/world_program.py`` runs all parts, or those that are named as arguments.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.ops import ag_gemm
from triton_dist.ops.collectives.barrier import barrier


@triton_dist.jit
def identity_kernel(out):
    tl.store(out, dl.rank())
    tl.store(out + 1, dl.num_ranks())


@triton_dist.jit
def gather_kernel(source, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    for peer in range(dl.num_ranks()):
        tl.store(out + peer * COUNT + offset, tl.load(dl.symm_at(source, peer) + offset))


@triton_dist.jit
def ring_kernel(flags, rounds):
    program = tl.program_id(0)
    peer = (dl.rank() + 1) % dl.num_ranks()
    for number in range(rounds):
        dl.notify(flags + program, peer, signal=number + 1, sig_op="set", comm_scope="intra_node")
        dl.wait(flags + program, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")


def context_page() -> bool:
    out = torch.zeros(2, dtype=torch.int32, device=triton_dist.device())
    identity_kernel[(1,)](out)
    return out.tolist() == [triton_dist.rank(), triton_dist.world_size()] == [dist.get_rank(), dist.get_world_size()]


def peers_by_kernel() -> bool:
    size, count = triton_dist.world_size(), 256
    source = triton_dist.symm_empty((count,), torch.float32)
    source.copy_(torch.arange(count) + 1000.0 * triton_dist.rank())
    out = torch.empty(size, count, device=triton_dist.device())
    barrier()
    gather_kernel[(1,)](source, out, COUNT=count)
    barrier()
    return torch.equal(out.cpu(), torch.arange(float(count)) + 1000 * torch.arange(size)[:, None])


def peers_by_torch() -> bool:
    """Views of a peer's memory: read, written, sliced, transposed."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    grid = triton_dist.symm_zeros((6, 8), torch.int32)
    after = (rank + 1) % size
    triton_dist.symm_peer(grid[2:4], after).fill_(rank + 1)
    triton_dist.symm_peer(grid.t()[1], after)[5] = 77
    barrier()
    before = (rank - 1) % size
    expected = torch.zeros(6, 8, dtype=torch.int32)
    expected[2:4], expected[5, 1] = before + 1, 77
    right = torch.equal(grid.cpu(), expected) and triton_dist.symm_peer(grid, after)[2, 0].item() == rank + 1
    barrier()
    return right and triton_dist.is_symmetric(grid) and not triton_dist.is_symmetric(torch.zeros(1, device=triton_dist.device()))


def signals_go_round() -> bool:
    """Ranks that share a GPU take turns of many milliseconds, so they play few rounds."""
    rounds = 500 if torch.cuda.device_count() >= triton_dist.world_size() else 5
    flags = triton_dist.symm_zeros((8,), torch.int32)
    ring_kernel[(8,)](flags, rounds)
    return flags.tolist() == [rounds] * 8


def host_signals() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    words = triton_dist.symm_zeros((2,), torch.int64)
    side = triton_dist.Stream()
    data = triton_dist.symm_zeros((1 << 20,), torch.float32)
    after = (rank + 1) % size
    source = torch.full((1 << 20,), float(rank + 1), device=triton_dist.device())
    side.wait_stream(triton_dist.current_stream())
    triton_dist.copy_async(triton_dist.symm_peer(data, after), source, side)
    triton_dist.write_value(triton_dist.symm_peer(words, after)[0], 5, side)
    triton_dist.wait_value(words[0], 5, "ge")
    right = (data == (rank - 1) % size + 1).all().item()
    triton_dist.synchronize()
    barrier()
    return bool(right)


def allocation() -> bool:
    """Offsets are used again when no rank has a tensor there; different shapes are named."""
    first = triton_dist.symm_empty((1000,), torch.float32).data_ptr()
    again = triton_dist.symm_empty((1000,), torch.float32).data_ptr()
    right = first == again
    kept = triton_dist.symm_zeros((10,), torch.int8)
    triton_dist.symm_free(kept)
    try:
        triton_dist.symm_peer(kept, 0)
        right = False
    except errors.UseAfterFreeError:
        pass
    if triton_dist.world_size() > 1:
        try:
            triton_dist.symm_empty((10 + triton_dist.rank(),), torch.int8)
            right = False
        except errors.AllocationMismatchError as error:
            right = right and "int8[10]" in str(error) and "int8[11]" in str(error)
    try:
        triton_dist.symm_empty((1 << 40,), torch.int8)
        right = False
    except errors.HeapFullError:
        pass
    try:
        triton_dist.symm_peer(torch.zeros(4, device=triton_dist.device()), 0)
        right = False
    except errors.NotSymmetricError:
        pass
    return right


def gathered_product() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    worst = 0.0
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for method in ("fused", "fused_kernel", "split") + (("nccl",) if torch.cuda.device_count() >= size else ()):
            for rows, columns, depth in ((100, 72, 136), (256, 384, 512)):
                for call in range(20 if torch.cuda.device_count() >= size else 2):
                    generator = torch.Generator(triton_dist.device()).manual_seed(call)
                    a = torch.randn(size * rows, depth, generator=generator, device=triton_dist.device()).to(dtype)
                    b = torch.randn(depth, columns, device=triton_dist.device()).to(dtype)
                    out = ag_gemm(a[rank * rows : (rank + 1) * rows], b, method=method)
                    reference = a.double() @ b.double()
                    error = ((out.double() - reference).abs().max() / reference.abs().max()).item()
                    worst = max(worst, error if dtype != torch.float32 else error * 1000)
    return worst < 8e-3


def replayed_graph() -> bool:
    """ag_gemm captured once and replayed with other inputs each time."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    rows, columns, depth = 128, 128, 256
    shard = torch.zeros(rows, depth, device=triton_dist.device(), dtype=torch.bfloat16)
    b = torch.randn(depth, columns, generator=torch.Generator(triton_dist.device()).manual_seed(7), device=triton_dist.device()).bfloat16()
    out = torch.empty(size * rows, columns, device=triton_dist.device(), dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        ag_gemm(shard, b, out=out, method="fused")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        ag_gemm(shard, b, out=out, method="fused")
    right = True
    for call in range(200 if torch.cuda.device_count() >= size else 5):
        a = torch.randn(
            size * rows, depth, generator=torch.Generator(triton_dist.device()).manual_seed(call), device=triton_dist.device()
        ).bfloat16()
        shard.copy_(a[rank * rows : (rank + 1) * rows])
        graph.replay()
        reference = a.double() @ b.double()
        right = right and ((out.double() - reference).abs().max() / reference.abs().max()).item() < 8e-3
    return right


PARTS = [context_page, peers_by_kernel, peers_by_torch, signals_go_round, host_signals, allocation, gathered_product, replayed_graph]


def joined_again() -> bool:
    """Leave the world and join one with a smaller heap, in one process."""
    triton_dist.finalize()
    triton_dist.initialize(heap_size=64 << 20)
    return context_page() and peers_by_kernel()


PARTS.append(joined_again)


def main() -> None:
    triton_dist.initialize()
    chosen = sys.argv[1:]
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        right = part()
        torch.cuda.synchronize()
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, right)
        if triton_dist.rank() == 0:
            wrong = [rank for rank, there in enumerate(everyone) if not there]
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
    triton_dist.finalize()


if __name__ == "__main__":
    main()
