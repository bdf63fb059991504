"""What ranks measure together: is peer memory right, how long a signal takes, how fast data moves. Runs on any world.

``measure`` is one rank's part; all ranks call it and all get the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl

BLOCK = 8192
"""Elements that one program of the push kernel moves at a time."""
PUSH_PROGRAMS = 64


@dataclass(frozen=True)
class Sizes:
    """How much to measure. rounds: signals there and back; elements: of a copy, int32; repeats: copies in a row."""

    rounds: int = 500
    elements: int = 16 << 20
    repeats: int = 8


@dataclass(frozen=True)
class Measured:
    """By rank: wrong words after a write by the rank before. By ordered pair: GB/s. By pair: one-way microseconds."""

    wrong: list[int]
    latency: list[tuple[int, int, float]]
    copy_engine: list[tuple[int, int, float]]
    push: list[tuple[int, int, float]]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@triton.jit(do_not_specialize=["peer", "rounds"])
def ping_pong_kernel(flags, peer, rounds, FIRST: tl.constexpr):
    """Two ranks set each other's word to 1, 2, ... in turns; the word of each is written by the other one only."""
    for number in range(1, rounds + 1):
        if FIRST:
            dl.notify(flags, peer, signal=number, sig_op="set", comm_scope="intra_node")
            dl.wait(flags, 1, "sys", "acquire", waitValue=number, cmp="ge")
        else:
            dl.wait(flags, 1, "sys", "acquire", waitValue=number, cmp="ge")
            dl.notify(flags, peer, signal=number, sig_op="set", comm_scope="intra_node")


@triton.jit(do_not_specialize=["peer"])
def push_kernel(source, target, peer, count, BLOCK: tl.constexpr):
    """Copy to a peer by stores of the SMs."""
    remote = dl.symm_at(target, peer)
    for begin in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offset = begin + tl.arange(0, BLOCK)
        tl.store(remote + offset, tl.load(source + offset, mask=offset < count), mask=offset < count)


def measure(sizes: Sizes) -> dict[str, Any]:
    """One rank's part; collective. See ``Measured``."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    size = triton_dist.world_size()
    inbox = triton_dist.symm_zeros((sizes.elements,), torch.int32, name="inbox")
    outbox = torch.arange(sizes.elements, dtype=torch.int32, device=triton_dist.device()) + triton_dist.rank()
    wrong = _write_to_peer(inbox, outbox)
    pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
    both_ways = [(one, other) for one in range(size) for other in range(size) if one != other]
    flags = triton_dist.symm_zeros((8,), torch.int32, name="flags")
    latency = [(one, other, _latency(flags, one, other, sizes.rounds)) for one, other in pairs]
    engine = [(one, other, _rate(_by_engine(inbox, outbox, other), one, sizes)) for one, other in both_ways]
    push = [(one, other, _rate(_by_kernel(inbox, outbox, other), one, sizes)) for one, other in both_ways]
    return Measured(wrong, latency, engine, push).to_dict()


def _meet() -> None:
    """All ranks with idle devices; by the host, as this must not depend on what is measured."""
    triton_dist.synchronize()
    dist.all_reduce(torch.zeros(1, device="cpu"))


def _gather(value: Any) -> list[Any]:
    values: list[Any] = [None] * triton_dist.world_size()
    dist.all_gather_object(values, value)
    return values


def _write_to_peer(inbox: torch.Tensor, outbox: torch.Tensor) -> list[int]:
    """By kernel and by copy engine, a half each, to the next rank; then each counts what is not as it should be."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    after, before, half = (rank + 1) % size, (rank - 1) % size, inbox.numel() // 2
    _meet()
    push_kernel[(PUSH_PROGRAMS,)](outbox, inbox, after, half, BLOCK=BLOCK)
    triton_dist.copy_async(triton_dist.symm_peer(inbox, after)[half:], outbox[half:])
    _meet()
    expected = outbox - rank + before
    return [int(count) for count in _gather((inbox != expected).sum().item())]


def _latency(flags: torch.Tensor, one: int, other: int, rounds: int) -> float:
    """Microseconds one way between two ranks, while the others wait. flags: two words, 16 bytes apart, zero or from another pair."""
    rank = triton_dist.rank()
    flags.zero_()
    _meet()
    found = 0.0
    if rank in (one, other):
        peer = other if rank == one else one
        begin, end = triton_dist.Event(enable_timing=True), triton_dist.Event(enable_timing=True)
        ping_pong_kernel[(1,)](flags, peer, 1, FIRST=rank == one)  # loads the kernel, and brings the two ranks together
        begin.record()
        ping_pong_kernel[(1,)](flags[4:], peer, rounds, FIRST=rank == one)
        end.record()
        end.synchronize()
        found = begin.elapsed_time(end) * 1000 / (2 * rounds)
    _meet()
    return float(_gather(found)[one])


def _by_engine(inbox: torch.Tensor, outbox: torch.Tensor, peer: int) -> Callable[[], Any]:
    target = triton_dist.symm_peer(inbox, peer)
    return lambda: triton_dist.copy_async(target, outbox)


def _by_kernel(inbox: torch.Tensor, outbox: torch.Tensor, peer: int) -> Callable[[], Any]:
    return lambda: push_kernel[(PUSH_PROGRAMS,)](outbox, inbox, peer, outbox.numel(), BLOCK=BLOCK)


def _rate(copy: Callable[[], Any], sender: int, sizes: Sizes) -> float:
    """GB/s of copies in a row by one rank, after one that is not timed, while the others wait."""
    _meet()
    found = 0.0
    if triton_dist.rank() == sender:
        begin, end = triton_dist.Event(enable_timing=True), triton_dist.Event(enable_timing=True)
        copy()
        begin.record()
        for _ in range(sizes.repeats):
            copy()
        end.record()
        end.synchronize()
        found = sizes.repeats * sizes.elements * 4 / max(begin.elapsed_time(end), 1e-9) / 1e6
    _meet()
    return float(_gather(found)[sender])
