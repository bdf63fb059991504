"""Kernels that read the context page in a process that has joined no world; it prints ``name: right`` for each part.

``python tests/gpu/lone_program.py`` needs one GPU, and two for ``two_gpus``. Names of parts as arguments choose.
Each part is a process of its own, which is ended after ``LIMIT`` seconds.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parents[2]))

import triton_dist
import triton_dist.language as dl
from triton_dist.errors import AddressInUseError
from triton_dist.language.extra import libshmem_device
from triton_dist.runtime.address_map import CONTEXT

LIMIT = 240


@triton.jit
def place_kernel(out):
    tl.store(out, dl.rank())
    tl.store(out + 1, dl.num_ranks())


@triton_dist.jit
def shmem_kernel(out, pointers):
    tl.store(out, libshmem_device.my_pe())
    tl.store(out + 1, libshmem_device.n_pes())
    tl.store(out + 2, libshmem_device.team_n_pes(libshmem_device.NVSHMEM_TEAM_WORLD))
    tl.store(pointers, libshmem_device.remote_ptr(out, 0).to(tl.int64))


@triton.jit
def wait_kernel(flags, out, count):
    token = dl.wait(flags, count, "gpu", "acquire", waitValue=7)
    out = dl.consume_token(out, token)
    tl.store(out, tl.load(out) + dl.num_ranks())


@triton_dist.jit
def wait_in_region_kernel(flags, out, count):
    dl.wait(flags, count, "sys", "acquire", waitValue=7)
    with dl.simt_exec_region() as (thread, threads):
        if thread == 0:
            tl.store(out, tl.load(out) + dl.num_ranks())


@triton.jit
def far_kernel(pointer):
    tl.store(dl.symm_at(pointer, 1), 1)


@triton.jit
def other_kernel(out):
    tl.store(out, 5)


def words(count: int = 4, device: str = "cuda") -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)


def says_one_rank(device: str = "cuda") -> bool:
    out = words(device=device)
    place_kernel[(1,)](out)
    return out.tolist() == [0, 1, 0, 0]


def plain_kernel() -> bool:
    return says_one_rank()


def shmem() -> bool:
    out, pointers = words(), torch.ones(1, dtype=torch.int64, device="cuda")
    shmem_kernel[(1,)](out, pointers)
    return out.tolist() == [0, 1, 1, 0] and pointers.item() == 0


def long_wait(kernel=wait_kernel) -> bool:
    """The wait looks at the page many times before the flags are set, after about a fifth of a second."""
    flags, out = torch.full((40,), 7, dtype=torch.int32, device="cuda"), words(1)
    kernel[(1,)](flags, out, 40)  # loads it
    waiting, setting = torch.cuda.Stream(), torch.cuda.Stream()
    for stream in (waiting, setting):  # streams are used once before anything waits
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1000)
            flags.fill_(0)
    torch.cuda.synchronize()
    with torch.cuda.stream(waiting):
        kernel[(1,)](flags, out, 40)
    with torch.cuda.stream(setting):
        torch.cuda._sleep(300_000_000)
        flags.fill_(7)
    torch.cuda.synchronize()
    return out.item() == 2


def long_wait_rewritten() -> bool:
    return long_wait(wait_in_region_kernel)


def graph() -> bool:
    """The page is mapped while a graph is captured, which is then replayed."""
    flags, out = torch.full((4,), 7, dtype=torch.int32, device="cuda"), words(1)
    wait_kernel.warmup(flags, out, 4, grid=(1,))  # compiles, and loads nothing
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="relaxed"):
        wait_kernel[(1,)](flags, out, 4)
    for _ in range(3):
        captured.replay()
    torch.cuda.synchronize()
    return out.item() == 3


def worlds_come_and_go() -> bool:
    """Alone, in a world, alone, in another one, alone; the same loaded kernels, and a graph captured before."""
    flags, out = torch.full((4,), 7, dtype=torch.int32, device="cuda"), words(1)
    right = says_one_rank()
    wait_kernel[(1,)](flags, out, 4)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        wait_kernel[(1,)](flags, out, 4)
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29677")
    for _ in range(2):
        triton_dist.initialize(heap_size=64 << 20, wait_timeout=60)
        symmetric = triton_dist.symm_zeros((4,), torch.int32)
        place_kernel[(1,)](symmetric)
        captured.replay()
        right = right and symmetric.tolist() == [0, 1, 0, 0]
        del symmetric
        triton_dist.finalize()
        captured.replay()
        right = right and says_one_rank() and long_wait()
    return right and out.item() == 5


def two_gpus() -> bool | None:
    if torch.cuda.device_count() < 2:
        return None
    right = says_one_rank()
    with torch.cuda.device(1):
        right = says_one_rank("cuda:1") and right
    return right and says_one_rank()


def taken_address() -> bool:
    """Each launch raises, nothing is launched, and other kernels run on."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, *[ctypes.c_size_t] * 5]
    anywhere, fixed = (1 << 64) - 1, 0x100000
    if libc.mmap(CONTEXT, 1 << 20, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, anywhere, 0) != CONTEXT:
        return False
    out = words()
    for _ in range(2):
        try:
            place_kernel[(1,)](out)
        except AddressInUseError as error:
            if "without triton_dist.initialize()" not in str(error):
                raise
        else:
            return False
    other_kernel[(1,)](out)
    return out.tolist() == [5, 0, 0, 0]


def no_other_rank() -> bool:
    """An address of a rank that is not there faults, and nothing hangs; the context is lost."""
    out = words()
    far_kernel[(1,)](out)
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return "illegal memory access" in str(error)
    return False


PARTS = [
    plain_kernel, shmem, long_wait, long_wait_rewritten, graph, worlds_come_and_go, two_gpus, taken_address, no_other_rank,
]  # fmt: skip


def main() -> int:
    if sys.argv[1:2] == ["--part"]:
        part = next(part for part in PARTS if part.__name__ == sys.argv[2])
        right = part()
        print("no second GPU" if right is None else "right" if right else "wrong", flush=True)
        return 0
    wrong = 0
    for part in PARTS:
        if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
            continue
        command = [sys.executable, __file__, "--part", part.__name__]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            said = (done.stdout.splitlines() or ["it said nothing"])[-1]
            if said not in ("right", "no second GPU"):
                said += ": " + " | ".join(done.stderr.strip().splitlines()[-3:])[:600]
        except subprocess.TimeoutExpired:
            said = f"wrong: not done after {LIMIT} s"
        wrong += said not in ("right", "no second GPU")
        print(f"{part.__name__}: {said}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
