"""Documented names that no other program here uses, on one GPU: ``python tests/gpu/names_program.py`` prints one line a part.

The parts for threads run on the simulator, too (``tests/sim/test_names_program.py``); those of the host need a GPU, and a world of one rank
that the program starts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parents[2]))

import triton_dist
from tests.sim import test_threads, test_vectors, test_words
from triton_dist import utils
from triton_dist.language import make_vector, vector
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.language_extra import (
    atomic_cas,
    load_v2_b64,
    load_v4_b32,
    load_v4_s32,
    load_v4_u32,
    num_threads,
    num_warps,
    pack,
    st,
    st_v2_u32,
    st_v4_b32,
    st_v4_u32,
    threads_per_warp,
    tid,
    unpack,
)
from triton_dist.profiler_utils import get_torch_prof_ctx, group_profile
from triton_dist.test.utils import assert_bitwise_equal, bitwise_equal
from triton_dist.tools import apply_triton340_inductor_patch
from triton_dist.utils import (
    NVSHMEM_SIGNAL_DTYPE,
    cuda_occupancy_max_activate_blocks_per_multiprocessor,
    dist_print,
    generate_data,
    get_bool_env,
    get_int_env,
    get_triton_dist_local_world_size,
    get_triton_dist_world,
    has_nvshmemi_bc_built,
    has_tma,
    init_nvshmem_by_torch_process_group,
    init_rocshmem_by_torch_process_group,
    init_seed,
    is_fp8_dtype,
    is_shmem_initialized,
    launch_cooperative_grid_options,
    nvshmem_create_tensor,
    nvshmem_create_tensors,
    nvshmem_free_tensor_sync,
    rand_tensor,
    requires,
    requires_p2p_native_atomic,
    rocshmem_barrier_all_on_stream,
    support_launch_cooperative_grid,
    wait_until_max_gpu_clock_or_warning,
    with_torch_deterministic,
)

OF_THREADS = (
    vector, make_vector, load_v4_u32, load_v4_s32, load_v4_b32, load_v2_b64, st_v4_u32, st_v4_b32, st_v2_u32, num_threads, num_warps,
    threads_per_warp, pack, unpack, atomic_cas,
)  # fmt: skip
"""What the kernels of ``tests/sim`` that run here use."""


def words(device: str) -> bool:
    """Several words at once: each form copies 16 bytes a thread."""
    right = True
    for kind in ("u32", "s32", "b32", "b64"):
        source = torch.randn(4 * 300, device=device)
        target = torch.zeros_like(source)
        test_words.copy_kernel[(1,)](source, target, 300, KIND=kind)
        right = right and torch.equal(source, target)
    return right


def sizes(device: str) -> bool:
    """Threads and warps of a block."""
    right = True
    for warps in (1, 2, 8):
        out = torch.zeros(3, dtype=torch.int32, device=device)
        test_threads.constants_kernel[(1,)](out, num_warps=warps)
        right = right and out.tolist() == [32 * warps, warps, 32]
    return right


def one_wins(device: str) -> bool:
    """Of all threads that compare and swap one word."""
    lock, winner = (torch.full((1,), value, dtype=torch.int32, device=device) for value in (0, -1))
    test_threads.cas_kernel[(1,)](lock, winner)
    return winner.item() + 1 == lock.item() > 0


def methods(device: str) -> bool:
    """Every method of ``vector``."""
    x, out = torch.arange(512, dtype=torch.float32, device=device) % 7, torch.zeros(512, device=device)
    test_vectors.methods_kernel[(1,)](x, out, 0.5)
    values = x.reshape(128, 4).clone()
    values[:, 1] = 10
    values[:, 3] += values[:, 0]
    total = values * 1.5
    total[:, 0] = 100 + values[:, 0] * 0.5
    y, doubled = torch.arange(256, dtype=torch.int32, device=device), torch.zeros(256, dtype=torch.int32, device=device)
    test_vectors.passed_on_kernel[(1,)](y, doubled)
    return torch.equal(out.reshape(128, 4), 1 - total) and torch.equal(doubled, y * 6)


def packing(device: str) -> bool:
    x = torch.randint(-(2**31), 2**31 - 1, (128,), dtype=torch.int32, device=device)
    wide, out = torch.zeros_like(x), torch.zeros(128, dtype=torch.uint64, device=device)
    test_vectors.pack_kernel[(1,)](x, wide, out)
    turned = torch.equal(wide.view(torch.uint8).reshape(128, 4), x.view(torch.uint8).reshape(128, 4).flip(1))
    pairs = torch.stack([x, torch.arange(128, dtype=torch.int32, device=device)], 1)
    return turned and torch.equal(out.view(torch.int32).reshape(128, 2), pairs)


@triton_dist.jit
def thread_numbers_kernel(out):
    st(out + tl.program_id(0) * num_threads() + tid(0), tid(0))


@triton_dist.jit
def order_kernel(data, flag):
    libshmem_device.putmem_nbi_block(data + 128, data, 512, libshmem_device.my_pe())
    libshmem_device.fence()
    if tid(0) == 0:
        libshmem_device.int_p(flag, 1, libshmem_device.my_pe())


def order(device: str) -> bool:
    """A put, a fence, and a word behind it."""
    data, flag = triton_dist.symm_zeros(256, torch.int32), triton_dist.symm_zeros(1, torch.int32)
    data[:128] = 3
    order_kernel[(1,)](data, flag)
    return data.tolist() == [3] * 256 and flag.item() == 1


def tensors(device: str) -> bool:
    """Symmetric memory by upstream's names, in a world of one rank."""
    right = is_shmem_initialized() and get_triton_dist_world().size() == 1 and get_triton_dist_local_world_size() == 1
    init_nvshmem_by_torch_process_group(dist.group.WORLD)
    init_rocshmem_by_torch_process_group(dist.group.WORLD)
    one, peers = nvshmem_create_tensor((2, 3), torch.bfloat16), nvshmem_create_tensors((4,), NVSHMEM_SIGNAL_DTYPE, 0, 1)
    one.fill_(1), peers[0].fill_(7)
    rocshmem_barrier_all_on_stream(torch.cuda.current_stream())
    right = right and one.float().sum().item() == 6 and peers[0].tolist() == [7] * 4 and len(peers) == 1
    nvshmem_free_tensor_sync(one)
    return right


def random_numbers(device: str) -> bool:
    init_seed(5)
    first = rand_tensor((100,), torch.float32), rand_tensor((100,), torch.int8)
    init_seed(5)
    again = rand_tensor((100,), torch.float32), rand_tensor((100,), torch.int8)
    (eights,) = next(generate_data([((4, 4), torch.float8_e4m3fn, (1, 0))]))
    right = all(map(bitwise_equal, first, again)) and first[0].device.type == device and is_fp8_dtype(eights.dtype)
    assert_bitwise_equal(first[0], again[0])
    with with_torch_deterministic(True):
        return right and torch.are_deterministic_algorithms_enabled()


def questions(device: str) -> bool:
    """What scripts ask the machine, and decorators that ask it."""
    right = has_tma() == (torch.cuda.get_device_capability() >= (9, 0)) and not has_nvshmemi_bc_built()
    right = right and support_launch_cooperative_grid() and wait_until_max_gpu_clock_or_warning()
    right = right and get_bool_env("TRITON_DIST_NAMES", True) and get_int_env("TRITON_DIST_NAMES", 4) == 4
    right = right and requires(has_tma)(lambda: 3)() == 3 and requires_p2p_native_atomic(lambda: 4)() == 4
    out = torch.zeros(256, dtype=torch.int32, device=device)
    blocks = cuda_occupancy_max_activate_blocks_per_multiprocessor(thread_numbers_kernel, 4, out)
    thread_numbers_kernel[(2,)](out, **launch_cooperative_grid_options())
    return right and 1 <= blocks <= 32 and out.tolist() == [*range(128)] * 2 and "no patch" in apply_triton340_inductor_patch()


def profiles(device: str) -> bool:
    """Profiles of torch's profiler, in a folder that goes; and a line that rank 0 prints."""
    dist_print("printed by rank 0", need_sync=True)
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with group_profile("names", group=dist.group.WORLD), get_torch_prof_ctx(False):
                torch.ones(1000, device=device).sum().item()
            return any(path.is_file() and path.stat().st_size for path in Path(folder).rglob("*"))
        finally:
            os.chdir(before)


THREADS: dict[str, Callable[[str], bool]] = {part.__name__: part for part in (words, sizes, one_wins, methods, packing)}
HOST: dict[str, Callable[[str], bool]] = {part.__name__: part for part in (order, tensors, random_numbers, questions, profiles)}


def main(names: list[str]) -> int:
    os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29679"})
    utils.initialize_distributed()
    wrong = 0
    for name, part in (THREADS | HOST).items():
        if names and name not in names:
            continue
        try:
            right = part("cuda")
            torch.cuda.synchronize()
            print(f"{name}: {'right' if right else 'wrong'}", flush=True)
        except Exception as error:  # noqa: BLE001 - the other parts are run, too
            right = False
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)
        wrong += not right
    utils.finalize_distributed()
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
