"""The context page of a process that has joined no world: that of a world of one rank, with no heap.

Kernels read their rank, and a wait that takes long looks for its bound, at a constant address. ``initialize`` maps a page there; a kernel
that is launched without it would fault. So, once a kernel that calls a primitive is about to be compiled or found on the disk, this module
adds a hook of Triton's to those already there: it sees each kernel before it is loaded, and maps a page if its PTX names an address
there. Nothing is mapped for other kernels. ``initialize`` takes the addresses over, and gives them back to such a page when
the world ends or could not be made, since kernels stay loaded.
"""

from __future__ import annotations

import ctypes
import re
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from triton import knobs

from ...errors import AddressInUseError, TritonDistError, UnreachablePeerError
from .. import context_layout
from ..address_map import CONTEXT, STRIDE
from ..context_words import first_words
from ..team import TEAMS_OF_NVSHMEM, Team
from . import driver
from .team_table import TeamTable
from .undo import UndoStack, map_memory

_NUMBER = re.compile(r"0x1000[0-9a-f]{8}\b|\b175921[0-9]{8}\b")
"""Numbers in PTX, hexadecimal as this package writes them or decimal as LLVM does, that may be addresses of the page."""

_END_OF_LISTS = context_layout.TEAM_MEMBERS + context_layout.MAX_TEAMS * context_layout.MEMBERS_PER_TEAM


@dataclass
class _Page:
    """What is mapped at ``CONTEXT``: memory of one GPU, and the GPUs of this process that may read it, the owner first."""

    devices: list[int]
    size: int
    undo: UndoStack = field(default_factory=UndoStack)


_lock = threading.Lock()
_page: _Page | None = None
_taken = False
"""Whether the addresses belong to a world."""

_readers: list[int] = []
"""GPUs onto which kernels that read the page were loaded; they stay there for the life of the process."""


def watch() -> None:
    """From now on look at each kernel that Triton loads in this process, if torch is made for CUDA. May be called often."""
    if torch.version.cuda is not None:
        knobs.runtime.kernel_load_start_hook.add(_on_load)


def _on_load(module: Any, function: Any, name: str, metadata_group: Mapping[str, str], hash: Any) -> None:
    """Triton is going to load a kernel onto the current GPU. It is not launched if this raises AddressInUseError, UnreachablePeerError."""
    if not reads_page(metadata_group):
        return
    with _lock:
        device = _current_device()
        if not _taken:
            _provide(device, f"{name}: it runs without triton_dist.initialize()")
        if device not in _readers:
            _readers.append(device)


def reads_page(metadata_group: Mapping[str, str]) -> bool:
    """Whether a kernel, by the files that Triton keeps of it, reads the page on a CUDA GPU; if only its binary is kept, it may."""
    texts = [path for file, path in metadata_group.items() if file.endswith(".ptx")]
    if not texts:
        return any(file.endswith(".cubin") for file in metadata_group)
    found = (int(number, 0) for number in _NUMBER.findall(Path(texts[0]).read_text()))
    return any(0 <= address - CONTEXT < context_layout.PAGE_BYTES for address in found)


def give_way() -> None:
    """A world is going to map its own page: waits for the kernels that may read this one, and unmaps it."""
    global _page, _taken
    with _lock:
        if _page is not None:
            for device in _page.devices:
                _synchronize(device)
            _page.undo.run()
            _page = None
        _taken = True


def take_back() -> None:
    """There is no world any more, or it could not be made; loaded kernels may read the page still. Warns where they can't."""
    global _taken
    with _lock:
        _taken = False
        if not _readers:
            return
        try:
            here = _current_device()
            for device in sorted(_readers, key=lambda device: device != here):
                _provide(device, "kernels that are loaded already, now without a world")
        except TritonDistError as error:
            warnings.warn(f"kernels with primitives fault now until initialize() is called again: {error}", RuntimeWarning, stacklevel=2)


def _provide(device: int, who: str) -> None:
    """Map the page, or let one more GPU reach it. who: needs it, for messages."""
    global _page
    if _page is None:
        try:
            _page = _mapped(device)
        except AddressInUseError as error:
            raise AddressInUseError(f"{who}, so it needs a context page of its own at {CONTEXT:#x}: {error}") from error
    elif device not in _page.devices:
        try:
            driver.set_access(CONTEXT, _page.size, device)
        except driver.CudaDriverError as error:
            raise UnreachablePeerError(
                f"{who}, on the {driver.describe_device(device)}, but the context page of this process is memory of the "
                f"{driver.describe_device(_page.devices[0])}, which that GPU does not reach: {error}; use one process for each of them"
            ) from error
        _page.devices.append(device)


def _mapped(device: int) -> _Page:
    page = _Page([device], driver.granularity(device))
    try:
        with driver.allowed_while_capturing():
            driver.reserve(CONTEXT, STRIDE)
            page.undo.call("cuMemAddressFree", CONTEXT, STRIDE)
            handle = driver.create(device, page.size)
            page.undo.call("cuMemRelease", handle)
            map_memory(CONTEXT, page.size, handle, device, page.undo)
            _write(lone_words())
    except BaseException:
        page.undo.run()
        raise
    return page


def lone_words() -> torch.Tensor:
    """The page of a world of one rank whose heap is not mapped, up to the end of its lists of teams; uint8, on the CPU."""
    page = torch.zeros(_END_OF_LISTS, dtype=torch.uint8, device="cpu")
    words = first_words(0, 1, 0, 1)
    page[: words.numel()] = words
    page[context_layout.PEER_MASK : context_layout.PEER_MASK + 16] = 0
    table = TeamTable(lambda address, nbytes: page[address - CONTEXT : address - CONTEXT + nbytes])
    for _ in range(TEAMS_OF_NVSHMEM):
        table.enter(Team(0, (0,)), [])
    return page


def _write(words: torch.Tensor) -> None:
    """By a stream of our own, which a capture elsewhere does not concern."""
    non_blocking = 1
    text = words.numpy().tobytes()
    source = ctypes.create_string_buffer(text, len(text))
    stream = driver.call("cuStreamCreate", non_blocking)
    try:
        driver.call("cuMemcpyHtoDAsync", CONTEXT, ctypes.addressof(source), len(text), stream)
        driver.call("cuStreamSynchronize", stream)
    finally:
        driver.call("cuStreamDestroy", stream)


def _current_device() -> int:
    """The GPU of this thread. Threads that have none yet, such as autograd's, get torch's, as Triton's loading does."""
    try:
        return int(driver.call("cuCtxGetDevice"))
    except driver.CudaDriverError:
        torch.cuda.set_device(torch.cuda.current_device())
        return int(driver.call("cuCtxGetDevice"))


def _synchronize(device: int) -> None:
    torch.cuda.synchronize(device)
