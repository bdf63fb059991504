"""What a communication report holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteAccess:
    """A line that reads or writes memory of other ranks.

    kind: "load", "store" or "atomic". way: "symm_at", or "table" for an address that was read from memory, which need not be a peer's.
    widths: bytes that a thread moves by one instruction, to how many such instructions there are; "TMA" for bulk copies.
    """

    file: str
    line: int
    kind: str
    way: str
    widths: Mapping[int | str, int]


@dataclass(frozen=True)
class Ordered:
    """Instructions that are atomic or have an order, outside of waits.

    operation: "atom.exch", "red.add", "ld", "st". type: "b32". semantic: relaxed, acquire, release, acq_rel, volatile.
    scope: cta, cluster, gpu, sys. way: to other ranks' memory, see ``RemoteAccess``; "" for this rank's own, as far as it can be told.
    """

    operation: str
    type: str
    semantic: str
    scope: str
    way: str
    count: int


@dataclass(frozen=True)
class Spin:
    """A wait: the block polls a word. own: the kernel's own loop, and none of this package's waits."""

    file: str
    line: int
    semantic: str
    scope: str
    bits: int
    own: bool


@dataclass(frozen=True)
class Loop:
    """An innermost loop with a matrix product in it.

    loads: places whose loads feed it. buffers: of shared memory for each, the fewest of them; 1 without pipelining.
    pipelined: loads are issued ahead of the round that uses them. waits: waits that stand in it.
    """

    file: str
    line: int
    loads: int
    buffers: int
    pipelined: bool
    waits: int


@dataclass(frozen=True)
class Resources:
    """What the machine code takes. shared: bytes of a block. spills: instructions that store registers to local memory or load them.

    registers and stack (bytes) of a thread, spills and counts are None where no tool of CUDA says them; missing: why.
    counts: instructions of the machine code that touch memory or order it, by mnemonic.
    """

    shared: int
    registers: int | None
    stack: int | None
    spills: int | None
    counts: Mapping[str, int] | None
    missing: str = ""


@dataclass(frozen=True)
class CommunicationReport:
    """What ``inspect_kernel`` found. fences: orders of memory by their PTX, to how many. barriers: of the block. bulk: TMA copies by
    direction ("load", "store", "reduce"). options: those of the compilation that matter."""

    kernel: str
    target: str
    triton: str
    signature: str
    options: Mapping[str, int]
    remote: tuple[RemoteAccess, ...]
    ordered: tuple[Ordered, ...]
    fences: Mapping[str, int]
    barriers: int
    spins: tuple[Spin, ...]
    bulk: Mapping[str, int]
    loops: tuple[Loop, ...]
    resources: Resources

    @property
    def narrowest_remote(self) -> int | None:
        """Bytes of the narrowest load or store of other ranks' memory, single words of signals left out; None if there is none."""
        widths = [width for one in self.remote if one.kind != "atomic" for width in one.widths if isinstance(width, int)]
        return min(widths, default=None)
