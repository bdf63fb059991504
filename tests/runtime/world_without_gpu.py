"""One rank of the world on GPUs with the GPU taken away: processes, gloo, wait boards and watchdog are real, memory is the host's.

``world_without_gpu.py PART`` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; exits with 0 if the part went as it should.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

import triton_dist
from triton_dist.errors import MissingCapabilityError, PeerLostError, WaitTimeoutError
from triton_dist.runtime import context_layout, world
from triton_dist.runtime.control_group import ControlGroup
from triton_dist.runtime.cuda import driver
from triton_dist.runtime.cuda import world as module
from triton_dist.runtime.wait_board import all_boards, path_of, remove_stale
from triton_dist.runtime.wait_layout import BOARD_BYTES

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
from tests.runtime.waiting_kernels import WaitingKernels, address_of, time_out  # noqa: E402

BOARD_POINTER = 0x7F12_3456_7000
CALLS: list[tuple] = []


class HostHeap:
    """A heap of which only the context page is real. mapped: how many there are."""

    mapped = 0

    def __init__(self, owner, size):
        self.page = torch.zeros(context_layout.TEAM_TABLE, dtype=torch.uint8)
        self.words_address = self.mapped_bytes = 0
        owner.gather("mapped")
        HostHeap.mapped += 1

    def bytes_at(self, address, nbytes):
        return self.page[:nbytes]

    def close(self):
        HostHeap.mapped -= 1


def take_the_gpu_away() -> None:
    """What the world asks of torch and of the driver, answered without a GPU."""
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.set_device = torch.cuda.synchronize = lambda device: None
    torch.cuda.init = lambda: None
    torch.cuda.Stream = lambda device: SimpleNamespace(record_event=lambda: None)
    zeros = torch.zeros
    torch.zeros = lambda *arguments, device=None, **options: zeros(*arguments, **options)
    module.CudaHeap = HostHeap
    module.CudaWorld.load_waits = lambda world: None
    module.check_peers = lambda device, world_size, gather: None
    driver.bindings = lambda: None

    def call(name, *arguments):
        CALLS.append((name, *arguments))
        return BOARD_POINTER if name == "cuMemHostGetDevicePointer" else None

    driver.call = call
    dist.init_process_group("gloo")


def joined() -> None:
    """The board is registered, known to kernels and to the peers, and gone afterwards."""
    triton_dist.initialize(wait_timeout=3)
    here = world._process_world
    words = here.heap.page.view(torch.int64)
    assert words[context_layout.WAIT_BOARD // 8].item() == BOARD_POINTER
    assert words[context_layout.LAYOUT // 8].item() == context_layout.LAYOUT_MARK
    assert words.view(torch.int32)[:2].tolist() == [dist.get_rank(), 2]
    assert CALLS[0] == ("cuMemHostRegister", here._board.address, BOARD_BYTES, 3)
    assert {board.rank for board in all_boards()} >= {0, 1} and abs(here._board.bound - 3) < 0.01
    assert [peer.rank for peer in here._watchdog._peers] == [1 - here.rank]
    here.publish_blocks([SimpleNamespace(name="flags", offset=4096, nbytes=64)])
    assert here._board.blocks()[0].name == "flags"
    triton_dist.check()
    triton_dist.synchronize()
    assert here.gather(here.rank) == [0, 1]
    path, address = here._board.path, here._board.address
    triton_dist.finalize()
    assert CALLS[-1] == ("cuMemHostUnregister", address) and not path.exists() and not world.is_initialized()
    triton_dist.initialize()
    assert world._process_world._board.bound is None
    triton_dist.finalize()


def timed_out() -> None:
    """Both ranks time out, leave, and join again."""
    triton_dist.initialize(wait_timeout=1)
    here = world._process_world
    here.publish_blocks([SimpleNamespace(name="flags", offset=4096, nbytes=64)])
    time_out(here._board, address=address_of(here.rank, 4096 + 4 * here.rank), expected=8)
    try:
        triton_dist.synchronize()
        raise AssertionError("no error")
    except WaitTimeoutError as error:
        assert f"flags[{here.rank}] of rank {here.rank} == 8" in str(error)
    triton_dist.finalize()
    triton_dist.initialize(wait_timeout=1)
    triton_dist.check()
    assert world._process_world.gather(1) == [1, 1]
    triton_dist.finalize()


def finalize_tells() -> None:
    """A failure that nobody was told of is told by ``finalize``, to the rank that it happened to."""
    triton_dist.initialize(wait_timeout=1)
    here = world._process_world
    if here.rank == 0:
        time_out(here._board)
        try:
            triton_dist.finalize()
            raise AssertionError("no error")
        except WaitTimeoutError:
            assert not world.is_initialized()
    else:
        began = time.monotonic()
        try:
            triton_dist.finalize()
            raise AssertionError("no error")
        except (WaitTimeoutError, PeerLostError):
            assert time.monotonic() - began < 60


def killed() -> None:
    """Rank 1 is killed while rank 0's kernels wait for it, and its host."""
    triton_dist.initialize(wait_timeout=60)
    here = world._process_world
    if here.rank == 1:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    kernels = WaitingKernels(here._board, [{"address": address_of(0, 0)}])
    began = time.monotonic()
    try:
        here.gather("never")
        raise AssertionError("no error")
    except PeerLostError as error:
        assert "was killed" in str(error) and time.monotonic() - began < 45, "gone long before the bound of 60 s"
    assert kernels.aborted.wait(5)
    triton_dist.finalize()


def not_registered() -> None:
    """Without a bound a driver that can't map the board is a warning, with one it is an error on every rank."""
    import warnings

    working = driver.call

    unsupported = ["cuMemHostRegister"]

    def call(name, *arguments):
        if name in unsupported and dist.get_rank() == 1:
            raise driver.CudaDriverError(f"{name}: not supported")
        return working(name, *arguments)

    driver.call = call
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        triton_dist.initialize()
    assert any("attach won't see" in str(entry.message) for entry in caught) == (dist.get_rank() == 1)
    triton_dist.finalize()
    for name in ("cuMemHostRegister", "cuMemHostGetDevicePointer"):
        unsupported[:] = [name]
        try:
            triton_dist.initialize(wait_timeout=2)
            raise AssertionError("no error")
        except triton_dist.errors.TritonDistError as error:
            assert f"{name}: not supported" in str(error)
        assert nothing_is_left()


def nothing_is_left() -> bool:
    """Whether no world, no heap, no wait board of this process and no registration of one is there."""
    names = [name for name, *_ in CALLS]
    registered = names.count("cuMemHostRegister") - names.count("cuMemHostUnregister")
    return not (world.is_initialized() or HostHeap.mapped or registered or path_of(os.getpid()).exists())


def group_ended_first() -> None:
    """The program ends ``torch.distributed`` before it leaves the world: the ranks do not meet, but leave, and may join again."""
    for bound in (None, 3):
        triton_dist.initialize(wait_timeout=bound)
        dist.barrier()
        dist.destroy_process_group()
        triton_dist.finalize()
        assert nothing_is_left()
        store = Path(os.environ["STORES"]) / f"after {bound}"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(os.environ["RANK"]), world_size=2)
    triton_dist.initialize()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{store}.2", rank=int(os.environ["RANK"]), world_size=2)
    triton_dist.finalize()
    assert nothing_is_left()
    triton_dist.initialize()
    assert world._process_world.gather(1) == [1, 1]
    # It ends with a group of a world, which torch does not know any more.
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{store}.3", rank=int(os.environ["RANK"]), world_size=2)


def broken_device() -> None:
    """A kernel of rank 0 has failed, so that it can't wait for its GPU: it raises what CUDA says, and all is undone on both ranks."""

    def broken(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    triton_dist.initialize(wait_timeout=3)
    here = world._process_world
    working = torch.cuda.synchronize
    if here.rank == 0:
        torch.cuda.synchronize = broken
    try:
        triton_dist.finalize()
        raise AssertionError("no error")
    except RuntimeError as error:
        assert here.rank == 0 and "illegal memory access" in str(error)
    except PeerLostError:
        assert here.rank == 1
    assert nothing_is_left()
    torch.cuda.synchronize = working


def joining_fails() -> None:
    """However joining fails, and wherever, nothing stays behind, and the next try succeeds."""
    working = ControlGroup.gather

    def failing_at(number, error):
        count = itertools.count()

        def gather(control, value):
            values = working(control, value)
            if next(count) == number:
                raise error
            return values

        return gather

    gathers = 0
    for error, raised in ((RuntimeError("Connection closed by peer"), PeerLostError), (KeyboardInterrupt(), KeyboardInterrupt)):
        for number in itertools.count():
            ControlGroup.gather = failing_at(number, error)
            try:
                triton_dist.initialize(wait_timeout=3)
            except raised:
                gathers = max(gathers, number + 1)
            ControlGroup.gather = working
            if world.is_initialized():
                break
            assert nothing_is_left(), number
        triton_dist.finalize()
        assert nothing_is_left()
    assert gathers >= 5, "place, board, heap, context page, introductions"


class Backing:
    """Stands for NVSHMEM. calls: what was done with it, and whether the heap was mapped then."""

    distance = 0
    calls: list[tuple[str, int]] = []
    fails = False

    def __init__(self, rank, world_size, device, together, gather, address, nbytes):
        together("starting NVSHMEM", self.start)

    def start(self):
        if Backing.fails and dist.get_rank() == 1:
            raise MissingCapabilityError("no NVSHMEM today")

    def close(self):
        self.calls.append(("close", HostHeap.mapped))

    def abandon(self):
        self.calls.append(("abandon", HostHeap.mapped))


def with_nvshmem() -> None:
    """It is left before the heap is unmapped: together, or alone where the ranks don't meet. Where it can't be started nothing stays."""
    module.NvshmemBacking = Backing
    triton_dist.initialize(shmem="nvshmem")
    assert world._process_world.uses_nvshmem
    triton_dist.finalize()
    triton_dist.initialize(shmem="nvshmem", wait_timeout=60)
    dist.barrier()
    dist.destroy_process_group()
    triton_dist.finalize()
    assert Backing.calls == [("close", 1), ("abandon", 1)] and nothing_is_left()
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORES']}/store", rank=int(os.environ["RANK"]), world_size=2)
    Backing.fails = True
    try:
        triton_dist.initialize(shmem="nvshmem")
        raise AssertionError("no error")
    except MissingCapabilityError as error:
        assert "rank 1: no NVSHMEM today" in str(error) and nothing_is_left()
    triton_dist.initialize()
    triton_dist.finalize()
    assert len(Backing.calls) == 2


def lost_while_joining() -> None:
    """Rank 1 is killed while the ranks make a world: rank 0 says so, and keeps nothing of it."""

    def write_context_page(here):
        if here.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        here.gather("context page written")

    module.CudaWorld._write_context_page = write_context_page
    try:
        triton_dist.initialize(wait_timeout=3)
        raise AssertionError("no error")
    except PeerLostError as error:
        assert "can't be reached" in str(error)
    assert nothing_is_left()
    deadline = time.monotonic() + 30
    while not remove_stale() and time.monotonic() < deadline:  # the board of rank 1, as the next world would
        time.sleep(0.05)


def threads_of_gloo() -> int:
    """Of this process. One that lets go of a tensor while Python ends aborts it."""
    return sum(path.read_text().strip() == "pt_gloo_runloop" for path in Path("/proc/self/task").glob("*/comm"))


def ends_its_threads() -> None:
    """Those of the world's own group end with it; those of torch's default group stay."""
    dist.all_reduce(torch.ones(1))
    before = threads_of_gloo()
    triton_dist.initialize(wait_timeout=3)
    world._process_world.gather(1)
    during = threads_of_gloo()
    triton_dist.finalize()
    deadline = time.monotonic() + 10  # the kernel lists a thread for a moment after it was joined
    while threads_of_gloo() != before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert before == threads_of_gloo() < during, (before, during, threads_of_gloo())


def ends_without_leaving() -> None:
    """They end before Python does, though the program leaves no world. (What is registered first is called last.)"""
    atexit.register(lambda: threads_of_gloo() and os._exit(1))
    triton_dist.initialize(wait_timeout=3)
    world._process_world.gather(1)


if __name__ == "__main__":
    take_the_gpu_away()
    globals()[sys.argv[1]]()
    dist.destroy_process_group()  # torch may abort a process that ends with threads of gloo
