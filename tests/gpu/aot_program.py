"""A library built ahead of time, and a C program linked against it, on GPUs: ``name: right`` for each part on rank 0.

``torchrun --nproc-per-node 2 tests/gpu/aot_program.py`` (any number of ranks). Needs a C compiler. Every wait is bounded.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.tools import aot_compile_spaces, build_library, lend_heap

BLOCK, COUNT, ROUNDS, GUEST_ROUNDS = 1024, 8192, 50, 5
NO_HEAP, OTHER_WORLD_SIZE, NO_VARIANT, NO_ALGORITHM = -3, -5, -6, -7
GRID = ["cdiv(count, %BLOCK)", "1", "1"]
TYPES = {"data": "*fp32", "flags": "*i32", "count": "i32", "round": "i32"}
SIGNATURE = "*fp32:16, *i32:16, i32, i32, %BLOCK"


@aot_compile_spaces(
    {
        "push_ahead": {"signature": SIGNATURE, "grid": GRID, "triton_algo_infos": [{"BLOCK": BLOCK}, {"BLOCK": BLOCK, "num_warps": 8}]},
        "push_of_99": {"signature": SIGNATURE, "grid": GRID, "triton_algo_infos": [{"BLOCK": BLOCK}], "world_size": 99},
    }
)
@triton_dist.jit
def push_kernel(data, flags, count, round, BLOCK: tl.constexpr):
    """Each program sends a block, behind this rank's own one, to the next rank, and sets the block's word there to ``round``."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    tl.store(dl.symm_at(data, peer) + count + lanes, tl.load(data + lanes, mask=mask), mask=mask)
    dl.notify(flags + tl.program_id(0), peer, signal=round, sig_op="set", comm_scope="intra_node")


@aot_compile_spaces({"ring_ahead": {"signature": SIGNATURE, "grid": GRID, "triton_algo_infos": [{"BLOCK": BLOCK}]}})
@triton_dist.jit
def ring_kernel(data, flags, count, round, BLOCK: tl.constexpr):
    """Waits for the block from the rank before, adds 1 to what came, makes it this rank's own, and says so to the rank before."""
    program = tl.program_id(0)
    lanes = program * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    token = dl.wait(flags + program, 1, "sys", "acquire", waitValue=round, cmp="ge")
    came = tl.load(dl.consume_token(data, token) + count + lanes, mask=mask)
    tl.store(data + lanes, came + 1, mask=mask)
    # The rank before writes the next block only when this one was read.
    taken = flags + tl.num_programs(0)
    before = (dl.rank() + dl.num_ranks() - 1) % dl.num_ranks()
    dl.notify(taken + program, before, signal=round, sig_op="set", comm_scope="intra_node")
    dl.wait(taken + program, 1, "sys", "acquire", waitValue=round, cmp="ge")


@aot_compile_spaces({"scale_ahead": {"signature": "*fp32:16, *fp32:16, i32, fp32, 128", "grid": ["1", "1", "1"]}})
@triton.jit
def scale_kernel(x, out, count, factor, BLOCK: tl.constexpr):
    """Its descriptor needs global memory at each launch, and its factor is a C float."""
    lanes = tl.arange(0, BLOCK)
    target = tl.make_tensor_descriptor(out, [count], [1], [BLOCK])
    target.store([0], tl.load(x + lanes, mask=lanes < count, other=0.0) * factor)


def build() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """The library, and the C program as a library of its own that is linked against it."""
    folder = Path(tempfile.mkdtemp(prefix="triton_dist_aot_"))
    major, minor = torch.cuda.get_device_capability()
    library = build_library([push_kernel, ring_kernel, scale_kernel], folder, "ring_kernels", target=major * 10 + minor)
    here = Path(__file__).parent
    links = [f"-I{folder}", f"-L{folder}", "-lring_kernels", f"-Wl,-rpath,{folder}"]
    for output, source in ((["-shared", "-fPIC", "-o", folder / "libprogram.so"], "aot_ring.c"), (["-o", folder / "guest"], "aot_guest.c")):
        subprocess.run(["cc", "-O2", *output, here / source, *links], check=True, timeout=120)
    kernels, caller = ctypes.CDLL(str(library.shared)), ctypes.CDLL(str(folder / "libprogram.so"))
    kernels.ring_kernels_last_error.restype = ctypes.c_char_p
    return kernels, caller


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def buffers() -> tuple[torch.Tensor, torch.Tensor]:
    data = triton_dist.symm_zeros((2 * COUNT,), torch.float32)
    data[:COUNT] = 1000.0 * triton_dist.rank() + torch.arange(COUNT, device=data.device) % 100
    flags = triton_dist.symm_zeros((2 * COUNT // BLOCK,), torch.int32)
    barrier()
    return data, flags


def expected(rounds: int) -> torch.Tensor:
    source = (triton_dist.rank() - rounds) % triton_dist.world_size()
    return 1000.0 * source + torch.arange(COUNT) % 100 + rounds


def pushed_by_ctypes(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    """Both algorithms, one after the other."""
    right = kernels.load_push_ahead() == 0 and kernels.push_ahead_get_num_algos() == 2
    for algorithm in (0, 1):
        data, flags = buffers()
        code = kernels.push_ahead(stream(), ctypes.c_uint64(data.data_ptr()), ctypes.c_uint64(flags.data_ptr()), COUNT, 1, algorithm)
        barrier()
        before = (triton_dist.rank() - 1) % triton_dist.world_size()
        came = data[COUNT:].cpu()
        right = right and code == 0 and torch.equal(came, 1000.0 * before + torch.arange(COUNT) % 100)
        right = right and flags[: COUNT // BLOCK].tolist() == [1] * (COUNT // BLOCK)
    return right


def ring_by_c_program(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    """Blocks go round by kernels that a C program loads and launches."""
    data, flags = buffers()
    words = ctypes.create_string_buffer(512)
    pointers = ctypes.c_uint64(data.data_ptr()), ctypes.c_uint64(flags.data_ptr())
    code = caller.run_ring(stream(), *pointers, COUNT, ROUNDS, words, ctypes.c_ulong(512))
    triton_dist.synchronize()
    barrier()
    if code:
        print(f"rank {triton_dist.rank()}: {code} {words.value.decode()}", flush=True)
    return code == 0 and torch.equal(data[:COUNT].cpu(), expected(ROUNDS))


def process_without_python(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    """A C program for each rank, a process of its own, joins the heaps and sends the blocks round; killed if it takes too long."""
    data, flags = buffers()
    triton_dist.synchronize()
    name = [tempfile.mkdtemp(prefix="triton_dist_lent_") if triton_dist.rank() == 0 else ""]
    dist.broadcast_object_list(name)
    guest = Path(kernels._name).parent / "guest"
    numbers = (triton_dist.rank(), hex(data.data_ptr()), hex(flags.data_ptr()), COUNT, GUEST_ROUNDS)
    with lend_heap(name[0]):
        try:
            done = subprocess.run([guest, name[0], *map(str, numbers)], capture_output=True, text=True, timeout=60)
            said = done.stdout.strip()
        except subprocess.TimeoutExpired:
            said = "it did not end within 60 s"
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, said)
    if said != "0 left":
        print(f"rank {triton_dist.rank()}: the C program said {said!r}", flush=True)
    return everyone == ["0 left"] * triton_dist.world_size() and torch.equal(data[:COUNT].cpu(), expected(GUEST_ROUNDS))


def in_a_graph(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    """A launch of the library is captured and replayed with other data."""
    data, flags = buffers()
    pointers = ctypes.c_uint64(data.data_ptr()), ctypes.c_uint64(flags.data_ptr())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        code = kernels.push_ahead_default(stream(), *pointers, COUNT, 1)
    right = code == 0
    for turn in range(3):
        data[:COUNT] += turn
        barrier()
        graph.replay()
        barrier()
        before = (triton_dist.rank() - 1) % triton_dist.world_size()
        came = data[COUNT:].cpu()
        right = right and torch.equal(came, 1000.0 * before + torch.arange(COUNT) % 100 + sum(range(turn + 1)))
        barrier()
    return right


def without_the_heap(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    """Memory for descriptors at launch, and a float."""
    x, out = torch.arange(128.0, device="cuda"), torch.zeros(128, device="cuda")
    pointers = ctypes.c_uint64(x.data_ptr()), ctypes.c_uint64(out.data_ptr())
    code = kernels.scale_ahead_default(stream(), *pointers, 100, ctypes.c_float(2.5))
    torch.cuda.synchronize()
    return code == 0 and torch.equal(out[:100], x[:100] * 2.5) and not out[100:].any()


def named_errors(kernels: ctypes.CDLL, caller: ctypes.CDLL) -> bool:
    data, flags = buffers()
    pointers = ctypes.c_uint64(data.data_ptr() + 4), ctypes.c_uint64(flags.data_ptr())
    codes = [
        kernels.load_push_of_99(),
        kernels.push_ahead_default(stream(), *pointers, COUNT, 1),
        kernels.push_ahead(stream(), *pointers, COUNT, 1, 2),
    ]
    return codes == [OTHER_WORLD_SIZE, NO_VARIANT, NO_ALGORITHM]


PARTS = [pushed_by_ctypes, ring_by_c_program, process_without_python, in_a_graph, without_the_heap, named_errors]


def main() -> None:
    import os

    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.zeros(1, device="cuda")
    kernels, caller = build()
    early = kernels.load_push_ahead()  # the context is there, the heap is not
    words = kernels.ring_kernels_last_error().decode()
    triton_dist.initialize(wait_timeout=20)
    results = {"no_heap_before_initialize": early == NO_HEAP and "no symmetric heap" in words}
    for part in PARTS:
        results[part.__name__] = part(kernels, caller)
        torch.cuda.synchronize()
    results["unloaded"] = [getattr(kernels, f"unload_{name}")() for name in ("push_ahead", "ring_ahead", "scale_ahead")] == [0, 0, 0]
    everyone: list = [None] * triton_dist.world_size()
    dist.all_gather_object(everyone, results)
    if triton_dist.rank() == 0:
        for name in results:
            wrong = [rank for rank, there in enumerate(everyone) if not there[name]]
            print(f"{name}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
    triton_dist.finalize()
    dist.destroy_process_group()  # else its threads may outlive it


if __name__ == "__main__":
    main()
