"""One rank that tries the symmetric heap on GPUs: teams, what is freed when, what fails by name, torch's symmetric memory, joining again.

``torchrun --nproc-per-node 4 tests/gpu/heap_program.py`` runs all parts, or those that are named as arguments, and prints a line for each:
``name: right``, ``name: wrong on ranks [...]`` or ``name: skipped, why``. A part that needs more ranks is skipped. It ends by itself after
four minutes, whatever hangs. ONE_GPU_EACH=1 shows each process its own GPU only, as launchers of inference engines do.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import mmap
import os
import sys
import traceback

if os.environ.get("ONE_GPU_EACH"):
    _rank = os.environ["LOCAL_RANK"]
    _seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    os.environ["CUDA_VISIBLE_DEVICES"] = _seen.split(",")[int(_rank)] if _seen else _rank

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import errors
from triton_dist.ops import ag_gemm
from triton_dist.ops.collectives.barrier import barrier
from triton_dist.runtime.address_map import STRIDE, heap_base
from triton_dist.runtime.context_layout import TEAM_RECORD_BYTES, TEAM_TABLE, word_address
from triton_dist.runtime.world import is_initialized, require_world

MEBIBYTE = 1 << 20
HEAP = 64 * MEBIBYTE


class Skip(Exception):
    """A part that can't run here, and why."""


def need_ranks(count: int) -> None:
    if triton_dist.world_size() < count:
        raise Skip(f"needs {count} ranks")


@triton.jit
def identity_kernel(out):
    """Plain ``triton.jit``: rank and world come from the context page."""
    tl.store(out, dl.rank())
    tl.store(out + 1, dl.num_ranks())


@triton_dist.jit
def gather_kernel(source, out, ranks, SIZE: tl.constexpr, COUNT: tl.constexpr):
    """Row i of out: ``source`` of the team's rank i."""
    offset = tl.arange(0, COUNT)
    for index in range(SIZE):
        tl.store(out + index * COUNT + offset, tl.load(dl.symm_at(source, tl.load(ranks + index)) + offset))


def gathered(source: torch.Tensor, ranks: tuple[int, ...]) -> list[list[int]]:
    """Each rank's part of a symmetric int32 tensor, read by a kernel between two barriers of the team."""
    team = triton_dist.make_team(ranks)
    out = torch.empty(len(ranks), source.numel(), dtype=torch.int32, device=triton_dist.device())
    barrier(team)
    world_ranks = torch.tensor(ranks, dtype=torch.int32, device=out.device)
    gather_kernel[(1,)](source, out, world_ranks, SIZE=len(ranks), COUNT=source.numel())
    barrier(team)
    return out.tolist()


def everyone(value: object) -> list:
    values: list = [None] * triton_dist.world_size()
    dist.all_gather_object(values, value)
    return values


def raises(expected: type[Exception], act, *texts: str) -> bool:
    """Whether ``act`` raises the error with these texts in its message; prints what it did instead."""
    try:
        act()
    except expected as error:
        if all(text in str(error) for text in texts):
            return True
        print(f"rank {dist.get_rank()}: {type(error).__name__} without {texts}: {error}", flush=True)
        return False
    except Exception as error:  # noqa: BLE001 - printed; the part is wrong
        print(f"rank {dist.get_rank()}: expected {expected.__name__}, got {type(error).__name__}: {error}", flush=True)
        return False
    print(f"rank {dist.get_rank()}: expected {expected.__name__}, nothing was raised", flush=True)
    return False


# ------------------------------------------------------------------ teams


def teams() -> bool:
    """Even and odd ranks allocate differently, at the same offsets; kernels reach the peers of the team."""
    need_ranks(2)
    rank, size = triton_dist.rank(), triton_dist.world_size()
    ranks = tuple(range(rank % 2, size, 2))
    team = triton_dist.make_team(ranks)
    tensors = [triton_dist.symm_zeros(256, torch.int32, group=team) for _ in range(3 - rank % 2)]
    world_wide = triton_dist.symm_zeros(256, torch.int32)
    offsets = everyone((tensors[0].data_ptr() % STRIDE, world_wide.data_ptr() % STRIDE))
    right = len({first for first, _ in offsets[0::2]}) == 1 and len({wide for _, wide in offsets}) == 1
    for number, tensor in enumerate(tensors):
        tensor.fill_(100 * number + rank)
        right &= gathered(tensor, ranks) == [[100 * number + peer] * 256 for peer in ranks]
    return right and not world_wide.any().item()


def teams_in_operators() -> bool:
    """The GEMM of a team of two, both teams at the same time."""
    need_ranks(4)
    rank = triton_dist.rank()
    ranks = (0, 2) if rank % 2 == 0 else (3, 1)
    shards = [torch.full((128, 64), 1.0 + peer, device=triton_dist.device(), dtype=torch.bfloat16) for peer in ranks]
    b = torch.eye(64, device=triton_dist.device(), dtype=torch.bfloat16)
    team = triton_dist.make_team(ranks)
    return all(torch.equal(ag_gemm(shards[team.index], b, group=team), torch.cat(shards)) for _ in range(10))


def mesh_dimensions() -> bool:
    need_ranks(4)
    rank = triton_dist.rank()
    mesh = dist.init_device_mesh("cpu", (2, triton_dist.world_size() // 2), mesh_dim_names=("outer", "inner"))
    tensor = triton_dist.symm_zeros(64, torch.int32, group=(mesh, "outer"))
    tensor.fill_(rank)
    ranks = tuple(dist.get_process_group_ranks(mesh.get_group("outer")))
    return gathered(tensor, ranks) == [[peer] * 64 for peer in ranks]


def team_records() -> bool:
    """Start, stride, size and index of teams in the context page."""
    need_ranks(2)
    rank, size = triton_dist.rank(), triton_dist.world_size()
    triton_dist.make_team(range(rank % 2, size, 2))
    page = require_world("test").heap.bytes_at(word_address(TEAM_TABLE), 64 * TEAM_RECORD_BYTES).view(torch.int32).view(-1, 4).tolist()
    evens = [rank % 2, 1 if size < rank % 2 + 3 else 2, len(range(rank % 2, size, 2)), rank // 2]
    return page[0] == [0, 1, size, rank] and evens in page[1:]


def arenas() -> bool:
    need_ranks(2)
    team = triton_dist.make_team([triton_dist.rank()], arena_size=8 * MEBIBYTE)
    rest = triton_dist.symm_empty(HEAP - 24 * MEBIBYTE, torch.int8)
    right = raises(errors.HeapFullError, lambda: triton_dist.symm_empty(20 * MEBIBYTE, torch.int8), "arena_size=")
    inside = triton_dist.symm_zeros(7 * MEBIBYTE, torch.int8, group=team)
    inside.fill_(1)
    rest.fill_(2)
    right &= inside.min().item() == inside.max().item() == 1
    del inside
    triton_dist.free_team(team)
    return right


def errors_on_every_rank() -> bool:
    """What one rank does wrong is raised on all, at once."""
    need_ranks(2)
    rank, last = triton_dist.rank(), triton_dist.world_size() - 1
    right = raises(errors.InvalidArgumentError, lambda: triton_dist.symm_empty(-1 if rank == last else 1), f"rank {last}", "negative")
    right &= raises(errors.AllocationMismatchError, lambda: triton_dist.symm_empty(5 + rank // last), "float32[5]", "float32[6]")
    right &= raises(errors.NotInTeamError, lambda: triton_dist.make_team([(rank + 1) % (last + 1)]), f"rank {rank} is not in the team")
    return right and not everyone(triton_dist.symm_zeros(3).any().item())[0]


# ------------------------------------------------------------------ lifetime


def dropped_tensors() -> bool:
    """Views, strided views, graphs of autograd, storages and peers' views keep the memory on the rank that has them; cycles do not."""
    last = triton_dist.world_size() - 1
    ways = {
        "view": lambda tensor: tensor[10:20].view(torch.int32),
        "as_strided": lambda tensor: tensor.as_strided((2, 2), (7, 3)),
        "graph": lambda tensor: (torch.ones(1000, device=tensor.device, requires_grad=True) * tensor).sum(),
        "storage": lambda tensor: tensor.untyped_storage(),
        "set_": lambda tensor: torch.empty(0, device=tensor.device).set_(tensor.untyped_storage(), 5, (3,), (1,)),
        "peer": lambda tensor: triton_dist.symm_peer(tensor, last)[3:],
        "interface": lambda tensor: torch.as_tensor(tensor, device=tensor.device)[1:],
    }
    right = True
    for name, refer in ways.items():
        tensor = triton_dist.symm_zeros(1000)
        place = tensor.data_ptr()
        kept = refer(tensor) if triton_dist.rank() == last else None
        del tensor
        during = triton_dist.symm_empty(1000).data_ptr() == place
        del kept
        gc.collect()
        triton_dist.symm_empty(1)
        after = triton_dist.symm_empty(1000).data_ptr() == place
        if during or not after:
            print(f"{name} on rank {triton_dist.rank()}: used again while it lives: {during}, afterwards: {after}", flush=True)
            right = False
    for _ in range(6):
        ring: list = [triton_dist.symm_empty(HEAP // 3, torch.int8)]
        ring.append(ring)
    return right


def queued_work_is_waited_for() -> bool:
    """Memory is not given to a new tensor while kernels queued on the old one run."""
    right = True
    for call in range(20):
        old = triton_dist.symm_zeros(MEBIBYTE, torch.int32)
        for _ in range(20):
            old.add_(1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(50):
                old.add_(1)
        del old
        new = triton_dist.symm_zeros(MEBIBYTE, torch.int32)
        new.fill_(call)
        torch.cuda.synchronize()
        right &= bool((new == call).all().item())
    return right


# ------------------------------------------------------------------ torch's symmetric memory


def torch_symmetric_memory() -> bool:
    """Refused by name, then adopted: the same bytes at our addresses, reached by kernels of the peers."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    import torch.distributed._symmetric_memory as symm_mem

    theirs = symm_mem.empty(1024, dtype=torch.int32, device=triton_dist.device())
    if torch.cuda.device_count() >= size:
        symm_mem.rendezvous(theirs, dist.group.WORLD)  # torch wants ranks on different GPUs, by their numbers; we do without it
    right = not triton_dist.is_symmetric(theirs)
    right &= raises(errors.NotSymmetricError, lambda: triton_dist.symm_peer(theirs, 0), "symm_adopt")
    right &= raises(errors.NotSymmetricError, lambda: triton_dist.symm_free(theirs), "symm_adopt")
    ours = triton_dist.symm_adopt(theirs[256:512])
    right &= triton_dist.is_symmetric(ours) and ours.data_ptr() // STRIDE == heap_base(rank) // STRIDE
    for call in range(3):
        theirs.fill_(10 * call + rank)
        right &= gathered(ours, tuple(range(size))) == [[10 * call + peer] * 256 for peer in range(size)]
        triton_dist.symm_peer(ours, (rank + 1) % size).fill_(-5)
        barrier()
        right &= theirs[256:512].tolist() == [-5] * 256 and theirs[0].item() == 10 * call + rank
        barrier()
    again = triton_dist.symm_adopt(theirs)
    triton_dist.symm_free(again)
    right &= raises(errors.UseAfterFreeError, lambda: triton_dist.symm_peer(again, 0))
    ours = again = None
    triton_dist.symm_empty(1)
    theirs.fill_(3)
    torch.cuda.synchronize()
    return right and theirs.sum().item() == 3 * 1024


def torch_memory_pool() -> bool:
    """A tensor from the MemPool of torch's symmetric memory."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    import torch.distributed._symmetric_memory as symm_mem

    if not hasattr(symm_mem, "get_mem_pool"):
        raise Skip("this torch has no such pool")
    with torch.cuda.use_mem_pool(symm_mem.get_mem_pool(triton_dist.device())):
        theirs = torch.full((256,), rank, dtype=torch.int32, device=triton_dist.device())
    right = raises(errors.NotSymmetricError, lambda: triton_dist.symm_peer(theirs, 0), "symm_adopt")
    return right and gathered(triton_dist.symm_adopt(theirs), tuple(range(size))) == [[peer] * 256 for peer in range(size)]


def torch_other_backend() -> bool:
    """Memory of another backend of torch's symmetric memory (TORCH_SYMM_BACKEND=NVSHMEM or NCCL): adopted rightly, or refused by name."""
    backend = os.environ.get("TORCH_SYMM_BACKEND")
    if not backend:
        raise Skip("TORCH_SYMM_BACKEND is not set")
    import torch.distributed._symmetric_memory as symm_mem

    try:
        symm_mem.set_backend(backend)
        theirs = symm_mem.empty(1024, dtype=torch.int32, device=triton_dist.device())
        symm_mem.rendezvous(theirs, dist.group.WORLD)
    except Exception as error:  # noqa: BLE001 - what torch can't do here is not ours to judge
        raise Skip(f"torch has no such memory here: {type(error).__name__}") from error
    theirs.fill_(triton_dist.rank())
    right = raises(errors.NotSymmetricError, lambda: triton_dist.symm_peer(theirs, 0))
    try:
        adopted = triton_dist.symm_adopt(theirs)
    except (errors.NotSymmetricError, errors.AllocationMismatchError) as error:
        if triton_dist.rank() == 0:
            print(f"({backend} is refused: {error})", flush=True)
        return right
    ranks = tuple(range(triton_dist.world_size()))
    return right and gathered(adopted[:256], ranks) == [[peer] * 256 for peer in ranks]


def ordinary_memory() -> bool:
    """Refused on every rank, also if only one rank has it; with expandable segments it may be adopted, then rightly."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    plain = torch.full((1 << 20,), rank, dtype=torch.int32, device=triton_dist.device())
    right = raises(errors.NotSymmetricError, lambda: triton_dist.symm_peer(plain, 0))
    right &= raises(errors.NotSymmetricError, lambda: triton_dist.symm_adopt(torch.zeros(4)), "cpu")
    try:
        adopted = triton_dist.symm_adopt(plain)
    except (errors.NotSymmetricError, errors.AllocationMismatchError) as error:
        expandable = "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
        return right and (expandable or "cudaMalloc" in str(error))
    return right and gathered(adopted[:256], tuple(range(size))) == [[peer] * 256 for peer in range(size)]


# ------------------------------------------------------------------ joining


def context_page() -> bool:
    out = torch.zeros(2, dtype=torch.int32, device=triton_dist.device())
    identity_kernel[(1,)](out)
    return out.tolist() == [triton_dist.rank(), triton_dist.world_size()] == [dist.get_rank(), dist.get_world_size()]


def joined_again() -> bool:
    """Other heap sizes in one process: kernels and a graph go on, tensors of the world before are errors by name, nothing lies there."""
    out = torch.zeros(2, dtype=torch.int32, device=triton_dist.device())
    graph = torch.cuda.CUDAGraph()
    identity_kernel[(1,)](out)
    with torch.cuda.graph(graph):
        identity_kernel[(1,)](out)
    old = triton_dist.symm_zeros(1000)
    place = old.data_ptr() % STRIDE
    right = True
    for heap_size in (HEAP // 4, HEAP * 2, HEAP):
        triton_dist.finalize()
        triton_dist.initialize(heap_size=heap_size)
        for use in (lambda: triton_dist.symm_peer(old, 0), lambda: triton_dist.symm_free(old)):
            right &= raises(errors.UseAfterFreeError, use, "world that has ended")
        new = [triton_dist.symm_zeros(1000, torch.int32) for _ in range(5)]
        right &= all(tensor.data_ptr() % STRIDE != place for tensor in new)
        new[0].fill_(triton_dist.rank())
        ranks = tuple(range(triton_dist.world_size()))
        right &= gathered(new[0][:256], ranks) == [[peer] * 256 for peer in ranks]
        out.zero_()
        graph.replay()
        right &= out.tolist() == [triton_dist.rank(), triton_dist.world_size()] and context_page()
        del new
    return right


def failed_starts() -> bool:
    """Too large a heap, sizes that differ: named on every rank, and the next try succeeds."""
    rank, last = triton_dist.rank(), triton_dist.world_size() - 1
    triton_dist.finalize()
    right = raises(errors.HeapFullError, lambda: triton_dist.initialize(heap_size=400 << 30), "bytes free", " of ")
    right &= raises(errors.InvalidArgumentError, lambda: triton_dist.initialize(heap_size=1 << 40), "heap_size=1099511627776")
    if last:
        sizes = lambda: triton_dist.initialize(heap_size=HEAP + HEAP * (rank == last))  # noqa: E731
        right &= raises(errors.InvalidArgumentError, sizes, f"on rank {last}")
    triton_dist.initialize(heap_size=HEAP)
    return right and context_page()


def address_in_use() -> bool:
    """An address that one rank has given away: named on every rank; maybe gone for that process. The last part: it may leave no world."""
    rank, last = triton_dist.rank(), triton_dist.world_size() - 1
    triton_dist.finalize()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    held = heap_base(0) + (1 << 30)
    right = True
    if rank == last:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
        right &= libc.mmap(held, mmap.PAGESIZE, mmap.PROT_READ, flags, -1, 0) == held
    right &= raises(errors.AddressInUseError, lambda: triton_dist.initialize(heap_size=HEAP), f"{heap_base(0):#x}", "is there")
    if rank == last:
        libc.munmap(held, mmap.PAGESIZE)
    try:
        triton_dist.initialize(heap_size=HEAP)
    except errors.AddressInUseError as error:
        # Where all ranks failed alike, none is named.
        return right and (last == 0 or f"rank {last}" in str(error)) and "fresh process" in str(error)
    return right and context_page()


PARTS = [
    context_page, teams, teams_in_operators, mesh_dimensions, team_records, arenas, errors_on_every_rank, dropped_tensors,
    queued_work_is_waited_for, torch_symmetric_memory, torch_memory_pool, torch_other_backend,
    ordinary_memory, joined_again, failed_starts, address_in_use,
]  # fmt: skip


def main() -> None:
    faulthandler.dump_traceback_later(240, exit=True)
    triton_dist.initialize(heap_size=int(os.environ.get("TRITON_DIST_HEAP_SIZE", HEAP)))
    chosen = sys.argv[1:]
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        try:
            said = "right" if part() else "wrong"
        except Skip as reason:
            said = f"skipped, {reason}"
        except Exception:  # noqa: BLE001 - printed; the other ranks hear of it
            traceback.print_exc()
            said = "wrong"
        torch.cuda.synchronize()
        outcomes: list = [None] * dist.get_world_size()
        dist.all_gather_object(outcomes, said)
        if dist.get_rank() == 0:
            wrong = [rank for rank, there in enumerate(outcomes) if there == "wrong"]
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else outcomes[0]}", flush=True)
    if is_initialized():
        triton_dist.finalize()


if __name__ == "__main__":
    main()
