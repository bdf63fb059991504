"""Which memory a kernel may touch, what it is called, who waits for a word of it and who wrote it last.

Addresses are the process's own, so a ``data_ptr()`` stored in a table of pointers works as it does on a GPU, and a rank's symmetric
heap lies where the constant address map puts it. Nothing protects a raw address but the check made on every access here.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

from ..errors import MisalignedAccessError, NotSymmetricError, OutOfBoundsError, SimulationError, UseAfterFreeError
from ..runtime.address_map import MULTICAST, rank_of

VIEW_BASE = 4096
"""numpy refuses an array at address 0, and nothing is mapped in the first page."""


POISON = 0xFF
"""Byte that fills symmetric memory that is allocated without a content."""


def _whole_memory() -> np.ndarray:
    interface = {"data": (VIEW_BASE, False), "shape": ((1 << 47),), "typestr": "|u1", "version": 3}
    return np.asarray(type("WholeMemory", (), {"__array_interface__": interface}))


_BESIDE = 16
"""Bytes of the widest access: one that is not farther from a live tensor is taken for a slip past its edge."""

_WHOLE = _whole_memory()

SCALAR_VIEWS: dict[np.dtype, np.ndarray] = {}
"""For each dtype, all memory as one array; element ``(address - VIEW_BASE) / itemsize`` is the one at ``address``."""


def scalar_view(dtype: np.dtype) -> np.ndarray:
    """All memory as an array of ``dtype``. The caller has checked the address."""
    view = SCALAR_VIEWS.get(dtype)
    if view is None:
        view = SCALAR_VIEWS[dtype] = _WHOLE.view(dtype)
    return view


def window(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A strided window of memory. strides: bytes. The caller has checked the addresses."""
    return np.ndarray(shape, dtype, _WHOLE, address - VIEW_BASE, strides)


def element_index(address, itemsize: int):
    """Index into ``scalar_view`` of an address or of an array of addresses."""
    return (address - VIEW_BASE) >> _SHIFTS[itemsize]


_SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3}

_BYTES: Any = memoryview(_WHOLE)  # type: ignore[arg-type]

WORDS: dict[int, Any] = {size: _BYTES.cast(code) for size, code in ((1, "b"), (2, "h"), (4, "i"), (8, "q"))}
"""All memory as signed Python ints of 1, 2, 4 or 8 bytes: the fastest way to one integer word. Index as for ``scalar_view``."""


@dataclass(slots=True, eq=False)
class Allocation:
    """One piece of memory. ``lo`` to ``hi`` are bytes; ``rank`` is None for memory that belongs to no rank's heap.

    poisoned: whether all of it was ``POISON`` when it was allocated, for nobody has said what it holds.
    timeless: whether its words tell nobody the time: who updates one may be earlier than who did so before.
    foreign: the backend of torch's symmetric memory that it belongs to, whose peers have other addresses on GPUs than the map says.
    is_pad: whether it is a signal pad of torch's symmetric memory.
    """

    lo: int
    hi: int
    name: str
    itemsize: int = 1
    rank: int | None = None
    symmetric: bool = False
    freed: bool = False
    poisoned: bool = False
    timeless: bool = False
    foreign: str = ""
    is_pad: bool = False

    def index(self, address: int) -> int:
        """Element index of ``address``, counted from the start of the allocation."""
        return (address - self.lo) // self.itemsize

    def label(self, address: int) -> str:
        """As reports name the element at ``address``: ``flags[3] of rank 1``."""
        return f"{self.name}[{self.index(address)}]" + (f" of rank {self.rank}" if self.rank is not None else "")


class Write(NamedTuple):
    """Who wrote a word last, what, when in simulated nanoseconds, and the number of the source line in the writer's kernel."""

    writer: Any
    value: object
    time: float
    location: int


@dataclass
class Memory:
    """The allocations of one machine."""

    version: int = 0
    """Grows whenever a value in memory changes; a spinning program is tried again only then."""
    watchers: dict[int, list] = field(default_factory=dict)
    """Parked programs by the 8-byte granule that they wait for."""
    writes: dict[int, tuple] = field(default_factory=dict)
    """The last write of a signal word, by address: the fields of a Write, as a plain tuple because there are many."""
    known_words: dict[int, dict[int, Allocation]] = field(default_factory=lambda: {1: {}, 2: {}, 4: {}, 8: {}})
    """For each size the words, by address, that were found to be inside an allocation and aligned."""
    wake: Callable[[list], None] = lambda parked: None
    stored: Callable[[int, Any], None] | None = None
    """Told, where a run is recorded, who stored to a granule that somebody waits for."""
    adopt: Callable[[Memory, int], Allocation | None] = lambda memory, address: None
    """Asked for the allocation at an address that none is known at, before that is an error."""
    _starts: list[int] = field(default_factory=list)
    _allocations: list[Allocation] = field(default_factory=list)
    _freed: list[Allocation] = field(default_factory=list)
    _storages: dict[int, Allocation] = field(default_factory=dict)

    @property
    def allocations(self) -> list[Allocation]:
        """All that are known and not freed, by address."""
        return self._allocations

    def register(self, tensor: torch.Tensor, *, name: str | None = None, rank: int | None = None) -> Allocation:
        """Register the whole storage of a CPU tensor, once; it is forgotten when torch frees the storage.

        name: replaces the name given before only if that was a default.
        """
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        known = self._storages.get(address)
        if known is not None and known.hi - known.lo == size:
            if name and known.name.startswith("tensor@"):
                known.name, known.itemsize = name, tensor.element_size()
            return known
        inside = self.find(address)
        if inside is not None and inside.symmetric and address + size <= inside.hi:
            return inside
        if rank_of(address) is not None:
            # Memory of a symmetric heap that is not allocated (any more): touching it has to stay an error.
            return self._freed_piece(address) or Allocation(address, address + size, "freed symmetric memory", freed=True)
        allocation = self.register_range(
            address, size, name=name or f"tensor@{address:#x}", rank=rank, symmetric=False, itemsize=tensor.element_size()
        )
        if size:
            self._storages[address] = allocation
            weakref.finalize(storage, _forget, weakref.ref(self), allocation)
        return allocation

    def register_range(self, lo: int, nbytes: int, *, name: str, rank: int | None, symmetric: bool, itemsize: int) -> Allocation:
        """Register memory that is no torch storage of its own, such as a piece of a symmetric heap."""
        allocation = Allocation(lo, lo + nbytes, name, itemsize, rank, symmetric)
        self._forget_words()
        if nbytes:
            self._drop_overlapping(lo, lo + nbytes)
            at = bisect.bisect_left(self._starts, lo)
            self._starts.insert(at, lo)
            self._allocations.insert(at, allocation)
        return allocation

    def unregister(self, allocation: Allocation) -> None:
        """Forget an allocation; touching it later is a UseAfterFreeError."""
        if allocation.freed:
            return
        allocation.freed = True
        self._forget_words()
        self._storages.pop(allocation.lo, None)
        at = bisect.bisect_left(self._starts, allocation.lo)
        if at < len(self._allocations) and self._allocations[at] is allocation:
            del self._starts[at], self._allocations[at]
            self._freed.append(allocation)
            del self._freed[:-256]

    def _freed_piece(self, address: int) -> Allocation | None:
        return next((freed for freed in reversed(self._freed) if freed.lo <= address < freed.hi), None)

    def _drop_overlapping(self, lo: int, hi: int) -> None:
        """What torch freed without our knowing may lie where something new is."""
        at = max(bisect.bisect_right(self._starts, lo) - 1, 0)
        while at < len(self._allocations) and self._allocations[at].lo < hi:
            if self._allocations[at].hi > lo:
                self.unregister(self._allocations[at])
            else:
                at += 1
        self._freed = [freed for freed in self._freed if freed.lo < lo or freed.hi > hi]

    def _forget_words(self) -> None:
        for words in self.known_words.values():
            words.clear()

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds ``address``."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0:
            allocation = self._allocations[at]
            if address < allocation.hi:
                return allocation
        return None

    def check(self, lo: int, hi: int, itemsize: int, what: str, origin: Allocation | None = None) -> Allocation:
        """The allocation that holds all of ``lo`` to ``hi``; raises OutOfBoundsError and its kin.

        origin: the allocation that the pointer came from; reaching another one from there is out of bounds, too.
        """
        allocation = origin
        if allocation is None or allocation.freed:
            allocation = self.find(lo) or self.adopt(self, lo)
        if allocation is None or lo < allocation.lo or hi > allocation.hi:
            raise self._out_of_bounds(lo, hi, itemsize, what, origin)
        return allocation

    def _out_of_bounds(self, lo: int, hi: int, itemsize: int, what: str, origin: Allocation | None) -> SimulationError:
        also = ""
        if origin is None or origin.freed:
            freed = origin or self._freed_piece(lo)
            if freed is not None and (origin is not None or not self._beside_a_live_one(lo, hi, freed)):
                return UseAfterFreeError(f"{what} of {freed.label(lo)}, which was freed before; keep it alive until the kernel has run")
            if freed is not None:
                also = f" (or {freed.name} is meant, which was there and was freed: keep it alive until the kernel has run)"
            if lo >= MULTICAST:
                return OutOfBoundsError(
                    f"{what} through a multicast address, which an ordinary access can't take; use multimem_st or multimem_ld_reduce"
                )
            if lo < 1 << 16:
                place = f"address {lo:#x}, an offset from a NULL pointer" if lo else "a NULL pointer"
                return OutOfBoundsError(f"{what} through {place}; nothing was allocated where it comes from")
        near = origin or self._nearest(lo)
        bad = lo if near is None or not near.lo <= lo < near.hi else max(near.hi, lo)
        if near is None or not (near.lo - (1 << 32) < bad < near.hi + (1 << 32)):
            return OutOfBoundsError(f"{what} through address {lo:#x}, which is in no tensor that the simulator knows")
        size = (near.hi - near.lo) // near.itemsize
        side = "past the end" if bad >= near.hi else "before the start"
        bytes_off = hi - near.hi if bad >= near.hi else near.lo - lo
        owner = f" of rank {near.rank}" if near.rank is not None else ""
        return OutOfBoundsError(
            f"{what} of {near.name}[{near.index(bad)}]{owner}, {bytes_off} bytes {side}: {near.name} has {size} elements of "
            f"{near.itemsize} bytes; mask the access or make the tensor larger{also}"
        )

    def _beside_a_live_one(self, lo: int, hi: int, freed: Allocation) -> bool:
        """Whether an access just before or behind a live tensor hits ordinary memory that some freed tensor happened to be in."""
        near = self._nearest(lo)
        return not freed.symmetric and near is not None and near.lo - _BESIDE <= lo and hi <= near.hi + _BESIDE

    def _nearest(self, address: int) -> Allocation | None:
        at = bisect.bisect_right(self._starts, address) - 1
        around = self._allocations[max(at, 0) : at + 2]
        return min(around, key=lambda a: min(abs(address - a.lo), abs(address - a.hi)), default=None)

    def check_word(self, address: int, itemsize: int, what: str) -> Allocation:
        """Bounds and alignment of one word; remembered, since signal words are used again and again."""
        allocation = self.check(address, address + itemsize, itemsize, what)
        if address & (itemsize - 1):
            raise self.misaligned(address, itemsize, what)
        self.known_words[itemsize][address] = allocation
        return allocation

    def misaligned(self, address: int, itemsize: int, what: str) -> MisalignedAccessError:
        """The error for an access of ``itemsize`` bytes at ``address``."""
        allocation = self.find(address)
        place = f" ({allocation.name} + {address - allocation.lo} bytes)" if allocation else ""
        return MisalignedAccessError(
            f"{what} of {itemsize} bytes at {address:#x}{place}: the address is not a multiple of {itemsize}; "
            "shift the pointer by whole elements, or cast it to a narrower type"
        )

    def check_symmetric(self, address: int, what: str) -> Allocation:
        """The symmetric allocation that holds ``address``; raises NotSymmetricError."""
        allocation = self.find(address)
        if allocation is not None and allocation.foreign:
            raise self.not_of_this_heap(allocation, what)
        if allocation is None or not allocation.symmetric:
            name = f"{allocation.name!r} is an ordinary tensor" if allocation else f"{address:#x} is in no tensor that the simulator knows"
            raise NotSymmetricError(f"{what} needs a pointer into the symmetric heap, but {name}; allocate it by triton_dist.symm_empty")
        return allocation

    @staticmethod
    def not_of_this_heap(allocation: Allocation, what: str) -> NotSymmetricError:
        """The error for a primitive that asks the address map about memory of torch's symmetric memory."""
        return NotSymmetricError(
            f"{what} of {allocation.name!r}, which is torch's symmetric memory: its peers are not where the address map says; adopt it by "
            "triton_dist.symm_adopt and pass what that returns, or take the peers' addresses from its handle"
        )

    def changed(self, lo: int, hi: int, by: Any = None) -> None:
        """Note that ``lo`` to ``hi`` was written, and wake whoever waits for a word there. by: the program or task, if known."""
        self.version += 1
        watchers = self.watchers
        if not watchers:
            return
        first, last = lo >> 3, (hi - 1) >> 3
        if last - first < 64:
            granules = [granule for granule in range(first, last + 1) if granule in watchers]
        else:
            granules = [granule for granule in watchers if first <= granule <= last]
        for granule in granules:
            if self.stored is not None and by is not None:
                self.stored(granule, by)
            self.wake(watchers.pop(granule))

    def touch_all(self) -> None:
        """Wake everyone who waits: something outside the machine may have written anywhere."""
        self.version += 1
        parked = [program for programs in self.watchers.values() for program in programs]
        self.watchers.clear()
        if parked:
            self.wake(parked)

    def writes_in(self, allocation: Allocation) -> dict[int, Write]:
        """Last writes of signal words inside an allocation, by address."""
        return {address: Write(*write) for address, write in self.writes.items() if allocation.lo <= address < allocation.hi}

    def last_write(self, address: int) -> Write | None:
        """The last write of a signal word."""
        write = self.writes.get(address)
        return None if write is None else Write(*write)


def _forget(memory: weakref.ref[Memory], allocation: Allocation) -> None:
    alive = memory()
    if alive is not None:
        alive.unregister(allocation)


def to_numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """numpy dtype that holds the same bits as a torch dtype."""
    special = {
        torch.bfloat16: ml_dtypes.bfloat16,
        torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
        torch.float8_e5m2: ml_dtypes.float8_e5m2,
        torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
        torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
    }
    if dtype in special:
        return np.dtype(special[dtype])
    return torch.empty(0, dtype=dtype).numpy().dtype
