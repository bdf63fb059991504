"""The collectives that collectives.py measures: what each one computes, and how each method is called.

One entry of ``COLLECTIVES`` is one collective; the benchmark's own code knows none of them by name. Ours are found in
``triton_dist.ops``: an entry whose operator this version does not have is left out.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

import triton_dist.ops

Call = Callable[[], torch.Tensor]
"""Queues one collective on the current stream and returns its result."""

Make = Callable[[torch.Tensor, torch.Tensor], Call]
"""From this rank's input and the output. They are the same tensor where the collective works in place."""


@dataclass(frozen=True)
class Collective:
    """One collective over elements that are counted as NCCL's own benchmarks count: of the longer of input and output.

    input_parts, output_parts: 1 for a rank's share (a W-th) of them, 0 for all. source: (positions of the output, source rank, this rank,
    elements of a share) -> the positions of the source's input that go there, -1 for none. reduces: they are added up.
    in_place: input and output are one tensor. growth: what the ranks' next call in place multiplies the result by (None: their number).
    traffic: link bytes that each rank has to receive, in units of the whole size, from the number of ranks.
    peers: other implementations. our_options: how ours is called. operator: ours, if the entry has another name. make_ours: ours on memory
    of its own instead of the input and output that there are; then it is the only way to call it.
    """

    source: Callable[[torch.Tensor, int, int, int], torch.Tensor]
    peers: Mapping[str, Make]
    traffic: Callable[[int], float]
    input_parts: int = 0
    output_parts: int = 0
    reduces: bool = False
    in_place: bool = False
    our_options: Mapping[str, Any] = field(default_factory=dict)
    operator: str = ""
    make_ours: Make | None = None


def our_operator(name: str) -> Callable[..., torch.Tensor] | None:
    """Ours, if this version has it."""
    return getattr(triton_dist.ops, COLLECTIVES[name].operator or name, None)


def our_methods(name: str) -> tuple[str, ...]:
    """Ways that our operator can be told to go, besides its own choice."""
    operator = our_operator(name)
    if operator is None or COLLECTIVES[name].make_ours or "method" not in inspect.signature(operator).parameters:
        return ()
    return tuple(method for method in getattr(sys.modules[operator.__module__], "METHODS", ()) if method != "auto")


def ours(name: str, method: str | None) -> Make:
    """How our operator is called; by its own choice of a method if None."""
    collective = COLLECTIVES[name]
    if collective.make_ours:
        return collective.make_ours
    operator, options = our_operator(name), collective.our_options
    chosen = {} if method is None else {"method": method}

    def make(x: torch.Tensor, out: torch.Tensor) -> Call:
        return lambda: operator(x, out=out, **options, **chosen)

    return make


def torch_symmetric(operator: str, *, in_place: bool) -> Make:
    """An all-reduce of torch's symmetric memory, of a buffer of its own, which the caller is spared to fill."""

    def make(x: torch.Tensor, out: torch.Tensor) -> Call:
        buffer, group = _torch_buffer(x)
        call = getattr(torch.ops.symm_mem, operator)

        def run() -> torch.Tensor:
            return call(buffer, "sum", group)

        run.buffer = buffer if in_place else None  # type: ignore[attr-defined]  # what the benchmark sets back
        return run

    return make


def torch_one_shot(x: torch.Tensor, out: torch.Tensor) -> Call:
    """torch's one-shot all-reduce of an ordinary tensor: its kernel copies it into symmetric memory."""
    buffer, group = _torch_buffer(x)
    return lambda: torch.ops.symm_mem.one_shot_all_reduce_copy_out(buffer, x, "sum", group, out)


def torch_two_shot(x: torch.Tensor, out: torch.Tensor) -> Call:
    """torch's two-shot all-reduce of an ordinary tensor, which has to be copied into symmetric memory first."""
    buffer, group = _torch_buffer(x)

    def run() -> torch.Tensor:
        buffer.copy_(x)
        return torch.ops.symm_mem.two_shot_all_reduce_out(buffer, "sum", group, out)

    return run


def _torch_buffer(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    """A copy of a tensor in torch's symmetric memory, and the name of the group that has it."""
    from torch.distributed import _symmetric_memory

    group = dist.distributed_c10d._get_default_group().group_name
    buffer = _symmetric_memory.empty(x.numel(), dtype=x.dtype, device=x.device)
    _symmetric_memory.rendezvous(buffer, group)
    return buffer.copy_(x), group


def in_symmetric_memory(x: torch.Tensor, out: torch.Tensor) -> Call:
    """Our all-reduce, by its own choice, of a buffer of its own in symmetric memory, as torch's work on one."""
    buffer = triton_dist.symm_empty(x.shape, x.dtype, name="buffer").copy_(x)

    def run() -> torch.Tensor:
        return triton_dist.ops.all_reduce(buffer, out=buffer)

    run.buffer = buffer  # type: ignore[attr-defined]
    return run


def nccl(call: Callable[[torch.Tensor, torch.Tensor], Any]) -> Make:
    """A collective of ``torch.distributed``: ``call(output, input)``."""

    def make(x: torch.Tensor, out: torch.Tensor) -> Call:
        def run() -> torch.Tensor:
            call(out, x)
            return out

        return run

    return make


def _of(newer: str, older: str) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    # The older name warns at every call where there is a newer one.
    return lambda out, x: (getattr(dist, newer, None) or getattr(dist, older))(out, x)


def _same(position: torch.Tensor, source: int, rank: int, share: int) -> torch.Tensor:
    return position


def _gathered(position: torch.Tensor, source: int, rank: int, share: int) -> torch.Tensor:
    return torch.where(position // share == source, position % share, -1)


def _scattered(position: torch.Tensor, source: int, rank: int, share: int) -> torch.Tensor:
    return rank * share + position


def _exchanged(position: torch.Tensor, source: int, rank: int, share: int) -> torch.Tensor:
    return torch.where(position // share == source, rank * share + position % share, -1)


def _from_first(position: torch.Tensor, source: int, rank: int, share: int) -> torch.Tensor:
    return position if source == 0 else torch.full_like(position, -1)


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = {
    "all_reduce": Collective(
        _same,
        {
            "nccl": nccl(lambda out, x: dist.all_reduce(out)),
            "torch-one-shot": torch_one_shot,
            "torch-two-shot": torch_two_shot,
        },
        lambda ranks: 2 * _others(ranks),
        reduces=True,
        in_place=True,
    ),
    "all_reduce_symmetric": Collective(
        _same,
        {
            "nccl": nccl(lambda out, x: dist.all_reduce(out)),
            "torch-one-shot": torch_symmetric("one_shot_all_reduce", in_place=False),
            "torch-two-shot": torch_symmetric("two_shot_all_reduce_", in_place=True),
        },
        lambda ranks: 2 * _others(ranks),
        reduces=True,
        in_place=True,
        operator="all_reduce",
        make_ours=in_symmetric_memory,
    ),
    "all_gather": Collective(_gathered, {"nccl": nccl(_of("all_gather_single", "all_gather_into_tensor"))}, _others, input_parts=1),
    "reduce_scatter": Collective(
        _scattered, {"nccl": nccl(_of("reduce_scatter_single", "reduce_scatter_tensor"))}, _others, output_parts=1, reduces=True
    ),
    "all_to_all": Collective(_exchanged, {"nccl": nccl(lambda out, x: dist.all_to_all_single(out, x))}, _others),
    "broadcast": Collective(
        _from_first, {"nccl": nccl(lambda out, x: dist.broadcast(out, 0))}, lambda ranks: float(ranks > 1), in_place=True
    ),
}
"""By the operator's name in ``triton_dist.ops``; ``all_reduce_symmetric`` is all_reduce of a tensor that is in symmetric memory."""
