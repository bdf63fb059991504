"""Times plans side by side, the same on all ranks: a time is that of the slowest rank, and all ranks see all times.

A span is some calls in one CUDA graph behind a barrier of the ranks on the device. Plans take turns in each round, so that a clock that
drifts serves none of them. First every plan has a few rounds, then the best have more. A plan whose sum is wrong, or that fails, is out.
On simulated ranks, for dry runs, the calls are made one by one, and the times mean nothing.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ...ops.collectives.barrier import barrier
from ...ops.collectives.plans import Plan
from ...ops.team import Team
from ...runtime.world import require_world
from .candidates import Tunable

_SPAN_US = 200.0
_MOST_CALLS = 50
_FIRST_ROUNDS, _LAST_ROUNDS, _FINALISTS = 3, 15, 5
_CLOSE = 1.3
"""A plan that is slower than the best by this factor in the first rounds is not looked at again."""


@dataclass
class Timed:
    """One plan's result. us: the median of the last rounds that it took part in; None, and why, for a plan that is out."""

    plan: Plan
    us: float | None = None
    why: str = ""


def gather(value: Any) -> list[Any]:
    """Every rank's value, by rank."""
    world = require_world("tune")
    if hasattr(world, "gather"):
        return world.gather(value)
    values: list[Any] = [None] * world.world_size
    dist.all_gather_object(values, value)
    return values


def measure(tunable: Tunable, plans: Sequence[Plan], nbytes: int, team: Team) -> list[Timed]:
    """One result a plan, in their order and the same on all ranks, which all call it with the same plans."""
    device = require_world("tune").device
    count = max(1, nbytes // 2)
    if tunable.parts:
        count = -(-count // team.size) * team.size
    # Sums of small integers are exact in bf16, whatever the order.
    given = [(torch.arange(count, device=device) % 7 + rank % 3).to(torch.bfloat16) for rank in range(team.size)]
    x, expected = given[team.index], tunable.expect(given, team.index)
    del given
    out = torch.empty_like(expected)
    results = [Timed(plan) for plan in plans]
    spans: dict[int, Callable[[], float]] = {}
    for number, result in enumerate(results):
        span, result.why = _prepared(functools.partial(tunable.run, result.plan, x, out, team), out, expected)
        if span is not None:
            spans[number] = span
    _rounds(results, spans, _FIRST_ROUNDS)
    ranking = sorted(spans, key=lambda number: results[number].us or 0.0)
    best = [number for number in ranking[:_FINALISTS] if (results[number].us or 0.0) <= _CLOSE * (results[ranking[0]].us or 0.0)]
    # The best of what is exact has to be known as well.
    best += [number for number in ranking if results[number].plan.method != "library"][:1]
    _rounds(results, {number: spans[number] for number in dict.fromkeys(best)}, _LAST_ROUNDS)
    return results


def _prepared(call: Callable[[], None], out: torch.Tensor, expected: torch.Tensor) -> tuple[Callable[[], float] | None, str]:
    """A function that times a span (microseconds a call), or why there is none; the same on all ranks."""
    why = ""
    try:
        for _ in range(3):
            out.fill_(float("nan"))
            call()
        if not torch.equal(out, expected):
            why = "its sum is wrong"
    except Exception as error:  # noqa: BLE001 - a plan that fails is a result: the others go on
        why = f"{type(error).__name__}: {error}".splitlines()[0]
    reasons = [reason for reason in gather(why) if reason]
    if reasons:
        return None, reasons[0]
    calls = 1
    if out.device.type == "cuda":
        once = max(gather(_cuda_span(call, 3)()))
        calls = max(1, min(_MOST_CALLS, round(_SPAN_US / max(once, 1e-3))))
        return _cuda_span(call, calls), ""
    return _plain_span(call), ""


def _cuda_span(call: Callable[[], None], calls: int) -> Callable[[], float]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def span() -> float:
        torch.cuda._sleep(200_000)  # so that the graph is queued before the ranks meet
        barrier()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / calls

    return span


def _plain_span(call: Callable[[], None]) -> Callable[[], float]:
    def span() -> float:
        begin = time.perf_counter()
        call()
        require_world("tune").synchronize()
        return (time.perf_counter() - begin) * 1e6

    return span


def _rounds(results: list[Timed], spans: dict[int, Callable[[], float]], rounds: int) -> None:
    """Time each of ``spans`` once a round; the median of the slowest rank's times goes to ``results``."""
    mine: dict[int, list[float]] = {number: [] for number in spans}
    for turn in range(rounds):
        order = list(spans)
        for number in order[turn % len(order) :] + order[: turn % len(order)] if order else ():
            mine[number].append(spans[number]())
    every = gather(mine)
    for number in spans:
        results[number].us = statistics.median(max(times) for times in zip(*(of_rank[number] for of_rank in every), strict=True))
