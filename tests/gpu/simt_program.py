"""Code for single threads on one GPU beside torch: elements of tiles, vectors, the warp's exchanges, atomics.

``python tests/gpu/simt_program.py`` runs all parts, or those that are named as arguments, and prints one line a part. The parts take the
device, so that they run on the simulator, too. No loop waits for another thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra.cuda.language_extra import (
    __ballot_sync,
    __shfl_down_sync_i32,
    __shfl_sync_i32,
    __shfl_up_sync_i32,
    __shfl_xor_sync_i32,
    __syncthreads,
    __syncwarp,
    all_sync,
    any_sync,
    atomic_add,
    atomic_add_per_warp,
    atomic_and,
    atomic_cas,
    atomic_exch,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xor,
    elect_sync,
    laneid,
    ld,
    num_threads,
    pack,
    st,
    tid,
    unpack,
    warp_id,
)


@triton_dist.jit
def transpose_kernel(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(source + i[:, None] * N + i[None, :])
    turned = tl.zeros((N, N), tile.dtype)
    with dl.simt_exec_region() as (thread, threads):
        for row in range(N):
            for column in range(thread, N, threads):
                turned[column, row] = tile[row, column]
    tl.store(target + i[:, None] * N + i[None, :], turned)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as integers, which are compared bit by bit."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def transposes(device: str) -> bool:
    """Every width of an element; 8 warps and 1; tiles up to 48 KiB together, and beyond (128 x 128 fp32: 128 KiB)."""
    cases = [(dtype, 32, 4) for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.float64, torch.bool)]
    cases += [
        (torch.float8_e4m3fn, 32, 4),
        (torch.float8_e5m2, 16, 1),
        (torch.float32, 64, 8),
        (torch.float32, 8, 1),
        (torch.float32, 128, 8),
    ]
    right = True
    for dtype, size, warps in cases:
        source = (torch.randn((size, size), device=device) * 20).to(dtype)
        target = torch.zeros_like(source)
        transpose_kernel[(1,)](source, target, size, num_warps=warps)
        right &= torch.equal(bits_of(target), bits_of(source).T)
    return right


@triton_dist.jit
def product_kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for begin in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + begin + inner[None, :], mask=inner[None, :] < K - begin, other=0.0)
        b = tl.load(b_ptr + (begin + inner[:, None]) * N + columns[None, :], mask=inner[:, None] < K - begin, other=0.0)
        with dl.simt_exec_region() as (thread, threads):
            for i in range(M):
                for j in range(thread, N, threads):
                    value = 0.0
                    for k in range(BLOCK):
                        value = value + a[i, k] * b[k, j]
                    total[i, j] = total[i, j] + value
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def product(device: str) -> bool:
    """A region in a loop; on a GPU with tiles of 96 KiB together, which lie at the end of the launch's memory."""
    m, n, block, depth = (128, 128, 64, 255) if device == "cuda" else (16, 16, 8, 20)
    a, b = (torch.randn(shape, device=device, dtype=torch.float16) for shape in ((m, depth), (depth, n)))
    c = torch.zeros((m, n), device=device)
    product_kernel[(1,)](a, b, c, depth, m, n, block)
    return torch.allclose(c, a.float() @ b.float(), atol=2e-2, rtol=2e-2)


@triton_dist.jit
def beside_dot_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    """A region before and one behind a pipelined loop of matrix products, whose operands Triton keeps in shared memory."""
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    bias = tl.zeros((N,), tl.float32)
    with dl.simt_exec_region() as (thread, threads):
        for j in range(thread, N, threads):
            bias[j] = ld(bias_ptr + j) * 2.0
    total = tl.zeros((M, N), tl.float32)
    for begin in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + begin + inner[None, :])
        b = tl.load(b_ptr + (begin + inner[:, None]) * N + columns[None, :])
        total = tl.dot(a, b, total)
    total += bias[None, :]
    with dl.simt_exec_region() as (thread, threads):
        for j in range(thread, N, threads):
            total[0, j] = 7.0
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


def beside_dot(device: str) -> bool:
    """Triton's shared memory and that of regions side by side, in sizes below, around and above 48 KiB."""
    right = True
    for m, n, block, stages in ((64, 64, 64, 2), (128, 64, 64, 3), (128, 128, 64, 3), (64, 64, 32, 4)):
        if device != "cuda":
            m, n, block = 16, 16, 16
        depth = 4 * block
        a, b = (torch.randn(shape, device=device, dtype=torch.float16) for shape in ((m, depth), (depth, n)))
        bias, c = torch.randn(n, device=device), torch.zeros((m, n), device=device)
        beside_dot_kernel[(1,)](a, b, bias, c, depth, m, n, block, num_stages=stages)
        expected = a.float() @ b.float() + 2 * bias
        expected[0] = 7.0
        right &= torch.allclose(c, expected, atol=2e-2, rtol=2e-2)
    return right


@triton_dist.jit
def exchange_kernel(out):
    """Threads exchange elements behind barriers."""
    tile = tl.zeros((256,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        tile[thread] = thread * 3
        __syncthreads()
        neighbour = tile[(thread + 33) % threads]
        __syncthreads()
        tile[thread + threads] = neighbour
        st(out + 256 + thread, neighbour)
    tl.store(out + tl.arange(0, 256), tile)


def exchange(device: str) -> bool:
    out = torch.zeros(384, dtype=torch.int32, device=device)
    exchange_kernel[(1,)](out)
    index = torch.arange(128, dtype=torch.int32, device=device)
    neighbour = (index + 33) % 128 * 3
    return torch.equal(out, torch.cat([index * 3, neighbour, neighbour]))


@triton_dist.jit
def helper(value, SIZE: tl.constexpr):
    tile = tl.zeros((SIZE,), tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        for index in range(thread, SIZE, threads):
            tile[index] = value + index
    return tile


@triton.jit
def plain_kernel(out):
    """A plain kernel over a function with a region, called twice, and single elements outside of a region."""
    both = helper(5, 256) + helper(50, 256)
    both = dl.insert(both, dl.extract(both, [3]) * 2, [200])
    tl.store(out + tl.arange(0, 256), both)


@triton_dist.jit
def nested_kernel(out):
    tile = tl.full((256,), 3, tl.int32)
    with dl.simt_exec_region() as (thread, threads):
        inner = helper(1000, 256)
        tile[thread] += 1
    tl.store(out + tl.arange(0, 256), tile + inner)


def calls(device: str) -> bool:
    """Regions in functions that kernels call, one of them from within a region."""
    index = torch.arange(256, dtype=torch.int32, device=device)
    first, second = torch.zeros_like(index), torch.zeros_like(index)
    plain_kernel[(1,)](first)
    nested_kernel[(1,)](second)
    expected = 55 + 2 * index
    expected[200] = 2 * 61
    return torch.equal(first, expected) and torch.equal(second, index + torch.where(index < 128, 1004, 1003).to(torch.int32))


@triton.jit
def special_elements_kernel(source, out):
    tile = tl.load(source + tl.arange(0, 8))
    for index in tl.static_range(8):
        tl.store(out + index, dl.extract(tile, [index]))


def special_elements(device: str) -> bool:
    """Elements outside of a region keep their bits."""
    source = torch.tensor([-0.0, 0.0, float("nan"), float("inf"), -float("inf"), 1.5, -2.25, 1e-42], device=device)
    out = torch.zeros_like(source)
    special_elements_kernel[(1,)](source, out)
    return torch.equal(bits_of(out), bits_of(source))


@triton_dist.jit
def vector_sum_kernel(x, y, out, count, TILE: tl.constexpr):
    SIZE: tl.constexpr = 128 // x.dtype.element_ty.primitive_bitwidth
    with dl.simt_exec_region() as (thread, threads):
        for tile in range(tl.program_id(0), tl.cdiv(count, TILE), tl.num_programs(0)):
            begin = tile * TILE
            end = min(count, begin + TILE) // SIZE * SIZE
            for place in range(begin + thread * SIZE, end, threads * SIZE):
                total = dl.ld_vector(x + place, vec_size=SIZE) + dl.ld_vector(y + place, vec_size=SIZE)
                dl.st_vector(out + place, (total + 1) * 2)
            if begin + TILE >= count:
                for place in range(end + thread, count, threads):
                    dl.st_vector(out + place, (dl.ld_vector(x + place) + dl.ld_vector(y + place) + 1) * 2)


@triton.jit
def vector_methods_kernel(x, out):
    values = dl.ld_vector(x + tid(0) * 4, 4, scope="gpu", semantic="acquire")
    total = dl.zeros_vector(4, tl.float32)
    for _ in range(3):
        total = total + values * 0.5
    words = unpack(pack(total.to(tl.float16), tl.int64), tl.float16).recast(tl.int32).recast(tl.float16).to(tl.float32)
    st(out + tid(0) * 4, words, "sys", "release")


def vectors(device: str) -> bool:
    right, most = True, 1 << 20 if device == "cuda" else 3000
    for dtype in (torch.int16, torch.int32, torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for count in (most, most - 1):
            x, y = (torch.randint(-30, 30, (count,), device=device).to(dtype) for _ in range(2))
            out = torch.zeros_like(x)
            vector_sum_kernel[(64 if device == "cuda" else 2,)](x, y, out, count, 1024)
            right &= torch.equal(out, (x + y + 1) * 2)
    x, out = torch.arange(512, dtype=torch.float32, device=device) % 9, torch.zeros(512, device=device)
    vector_methods_kernel[(1,)](x, out)
    return right and torch.equal(out, x * 1.5)


@triton.jit
def shuffles_kernel(x, out, amount):
    value = ld(x + tid(0))
    st(out + tid(0), __shfl_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 64 + tid(0), __shfl_up_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 128 + tid(0), __shfl_down_sync_i32(0xFFFFFFFF, value, amount))
    st(out + 192 + tid(0), __shfl_xor_sync_i32(0xFFFFFFFF, value, amount))


@triton_dist.jit
def prefix_sum_kernel(x, out):
    value, step = ld(x + tid(0)), 1
    while step < 32:
        below = __shfl_up_sync_i32(0xFFFFFFFF, value, step)
        if laneid() >= step:
            value += below
        step = step * 2
    atomic_add(out + tid(0), value, "gpu", "relaxed")


@triton.jit
def votes_kernel(x, out):
    value = ld(x + tid(0))
    st(out + tid(0), __ballot_sync(0xFFFFFFFF, value < 40))
    st(out + 64 + tid(0), any_sync(0xFFFFFFFF, value == 40).to(tl.int32) + 2 * all_sync(0xFFFFFFFF, value >= 32).to(tl.int32))
    if elect_sync():
        atomic_add(out + 128 + warp_id(), laneid() + 1)
    if laneid() >= 8:
        if elect_sync(0xFFFFFF00):
            atomic_add(out + 130, laneid())
        __syncwarp(0xFFFFFF00)
    __syncwarp()


def warps(device: str) -> bool:
    lane, first = torch.arange(64, device=device) % 32, torch.arange(64, device=device) // 32 * 32
    right = True
    for dtype in (torch.int8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16):
        for amount in (1, 5):
            x, out = torch.arange(64, device=device).to(dtype), torch.zeros(256, dtype=dtype, device=device)
            shuffles_kernel[(1,)](x, out, amount, num_warps=2)
            up, down = torch.where(lane < amount, lane, lane - amount), torch.where(lane + amount > 31, lane, lane + amount)
            right &= torch.equal(out, torch.cat([x[first + amount], x[first + up], x[first + down], x[first + (lane ^ amount)]]))
    x = torch.randint(0, 255, (256,), dtype=torch.int32, device=device)
    out = torch.zeros_like(x)
    prefix_sum_kernel[(1,)](x, out, num_warps=8)
    right &= torch.equal(out, x.reshape(-1, 32).cumsum(1, dtype=torch.int32).reshape(-1))
    out = torch.zeros(131, dtype=torch.int32, device=device)
    votes_kernel[(1,)](torch.arange(64, dtype=torch.int32, device=device), out, num_warps=2)
    expected = [-1] * 32 + [0xFF] * 32 + [0] * 32 + [3] * 32 + [1, 1, 16]
    return right and out.tolist() == expected


@triton.jit
def updates_kernel(words, olds, values):
    value = ld(values + tid(0))
    st(olds + tid(0), atomic_exch(words, value, "sys", "acq_rel"))
    atomic_min(words + 1, value)
    atomic_max(words + 2, value, sem="release")
    atomic_and(words + 3, value, "cta")
    atomic_or(words + 4, value)
    atomic_xor(words + 5, value)


@triton.jit
def count_kernel(indices, out, lock, first, size):
    """Each thread counts its share; one thread of all wins a compare-and-swap; one thread a warp adds."""
    total = num_threads() * tl.num_programs(0)
    for place in range(tl.program_id(0) * num_threads() + tid(0), size, total):
        atomic_add(out + ld(indices + place), 1, semantic="acq_rel", scope="sys")
    if atomic_cas(lock, 0, 1, "gpu", "acquire") == 0:
        atomic_add(lock + 1, 1)
    st(first + tl.program_id(0) * num_threads() + tid(0), atomic_add_per_warp(lock + 2, 1, "gpu", "relaxed"))


def atomics(device: str) -> bool:
    right = True
    for dtype in (torch.int32, torch.uint32, torch.int64, torch.uint64):
        small = dtype.itemsize == 4
        raw = torch.randint(-(2**31), 2**31 - 1, (128,))
        values = (raw.to(torch.int32) if small else raw * 2**31).view(dtype)
        start = torch.tensor([7, 5, 5, -1, 0, 0]).to(torch.int32 if small else torch.int64).view(dtype)
        words, olds = start.to(device), torch.zeros(128, dtype=dtype, device=device)
        updates_kernel[(1,)](words, olds, values.to(device))
        seen, numbers, mask = words.cpu().tolist(), values.tolist(), 2 ** (8 * dtype.itemsize) - 1
        combined = [mask, 0, 0]
        for number in numbers:
            combined = [combined[0] & number, combined[1] | number & mask, combined[2] ^ number & mask]
        right &= sorted([*olds.cpu().tolist(), seen[0]]) == sorted([7, *numbers])
        right &= seen[1:3] == [min(5, *numbers), max(5, *numbers)] and [word & mask for word in seen[3:]] == combined
    indices = torch.randint(0, 32, (5000,), dtype=torch.int32, device=device)
    out, lock, first = (torch.zeros(size, dtype=torch.int32, device=device) for size in (32, 3, 16 * 128))
    count_kernel[(16,)](indices, out, lock, first, 5000)
    right &= torch.equal(out, torch.bincount(indices, minlength=32).to(torch.int32)) and lock.tolist() == [1, 1, 64]
    return right and sorted(first.tolist()) == sorted(list(range(64)) * 32)


PARTS: dict[str, Callable[[str], bool]] = {
    part.__name__: part for part in (transposes, product, beside_dot, exchange, calls, special_elements, vectors, warps, atomics)
}


def main(names: list[str]) -> int:
    """Runs the named parts, or all, on the GPU; the number of parts that were wrong."""
    torch.manual_seed(0)
    wrong = 0
    for name in names or list(PARTS):
        try:
            right = PARTS[name]("cuda")
            torch.cuda.synchronize()
            print(f"{name}: {'right' if right else 'WRONG'}", flush=True)
        except Exception as error:
            right = False
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        wrong += not right
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
