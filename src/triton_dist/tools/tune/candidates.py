"""What is tried for a message: the ways of each operator that has several, and the parameters worth trying."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from ...ops.collectives.low_latency import CAPACITY, UNIT_BYTES, broadcasting_launch, most_programs, moving_launch, reducing_launch
from ...ops.collectives.plans import Plan
from ...ops.collectives.staging import MAX_PROGRAMS
from ...ops.team import Team

Run = Callable[[Plan, torch.Tensor, torch.Tensor, Team], None]
"""Queues one call by a plan: (plan, x, out, team of all ranks)."""

Expect = Callable[[list[torch.Tensor], int], torch.Tensor]
"""The result of a rank: (every rank's x, that rank)."""


def _sum(given: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.stack(given).sum(0)


@dataclass(frozen=True)
class Tunable:
    """An operator that can be tuned. candidates: (bytes of x, ranks) -> plans, different ones. run: see ``Run``. expect: see ``Expect``.

    parts: x has a part for each rank.
    """

    candidates: Callable[[int, int], list[Plan]]
    run: Run
    expect: Expect = field(default=_sum)
    parts: bool = False


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
    operator = importlib.import_module("triton_dist.ops.collectives.all_reduce")
    operator.run_plan(plan, x, out, team, None, operator.accumulator_of("tune", x.dtype, "sum"), "sum")


def _plans_of_one_kernel(parts: bool) -> Callable[[int, int], list[Plan]]:
    """Those of the other collectives, whose kernels but "ll" have no parameters."""
    return lambda nbytes, ranks: [*_low_latency(-(-nbytes // ranks) if parts else nbytes, ranks), Plan("one_shot"), Plan("library")]


def _run_of(name: str) -> Run:
    def run(plan: Plan, x: torch.Tensor, out: torch.Tensor, team: Team) -> None:
        module = importlib.import_module(f"triton_dist.ops.collectives.{name}")
        if plan.method != "ll":
            getattr(module, name)(x, out=out, method=plan.method)
        elif name == "broadcast":
            broadcasting_launch(x, out, 0, team, None, plan).run()
        elif name == "reduce_scatter":
            reducing_launch(name, x, out, team, None, module.accumulator_of("tune", x.dtype, "sum"), "sum", plan).run()
        else:
            moving_launch(name, x, out, team, None, plan).run()

    return run


def _own(x: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    return x.view(ranks, -1)[rank]


def _tunable(name: str, expect: Expect, parts: bool = False) -> Tunable:
    return Tunable(_plans_of_one_kernel(parts), _run_of(name), expect, parts)


TUNABLE = {
    "all_reduce": Tunable(all_reduce_plans, _run_all_reduce),
    "all_gather": _tunable("all_gather", lambda given, rank: torch.cat(given)),
    "reduce_scatter": _tunable("reduce_scatter", lambda given, rank: _own(_sum(given, rank), rank, len(given)), parts=True),
    "all_to_all": _tunable("all_to_all", lambda given, rank: torch.cat([_own(x, rank, len(given)) for x in given]), parts=True),
    "broadcast": _tunable("broadcast", lambda given, rank: given[0]),
}
"""By the operator's name in ``triton_dist.ops``."""
