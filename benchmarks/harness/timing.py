"""Times several methods that do the same work, side by side.

A round runs every method once, in an order that is shuffled from round to round and the same on all ranks. Before each timed span the
ranks meet in a barrier on the device. A span is ``inner`` calls between two events: many calls of a short operator, one of a long one, and
as many of each method of a case, so that what a span costs besides (ranks do not leave the barrier at once) is shared by as many calls.
A method's time in a round is that of the slowest rank.

mode "eager": the device is idle when the host makes the first call of a span, so a short operator shows its host path. The host's time
a call is taken in the same spans.
mode "graph": the ``inner`` calls are one CUDA graph, and it is queued before the device gets to the barrier: the device's time alone.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .intervals import estimate_median
from .limits import Watchdog
from .machine import Captured, Machine
from .results import FAILED, MEASURED, NOT_CAPTURED, WRONG, MethodResult

MODES = ("eager", "graph")


@dataclass(frozen=True)
class Method:
    """One way to do the work of a case.

    call: queues the work on the current stream and returns its result; its argument counts the calls of a span from 0, so that a
    method may take turns among several inputs. outputs: tensors that the call overwrites; they are filled with NaN before a check.
    error: the relative error of a result of ``call(turn)``, given (result, turn). kind: see ``MethodResult``.
    reset: of a method that works in place; sets its input back before the calls of a check, which begin with turn 0.
    """

    name: str
    kind: str
    call: Callable[[int], Any]
    error: Callable[[Any, int], float]
    tolerance: float
    outputs: tuple[torch.Tensor, ...] = ()
    reset: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Options:
    """rounds: of each method. warm_up: calls of each turn before the timing. span_us: the shortest span. most_inner: calls in it at most.
    trial: calls of the graph that tells how many calls a span takes.

    turns: the calls of a span are at least so many, so that a graph goes through all inputs.
    """

    rounds: int = 25
    warm_up: int = 3
    span_us: float = 300.0
    most_inner: int = 100
    trial: int = 8
    turns: int = 1
    seed: int = 0


@dataclass
class _Runner:
    """A method that is ready: ``calls`` queues its ``inner`` calls."""

    method: Method
    result: MethodResult
    calls: Captured


def measure(machine: Machine, methods: Sequence[Method], mode: str, options: Options, watchdog: Watchdog) -> list[MethodResult]:
    """One result a method, in their order. Every rank calls it with the same methods; all get the same results."""
    results = [MethodResult(method.name, method.kind, tolerance=method.tolerance) for method in methods]
    times: dict[int, float] = {}
    for index, (method, result) in enumerate(zip(methods, results, strict=True)):
        with watchdog.watch(f"{method.name}, {mode}: first calls"):
            if _first_calls(machine, method, result, options):
                time_us = _time_a_call(machine, method, result, mode, options)
                if time_us is not None:
                    times[index] = time_us
    inner = max(options.turns, min(options.most_inner, math.ceil(options.span_us / max(min(times.values(), default=1.0), 1e-3))))
    runners = []
    for index in times:
        with watchdog.watch(f"{methods[index].name}, {mode}: recording"):
            runner = _runner(machine, methods[index], results[index], mode, options, inner)
        if runner is not None:
            runners.append(runner)
    with watchdog.watch(f"{mode}: timed rounds of {', '.join(runner.method.name for runner in runners)}"), _no_collection():
        device, host = _rounds(machine, runners, mode, options)
    # Once for all rounds: a gathering between them would let the ranks drift apart.
    every_device, every_host = machine.gather(device), machine.gather(host)
    for index, runner in enumerate(runners):
        with watchdog.watch(f"{runner.method.name}, {mode}: check after the rounds"):
            _check_again(machine, runner)
        samples = [round(max(times), 3) for times in zip(*(rank[index] for rank in every_device), strict=True)]
        runner.result.samples_us = samples
        estimate = estimate_median(samples)
        runner.result.median_us, runner.result.low_us, runner.result.high_us = estimate.median, estimate.low, estimate.high
        if mode == "eager":
            slowest = [max(times) for times in zip(*(rank[index] for rank in every_host), strict=True)]
            runner.result.host_us = round(statistics.median(slowest), 3)
    return results


def _first_calls(machine: Machine, method: Method, result: MethodResult, options: Options) -> bool:
    """Whether the method can be called; its first result is checked."""

    def act() -> float:
        _spoil(method)
        error = _checked(machine, method, method.call(0), 0)
        for call in range(options.warm_up * options.turns):
            method.call(call % options.turns)
        return error

    errors = _together(machine, result, FAILED, act)
    if errors is not None:
        _judge(result, errors)
    return errors is not None


def _time_a_call(machine: Machine, method: Method, result: MethodResult, mode: str, options: Options) -> float | None:
    """Microseconds, roughly, the same on every rank; None for what can't be recorded. A graph has no host path, so it is timed as one."""
    if mode == "eager":
        calls, count = _calls(method, options.warm_up), options.warm_up
    else:
        count = max(1, min(options.trial, options.most_inner))
        captured = _captured(machine, method, result, options, count)
        if captured is None:
            return None
        calls = captured
    machine.align(ahead=mode == "graph")
    begin = machine.mark()
    calls.replay()
    end = machine.mark()
    machine.synchronize()
    return max(machine.gather(machine.elapsed_us(begin, end))) / count


def _runner(machine: Machine, method: Method, result: MethodResult, mode: str, options: Options, inner: int) -> _Runner | None:
    """What runs ``inner`` calls, a graph if the mode says so, checked."""
    result.inner = inner
    if mode == "eager":
        return _Runner(method, result, _calls(method, inner))
    captured = _captured(machine, method, result, options, inner)
    if captured is None:
        return None
    runner = _Runner(method, result, captured)
    _check_again(machine, runner)
    return runner


def _captured(machine: Machine, method: Method, result: MethodResult, options: Options, inner: int) -> Captured | None:
    """A graph of ``inner`` calls that was replayed; None, and noted, if that failed on any rank."""

    captured = _together(machine, result, NOT_CAPTURED, lambda: machine.capture(method.call, inner), gather=False)
    for _ in range(options.warm_up if captured is not None else 0):  # on all ranks, or the others would wait for ever
        captured.replay()
    return captured


def _together(machine: Machine, result: MethodResult, status: str, act: Callable[[], Any], gather: bool = True) -> Any:
    """``act()`` on every rank: all their values, or (without ``gather``) this rank's. None, and ``status``, if it raised on any."""
    why, value = "", None
    try:
        value = act()
        machine.synchronize()
    except Exception as error:  # a method that fails is a result: it is in the report, and the others go on
        why = f"rank {machine.rank}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:160]
    outcomes = machine.gather((why, value if gather else None))
    failures = [failure for failure, _ in outcomes if failure]
    if failures:
        result.status, result.why = status, failures[0]
        return None
    return [outcome for _, outcome in outcomes] if gather else value


def _calls(method: Method, inner: int) -> Captured:
    """Eager calls, in the form of recorded ones."""
    call = method.call

    def run() -> None:
        for turn in range(inner):
            calls.result = call(turn)

    calls = Captured(run, None)
    return calls


def _rounds(machine: Machine, runners: list[_Runner], mode: str, options: Options) -> tuple[list[list[float]], list[list[float]]]:
    """Microseconds a call, of the device and of the host, for each runner and round, on this rank."""
    device: list[list[float]] = [[] for _ in runners]
    host: list[list[float]] = [[] for _ in runners]
    order = list(range(len(runners)))
    shuffle = random.Random(options.seed)
    for _ in range(options.rounds):
        shuffle.shuffle(order)
        for index in order:
            runner = runners[index]
            machine.align(ahead=mode == "graph")
            begin = machine.mark()
            called = time.perf_counter()
            runner.calls.replay()
            returned = time.perf_counter()
            end = machine.mark()
            machine.synchronize()
            device[index].append(machine.elapsed_us(begin, end) / runner.result.inner)
            host[index].append((returned - called) * 1e6 / runner.result.inner)
    return device, host


def _spoil(method: Method) -> None:
    """NaN into what the call has to write, so that an old result can't pass; the input again into what it writes over."""
    for output in method.outputs:
        output.view(torch.uint8).fill_(0x7F) if output.element_size() == 1 else output.fill_(float("nan"))
    if method.reset is not None:
        method.reset()


def _checked(machine: Machine, method: Method, value: Any, turn: int) -> float:
    machine.synchronize()
    return method.error(value, turn)


def _check_again(machine: Machine, runner: _Runner) -> None:
    """The check once more, by the very calls that are timed."""
    method, inner = runner.method, runner.result.inner

    def act() -> float:
        _spoil(method)
        runner.calls.replay()
        return _checked(machine, method, runner.calls.result, inner - 1)

    errors = _together(machine, runner.result, FAILED, act)
    if errors is not None:
        _judge(runner.result, errors)


def _judge(result: MethodResult, errors: list[float]) -> None:
    """Note the largest error of all ranks and checks. An error that is no number (the result has NaN) is wrong, and is not noted."""
    finite = [error for error in errors if math.isfinite(error)]
    result.error = max([*finite, result.error or 0.0]) if finite else result.error
    if result.status != MEASURED:
        return
    if len(finite) < len(errors):
        result.status, result.why = WRONG, "the result has NaN or infinity, or elements that were never written"
    elif max(finite) > (result.tolerance or 0.0):
        result.status, result.why = WRONG, f"relative error {max(finite):.2e} is above {result.tolerance:.2e}"


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector would stop the host in some spans and not in others."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
