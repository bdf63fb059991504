"""One rank of the world on GPUs with the GPU taken away: processes, gloo, wait boards and watchdog are real, memory is the host's.

``world_without_gpu.py PART`` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set; exits with 0 if the part went as it should.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

import triton_dist
from triton_dist.errors import PeerLostError, WaitTimeoutError
from triton_dist.runtime import context_layout, world
from triton_dist.runtime.cuda import driver
from triton_dist.runtime.cuda import world as module
from triton_dist.runtime.wait_board import all_boards
from triton_dist.runtime.wait_layout import BOARD_BYTES

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
from tests.runtime.waiting_kernels import WaitingKernels, address_of, time_out  # noqa: E402

BOARD_POINTER = 0x7F12_3456_7000
CALLS: list[tuple] = []


class HostHeap:
    """A heap of which only the context page is real."""

    def __init__(self, owner, size):
        self.page = torch.zeros(context_layout.TEAM_TABLE, dtype=torch.uint8)
        self.words_address = 0
        owner.gather("mapped")

    def bytes_at(self, address, nbytes):
        return self.page[:nbytes]

    def close(self):
        pass


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

    def call(name, *arguments):
        if name == "cuMemHostRegister" and dist.get_rank() == 1:
            raise driver.CudaDriverError("cuMemHostRegister: not supported")
        return working(name, *arguments)

    driver.call = call
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        triton_dist.initialize()
    assert any("attach won't see" in str(entry.message) for entry in caught) == (dist.get_rank() == 1)
    triton_dist.finalize()
    try:
        triton_dist.initialize(wait_timeout=2)
        raise AssertionError("no error")
    except triton_dist.errors.TritonDistError as error:
        assert "not supported" in str(error)


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
