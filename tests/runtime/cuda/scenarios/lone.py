"""Kernels that read the context page in a process that has joined no world, has left it, or joins one later."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from triton import knobs

from tests.runtime.cuda.fake_driver import CUresult, FakeDriver
from tests.runtime.cuda.fake_world import FakeWorld, cpu_tensor_over
from triton_dist import errors
from triton_dist.runtime import context_layout as layout
from triton_dist.runtime.address_map import CONTEXT, heap_base
from triton_dist.runtime.cuda import lone_page

READS = f"mov.u64 %address, {CONTEXT + layout.RANK:#x}; ld.global.nc.b32 %r1, [%address];"
READS_TEAMS = f"mov.b64 %rd1, {CONTEXT + layout.TEAM_TABLE};"
OTHER = f"mov.b64 %rd1, 17592100000000; mov.b64 %rd2, {CONTEXT + layout.PAGE_BYTES:#x}; mov.u32 %r1, 0x10000000;"


@contextlib.contextmanager
def process() -> Iterator[list[int]]:
    """A process in which no kernel was loaded; gives the GPUs whose work was waited for."""
    waited: list[int] = []
    synchronize, cuda = lone_page._synchronize, torch.version.cuda
    lone_page._synchronize = waited.append  # type: ignore[assignment]
    torch.version.cuda = "13.0"  # type: ignore[misc]
    lone_page._page, lone_page._taken = None, False
    lone_page._readers.clear()
    lone_page.watch()
    try:
        yield waited
    finally:
        knobs.runtime.kernel_load_start_hook.remove(lone_page._on_load)
        lone_page._synchronize, torch.version.cuda = synchronize, cuda  # type: ignore[misc]
        if lone_page._page is not None:
            lone_page._page.undo.run()
        lone_page._page = None
        lone_page._readers.clear()


def load(text: str, kind: str = "ptx") -> None:
    """What Triton does before it loads a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"kernel.{kind}"
        path.write_text(text)
        knobs.runtime.kernel_load_start_hook(None, None, "kernel", {"kernel.json": "", path.name: str(path)}, "hash")


def word(offset: int) -> int:
    return cpu_tensor_over(CONTEXT + offset, 4, torch.device("cpu")).view(torch.int32).item()


def place() -> tuple[int, int]:
    """Rank and number of ranks, as a kernel would read them."""
    return word(layout.RANK), word(layout.NUM_RANKS)


def kernels_without_a_world_have_a_page(fake: FakeDriver) -> None:
    """Only those that read it; it is that of one rank without a heap."""
    with process():
        for kind in ("ttgir", "ptx"):
            load(OTHER, kind)
        load(READS, "amdgcn")
        assert fake.in_use == (0, 0, 0)
        load(READS)
        assert fake.in_use == (1, 1, 1) and fake.streams == 0 and fake.capture_mode == 0
        assert place() == (0, 1)
        assert (word(layout.LOCAL_RANK), word(layout.LOCAL_NUM_RANKS)) == (0, 1)
        assert [word(layout.PEER_MASK + 4 * number) for number in range(4)] == [0] * 4, "no heap is mapped"
        assert word(layout.WAIT_BOARD) == word(layout.WAIT_BOARD + 4) == 0, "waits go on polling"
        assert word(layout.LAYOUT) == layout.LAYOUT_VERSION
        for team in range(3):
            assert [word(layout.TEAM_TABLE + team * 16 + 4 * number) for number in range(4)] == [0, 1, 1, 0]
        assert word(layout.TEAM_TABLE + 3 * 16 + 8) == 0, "no other team"
        load(READS)
        load(READS_TEAMS)
        assert fake.in_use == (1, 1, 1)
    with process():
        load(READS_TEAMS)
        assert place() == (0, 1)
    with process():
        load("", "cubin")
        assert place() == (0, 1), "of which nothing but the binary is kept may read it"


def a_world_takes_the_page_and_gives_it_back(fake: FakeDriver) -> None:
    with process() as waited:
        load(READS)
        for _ in range(2):
            world = FakeWorld()
            assert waited.pop() == 0, "kernels may read the page still"
            assert place() == (0, 0), "the world's own page, not written here"
            load(READS)
            world.leave()
            assert place() == (0, 1) and fake.in_use == (1, 1, 1)
    with process():
        world = FakeWorld()
        load(OTHER)
        world.leave()
        assert fake.in_use == (0, 0, 0), "nobody needs a page"
        world = FakeWorld()
        load(READS)
        assert lone_page._page is None
        world.leave()
        assert place() == (0, 1), "a kernel that was loaded in the world stays"


def a_thread_without_a_gpu_gets_torchs(fake: FakeDriver) -> None:
    """As autograd's threads are, which launch the backward kernels."""
    chosen: list[int] = []

    def fault() -> CUresult | None:
        return None if chosen else CUresult.CUDA_ERROR_INVALID_CONTEXT

    current, choose = torch.cuda.current_device, torch.cuda.set_device
    torch.cuda.current_device, torch.cuda.set_device = (lambda: 0), chosen.append  # type: ignore[assignment]
    try:
        with process():
            fake.faults = {"cuCtxGetDevice": fault}
            load(READS)
            assert chosen == [0], chosen
            assert place() == (0, 1)
    finally:
        fake.faults = {}
        torch.cuda.current_device, torch.cuda.set_device = current, choose


def a_world_that_fails_gives_the_page_back(fake: FakeDriver) -> None:
    last = dist.get_world_size() - 1
    with process():
        load(READS)
        for name in ("cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve"):

            def fault(*arguments: int, name: str = name) -> CUresult | None:
                spared = name == "cuMemAddressReserve" and arguments[2] != heap_base(0)
                return None if spared else CUresult.CUDA_ERROR_NOT_PERMITTED

            fake.faults = {name: fault} if dist.get_rank() == last else {}
            dist.barrier()
            with pytest.raises(errors.TritonDistError, match=f"rank {last}"):
                FakeWorld()
            fake.faults = {}
            assert place() == (0, 1) and fake.in_use == (1, 1, 1), name
        FakeWorld().leave()


def another_gpu_reads_the_same_page(fake: FakeDriver) -> None:
    fake.gpus = ("first", "second", "far")
    given: list[int] = []
    with process() as waited:
        load(READS)
        fake.faults = {"cuMemSetAccess": lambda address, size, access, count: given.append(access[0].location.id)}
        fake.current = 1
        load(READS)
        load(READS)
        assert given == [1] and fake.in_use == (1, 1, 1)
        fake.faults = {"cuMemSetAccess": lambda *arguments: CUresult.CUDA_ERROR_INVALID_DEVICE}
        fake.current = 2
        for _ in range(2):
            with pytest.raises(
                errors.UnreachablePeerError, match=r"kernel: .*without triton_dist.initialize.* 0000:far.* 0000:first.*one process"
            ):
                load(READS)
        fake.faults = {"cuMemSetAccess": lambda address, size, access, count: given.append(access[0].location.id)}
        fake.current = 1
        lone_page.give_way()
        assert waited == [0, 1] and fake.in_use == (0, 0, 0)
        lone_page.take_back()
        assert given == [1, 1, 0], "its memory is of the GPU that is current then"


def taken_addresses_are_an_error_of_the_launch(fake: FakeDriver) -> None:
    held = CONTEXT + (1 << 30)
    with process():
        assert fake._mmap(held, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000)
        for _ in range(2):
            with pytest.raises(
                errors.AddressInUseError, match=rf"kernel: it runs without .* page of its own at {CONTEXT:#x}: .*anonymous mapping"
            ):
                load(READS)
            assert fake.in_use == (0, 0, 0) and fake.capture_mode == 0
        fake._libc.munmap(held, mmap.PAGESIZE)
    with process():
        fake.avoided.clear()
        fake.faults = {"cuMemcpyHtoDAsync": lambda *arguments: CUresult.CUDA_ERROR_NOT_PERMITTED}
        with pytest.raises(errors.TritonDistError, match="cuMemcpyHtoDAsync"):
            load(READS)
        assert fake.in_use == (0, 0, 0) and fake.streams == 0
        fake.faults = {}
        load(READS)
        assert place() == (0, 1)


def a_full_gpu_is_left_in_good_order(fake: FakeDriver) -> None:
    """Others may have all of its memory but the heap, and there may be no room for a page even then."""
    full = [False]

    def fault(*arguments: object) -> CUresult | None:
        return CUresult.CUDA_ERROR_OUT_OF_MEMORY if full[0] and fake.in_use[2] else None

    with process():
        load(READS)
        fake.faults = {"cuMemCreate": fault}
        world = FakeWorld()
        full[0] = True
        world.leave()
        assert place() == (0, 1) and fake.in_use == (1, 1, 1), "the heap makes room for the page"
        full[0] = False
        world = FakeWorld()
        fake.faults = {"cuMemCreate": lambda *arguments: CUresult.CUDA_ERROR_OUT_OF_MEMORY}
        with pytest.warns(RuntimeWarning, match="fault now until initialize"):
            world.leave()
        fake.faults = {}
        assert fake.in_use == (0, 0, 0)
        FakeWorld().leave()
        assert place() == (0, 1)


SCENARIOS = [
    a_full_gpu_is_left_in_good_order,
    kernels_without_a_world_have_a_page,
    a_thread_without_a_gpu_gets_torchs,
    a_world_takes_the_page_and_gives_it_back,
    a_world_that_fails_gives_the_page_back,
    another_gpu_reads_the_same_page,
    taken_addresses_are_an_error_of_the_launch,
]
