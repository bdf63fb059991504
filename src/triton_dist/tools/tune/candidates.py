"""What is tried for a message: the ways of each operator that has several, and the parameters worth trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ...ops.collectives.low_latency import CAPACITY, UNIT_BYTES, most_programs
from ...ops.collectives.plans import Plan
from ...ops.collectives.staging import MAX_PROGRAMS
from ...ops.team import Team

Run = Callable[[Plan, torch.Tensor, torch.Tensor, Team], None]
"""Queues one call by a plan: (plan, x, out, team of all ranks)."""


@dataclass(frozen=True)
class Tunable:
    """An operator that can be tuned. candidates: (bytes, ranks) -> plans, different ones. run: see ``Run``; sums over all ranks."""

    candidates: Callable[[int, int], list[Plan]]
    run: Run


_MOST_BYTES = {"ll": 4 << 20, "one_shot": 16 << 20}
"""Beyond these sizes a method that sends everything to everyone is not tried."""


def all_reduce_plans(nbytes: int, ranks: int) -> list[Plan]:
    """Those of all_reduce."""
    return list(dict.fromkeys([*_low_latency(nbytes, ranks), *_staged(nbytes, ranks), Plan("library")]))


def _low_latency(nbytes: int, ranks: int) -> Iterator[Plan]:
    if ranks == 1 or nbytes > _MOST_BYTES["ll"]:
        return
    for warps in (1, 2, 4, 8, CAPACITY // 32):
        pieces = -(-nbytes // (UNIT_BYTES * 32 * warps))
        most = min(pieces, most_programs(ranks))
        for programs in {most, -(-most // 2)}:
            if pieces // programs <= 8:  # many pieces one after the other are slow
                yield Plan("ll", programs, warps)


def _staged(nbytes: int, ranks: int) -> Iterator[Plan]:
    for method in ("one_shot", "two_shot"):
        if nbytes > _MOST_BYTES.get(method, nbytes):
            continue
        share = nbytes if method == "one_shot" else -(-nbytes // ranks)
        for bytes_a_program in (1 << 10, 4 << 10, 16 << 10, 64 << 10):
            programs = max(1, min(MAX_PROGRAMS, -(-share // bytes_a_program)))
            for warps, load_bytes in ((4, 4 << 10), (8, 8 << 10), (8, 16 << 10), (16, 16 << 10)):
                if load_bytes <= max(4 << 10, 4 * bytes_a_program):
                    yield Plan(method, programs, warps, load_bytes)


def _run_all_reduce(plan: Plan, x: torch.Tensor, out: torch.Tensor, team: Team) -> None:
    import importlib

    operator = importlib.import_module("triton_dist.ops.collectives.all_reduce")
    operator.run_plan(plan, x, out, team, None, operator.accumulator_of("tune", x.dtype, "sum"), "sum")


TUNABLE = {"all_reduce": Tunable(all_reduce_plans, _run_all_reduce)}
"""By the operator's name in ``triton_dist.ops``."""
