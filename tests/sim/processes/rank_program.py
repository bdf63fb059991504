"""One rank on the CPU: ``rank_program.py PART`` with what torchrun sets in the environment; exits with 0 if the part went as it should."""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import mmap
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import BaseTorchDispatchMode, _len_torch_dispatch_stack

import triton_dist
from tests.sim.processes import kernels
from triton_dist import errors, utils
from triton_dist.runtime import world
from triton_dist.runtime.address_map import CONTEXT, GUARD_BYTES, heap_base
from triton_dist.runtime.context_layout import NUM_RANKS, RANK
from triton_dist.sim.address_space import map_at

ADDS, TICKETS = 100_000, 200
BOUND = 40.0
"""Seconds within which the loss of a peer has to be known."""


def raises(kind, call, *texts):
    """The error that ``call()`` raises, which has to be of this kind and say all ``texts``."""
    try:
        call()
    except kind as error:
        missing = [text for text in texts if text not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def again(**options) -> None:
    """A new world after one that has failed or that is to be another one."""
    if world.is_initialized():
        triton_dist.finalize()
    triton_dist.initialize(**options)


# ------------------------------------------------------------------ parts that all ranks survive


def address_is_taken() -> None:
    """Something on rank 1 lies where a peer's heap has to be: an error on every rank, and no obstacle once it is gone."""
    low = heap_base(2) + GUARD_BYTES
    if os.environ["RANK"] == "1":
        map_at(low, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, "a test")
    raises(errors.AddressInUseError, lambda: triton_dist.initialize(heap_size=16 << 20), "rank 1: rank 2's symmetric heap", f"{low:#x}")
    assert not world.is_initialized()
    if os.environ["RANK"] == "1":
        libc = ctypes.CDLL(None)
        libc.munmap(ctypes.c_void_p(low), ctypes.c_size_t(mmap.PAGESIZE))
    triton_dist.initialize(heap_size=16 << 20)


def counts() -> None:
    """No add is lost, and no ticket is given twice."""
    counter = triton_dist.symm_zeros((2,), torch.int32)
    tickets = triton_dist.symm_zeros((TICKETS,), torch.int32)
    kernels.count_kernel[(1,)](counter, ADDS)
    kernels.take_tickets_kernel[(1,)](counter[1:], tickets, TICKETS)
    triton_dist.synchronize()
    dist.barrier()
    if triton_dist.rank() == 0:
        assert counter.tolist() == [dist.get_world_size() * ADDS, dist.get_world_size() * TICKETS]
        taken = torch.cat([triton_dist.symm_peer(tickets, rank) for rank in range(dist.get_world_size())])
        assert sorted(taken.tolist()) == list(range(len(taken)))
    dist.barrier()


def addresses() -> None:
    """The same constant addresses in every process, the context page too; a peer's tensor is its memory."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    x = triton_dist.symm_empty((8,), torch.float32)
    assert torch.isnan(x).all()  # not written yet
    for peer in range(size):
        assert triton_dist.symm_peer(x, peer).data_ptr() - heap_base(peer) == x.data_ptr() - heap_base(rank) >= GUARD_BYTES
    page = world._process_world.heap.bytes_at(CONTEXT, 16).view(torch.int32)
    assert (page[RANK // 4].item(), page[NUM_RANKS // 4].item()) == (rank, size)
    dist.barrier()
    triton_dist.symm_peer(x, (rank + 1) % size).fill_(rank)
    dist.barrier()
    assert x.tolist() == 8 * [(rank - 1) % size]
    assert triton_dist.device().type == "cpu" and utils.is_cuda() and triton_dist.local_rank() == rank and triton_dist.num_nodes() == 1


def hosts_act() -> None:
    """A kernel is launched and waits while its own host goes on: sets the flag by torch, by a stream, or sees a peer do it."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    flags, out = triton_dist.symm_zeros((4,), torch.int32), torch.zeros(4, dtype=torch.int32)
    side = triton_dist.Stream()
    kernels.wait_kernel[(1,)](flags, out, 0, 1)
    assert not triton_dist.current_stream().query()
    triton_dist.write_value(flags[0], 1, stream=side)
    kernels.wait_kernel[(1,)](flags, out[1:], 1, 2)
    with side:
        dist.barrier()  # behind what this stream does, as all collectives
        triton_dist.symm_peer(flags, (rank + 1) % size)[1] = 2
    kernels.spin_kernel[(1,)](flags[2:], out[2:])
    with side:
        flags[2] = 7
    triton_dist.wait_value(flags[0], 1)
    event = triton_dist.current_stream().record_event()
    while not event.query():
        pass
    assert out.tolist() == [1, 1, 1, 0]
    x = torch.full((4,), float(rank))
    side.wait_stream(triton_dist.current_stream())
    with side:
        dist.all_reduce(x)  # of the host's memory, in stream order
    assert x.tolist() == 4 * [size * (size - 1) / 2]
    dist.barrier()


def forks() -> None:
    """A process that a rank forks off is no rank, and its end is not the rank's."""
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    side = triton_dist.Stream()
    kernels.wait_kernel[(1,)](flags, out, 0, 1)
    child = os.fork()
    if not child:
        raises(errors.NotInitializedError, triton_dist.synchronize, "forked from rank")
        with side:
            raises(errors.NotInitializedError, lambda: triton_dist.symm_zeros((1,)), "forked from rank")
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    triton_dist.write_value(flags[0], 1, stream=side)
    triton_dist.synchronize()
    dist.barrier()
    triton_dist.check()


def teams() -> None:
    """Teams allocate on their own; arenas come from everyone's heap; a rank outside is told so."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    evens = list(range(0, size, 2))
    if rank in evens:
        team = triton_dist.make_team(evens, arena_size=1 << 20)
        x = triton_dist.symm_zeros((4,), torch.int32, group=team)
        x.fill_(rank)
        from triton_dist.ops.collectives.all_gather import all_gather

        assert all_gather(x, group=team).view(-1, 4)[:, 0].tolist() == evens
        raises(errors.UnreachablePeerError, lambda: triton_dist.symm_peer(x, 1), "not on rank 1")
        del x
        triton_dist.free_team(team)
    else:
        raises(errors.NotInTeamError, lambda: triton_dist.make_team(evens), f"rank {rank}")
    utils.nvshmem_barrier_all_on_stream()
    triton_dist.synchronize()


def idle_is_cheap() -> None:
    """Waiting burns no core: rank 0 computes nothing for a second, and the others wait for it."""
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    dist.barrier()
    began, used = time.monotonic(), time.process_time()
    if triton_dist.rank() == 0:
        time.sleep(1)
        for peer in range(1, triton_dist.world_size()):
            triton_dist.write_value(triton_dist.symm_peer(flags, peer), 1)
    else:
        kernels.wait_kernel[(1,)](flags, out, 0, 1)
    triton_dist.synchronize()
    used, took = time.process_time() - used, time.monotonic() - began
    assert used < 0.5 * took, f"{used:.2f} s of the processor in {took:.2f} s"


def other_requests() -> None:
    """Ranks that ask for different things, and too large ones, get the same error on every rank, and may go on."""
    rank = triton_dist.rank()
    message = raises(errors.AllocationMismatchError, lambda: triton_dist.symm_zeros((4 + rank % 2,)), "rank 1", "float32[5]")
    assert everyones(str(message)) == [str(message)] * triton_dist.world_size()
    raises(errors.AllocationMismatchError, lambda: triton_dist.symm_zeros((4,), torch.int32 if rank else torch.int64), "int64[4]")
    raises(errors.HeapFullError, lambda: triton_dist.symm_empty((1 << 40,), torch.int8), "heap_size")
    raises(errors.InvalidArgumentError, lambda: triton_dist.symm_zeros((4 if rank else -4,)), "negative")
    raises(errors.NotSymmetricError, lambda: triton_dist.symm_adopt(torch.zeros(4)), "CPU processes")
    x = triton_dist.symm_zeros((4,))
    assert triton_dist.symm_adopt(x) is x
    triton_dist.symm_free(x)
    raises(errors.UseAfterFreeError, lambda: triton_dist.symm_peer(x, 0), "freed before")
    raises(errors.NestedSimulationError, lambda: triton_dist.simulate(lambda: None, 2))


def other_heaps() -> None:
    """Heap sizes that differ are named, a larger heap may follow, and memory of an ended world stays readable and is not reused."""
    old = triton_dist.symm_zeros((4,), torch.int32)
    old.fill_(77)
    triton_dist.finalize()
    raises(errors.InvalidArgumentError, lambda: triton_dist.initialize(heap_size=(8 + launched_rank()) << 20), "heap_size", "rank 1")
    triton_dist.initialize(heap_size=128 << 20)
    assert old.tolist() == 4 * [77]
    raises(errors.UseAfterFreeError, lambda: triton_dist.symm_peer(old, 0), "has ended")
    large = triton_dist.symm_zeros((100 << 20,), torch.uint8)
    assert not large[:: 1 << 20].any() and old.tolist() == 4 * [77]
    large.fill_(1)
    del large
    gc.collect()
    assert not triton_dist.symm_zeros((100 << 20,), torch.uint8)[:: 1 << 20].any()


def modes_stay() -> None:
    """The program's own modes are as they were, whatever is entered and left around the world."""
    triton_dist.finalize()
    torch.set_default_device("cpu")
    with BaseTorchFunctionMode(), BaseTorchDispatchMode():
        triton_dist.initialize(heap_size=16 << 20)
    out = torch.zeros(1, dtype=torch.int32)
    flags = triton_dist.symm_zeros((1,), torch.int32)
    kernels.wait_kernel[(1,)](flags, out, 0, 1)
    flags_side = triton_dist.Stream()
    triton_dist.write_value(flags[0], 1, stream=flags_side)
    assert out.item() == 1  # reading waits for the stream
    triton_dist.finalize()
    torch.set_default_device(None)
    assert torch.overrides._len_torch_function_stack() == 0 and _len_torch_dispatch_stack() == 0
    raises(errors.NotInitializedError, triton_dist.rank)
    triton_dist.initialize(heap_size=16 << 20)


def deadlock() -> None:
    """The same report on every rank; printed for the test to compare with the simulator's."""
    error = raises(errors.DeadlockError, kernels.stuck, "rank 0", "rank 1")
    raises(errors.DeadlockError, triton_dist.check, str(error))
    texts = everyones(str(error))
    assert set(texts) == {str(error)}
    if launched_rank() == 0:
        print("REPORT " + json.dumps(str(error)), flush=True)


def deadlock_of_hosts() -> None:
    """Rank 0 waits for an allocation that the others never make: they wait for a kernel."""
    again()
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    if triton_dist.rank() == 0:
        error = raises(errors.DeadlockError, lambda: triton_dist.symm_zeros((8,)), "symmetric allocation of float32[8]", "wait_kernel")
    else:
        kernels.wait_kernel[(1,)](flags, out, 0, 1)
        error = raises(errors.DeadlockError, triton_dist.synchronize, "waits for ranks [", "flags[0] of rank 1 == 1")
    assert len(set(everyones(str(error)))) == 1
    again()
    flags = triton_dist.symm_zeros((1,), torch.int32)
    kernels.spin_kernel[(1,)](flags, out)
    raises(errors.DeadlockError, triton_dist.synchronize, "spins in a loop", "flags[0]")


def deadlock_with_a_collective() -> None:
    """Rank 0 is inside ``torch.distributed`` and the others wait for a kernel that waits for rank 0: told from where."""
    again()
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    if triton_dist.rank():
        kernels.wait_kernel[(1,)](flags, out, 0, 1)
        raises(errors.DeadlockError, triton_dist.synchronize, "rank 0, host: is inside torch.distributed.barrier called at", "flags[0]")
    dist.barrier()
    raises(errors.DeadlockError, triton_dist.check, "is inside torch.distributed.barrier")


def timeout() -> None:
    """A wait that takes too long ends, while another rank's host works."""
    again(wait_timeout=0.3)
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    if triton_dist.rank() == 0:
        kernels.wait_kernel[(1,)](flags, out, 0, 1)
        raises(errors.WaitTimeoutError, triton_dist.synchronize, "0.3 s", "flags[0] of rank 0 == 1")
    else:
        time.sleep(1.5)  # it may still set the flag
    dist.barrier()
    if launched_rank():
        raises((errors.PeerLostError, errors.WaitTimeoutError), triton_dist.finalize)
    else:
        triton_dist.finalize()
    triton_dist.initialize(heap_size=16 << 20)


def out_of_bounds() -> None:
    """Rank 1's kernel reads past a peer's tensor: named there, and told to the others."""
    again(heap_size=16 << 20)
    if triton_dist.rank() == 1:
        raises(errors.OutOfBoundsError, kernels.read_too_far, "data[16] of rank 2", "too_far_kernel at", "kernels.py")
    else:
        raises(errors.PeerLostError, kernels.read_too_far, "rank 1", "OutOfBoundsError", "data[16] of rank 2")


def documented_names() -> None:
    """The host names of ``triton_dist.utils``, to the end of ``torch.distributed``."""
    again()
    group = utils.initialize_distributed(seed=3)
    rank, size = triton_dist.rank(), triton_dist.world_size()
    tensors = utils.nvshmem_create_tensors((4,), torch.int32, rank, size)
    tensors[(rank + 1) % size].fill_(rank)
    utils.nvshmem_barrier_all_on_stream()
    assert tensors[rank].tolist() == 4 * [(rank - 1) % size]
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x.tolist() == 3 * [size]
    utils.nvshmem_free_tensor_sync(tensors[rank])
    utils.finalize_distributed()
    assert not dist.is_initialized()


def everyones(value):
    """Every rank's value, by torch."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def launched_rank() -> int:
    """The rank also where there is no world, or a failed one."""
    return int(os.environ["RANK"])


def healthy() -> None:
    """All parts that everyone survives, in one start."""
    parts = (address_is_taken, counts, addresses, hosts_act, forks, teams, idle_is_cheap, other_requests, other_heaps, modes_stay)
    for part in (*parts, deadlock, deadlock_of_hosts, deadlock_with_a_collective, timeout, out_of_bounds, documented_names):
        began = time.monotonic()
        part()
        if launched_rank() == 0:
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    assert threading.active_count() < 8 + torch.get_num_threads()
    triton_dist.finalize()


# ------------------------------------------------------------------ parts in which a rank is lost


def lose(how) -> None:
    """Rank 1 ends by ``how()``; the others' kernels wait for it, and then their hosts."""
    triton_dist.initialize(heap_size=16 << 20)
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    if triton_dist.rank() != 1:
        kernels.wait_kernel[(1,)](flags, out, 0, 1)
    with triton_dist.Stream():
        dist.barrier()
    if triton_dist.rank() == 1:
        how()
    began = time.monotonic()
    raises(errors.PeerLostError, triton_dist.synchronize, "rank 1", LOST[sys.argv[1]], "wait_kernel")
    assert time.monotonic() - began < BOUND
    raises(errors.PeerLostError, lambda: triton_dist.symm_zeros((1,)), "rank 1")
    triton_dist.finalize()


def killed() -> None:
    lose(lambda: os.kill(os.getpid(), signal.SIGKILL))


def raised() -> None:
    def fail() -> None:
        raise ValueError("rank 1 has a mistake")

    lose(fail)


def left() -> None:
    """Rank 1 ends without an error, without leaving the world, and without what the others wait for."""
    triton_dist.initialize(heap_size=16 << 20)
    flags, out = triton_dist.symm_zeros((1,), torch.int32), torch.zeros(1, dtype=torch.int32)
    dist.barrier()
    if triton_dist.rank() == 1:
        return
    kernels.wait_kernel[(1,)](flags, out, 0, 1)
    raises(errors.DeadlockError, triton_dist.synchronize, "rank 1, host: has ended", "flags[0] of rank 0 == 1")
    triton_dist.finalize()


LOST = {"killed": "was killed", "raised": "failed: ValueError: rank 1 has a mistake"}

if __name__ == "__main__":
    globals()[sys.argv[1]]()
