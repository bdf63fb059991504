"""What an atomic access orders: its semantic and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass

CTA, GPU, SYS = 0, 1, 2
"""Scopes, from narrow to wide."""

SCOPE_NAMES = ("cta", "gpu", "sys")
SCOPES = {name: number for number, name in enumerate(SCOPE_NAMES)}


@dataclass(frozen=True)
class Order:
    """Semantic and scope of one atomic ("strong") access. Relaxed is neither acquire nor release.

    alone: of a scalar read-modify-write whose result nothing uses. Triton has the block's first thread do it and, before 3.9, puts a block
    barrier behind it only to hand the result to the others: without one, only that thread acquires.
    """

    acquire: bool
    release: bool
    scope: int
    alone: bool = False

    @property
    def text(self) -> str:
        """As a kernel says it: ``release, sys``."""
        semantic = {(False, False): "relaxed", (True, False): "acquire", (False, True): "release", (True, True): "acq_rel"}
        return f"{semantic[self.acquire, self.release]}, {SCOPE_NAMES[self.scope]}"


def order_of(semantic: str, scope: str) -> Order:
    """From the words of a kernel."""
    return ORDERS[semantic, scope]


ORDERS = {
    (semantic, scope): Order(semantic in ("acquire", "acq_rel"), semantic in ("release", "acq_rel"), number)
    for semantic in ("relaxed", "acquire", "release", "acq_rel")
    for scope, number in SCOPES.items()
}

VOLATILE = ORDERS["relaxed", "sys"]
"""A volatile load: PTX treats it as relaxed with system scope."""

STREAM_WRITE, STREAM_WAIT = ORDERS["release", "sys"], ORDERS["acquire", "sys"]
"""A stream's write of a value and its wait for one."""


def reaches(scope: int, rank: int, block: object, other_scope: int, other_rank: int, other_block: object) -> bool:
    """Whether each of two accesses lies in the scope of the other one ("morally strong").

    rank, block: the GPU and the program (or stream) that does it.
    """
    if block is other_block:
        return True
    if rank == other_rank:
        return scope >= GPU and other_scope >= GPU
    return scope == SYS and other_scope == SYS
