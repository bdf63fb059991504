"""``simulate``: run a host function once for each of many simulated ranks, in this process."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidArgumentError, NestedSimulationError, SimulationError
from ..runtime.world import heap_size_or_default
from . import context as rank_context
from .attempts import HostMeetings
from .check.checker import RaceChecker
from .check.options import Check, LintCheck, RaceCheck, find_check
from .context import RankContext
from .distributed_plugin import RankWorld, installed, leave_groups
from .gpus import GPU
from .heap import DEFAULT_HEAP_SIZE, SymmetricHeap
from .host import HostScheduler
from .host_reads import HostReads
from .machine import Machine
from .policy_machine import PolicyMachine
from .process_group import CollectiveEngine
from .recording.files import find_writer, recorded
from .schedules import Schedule, find_schedule
from .schedules.replay import ReplayPolicy
from .schedules.trace import NamedCopies
from .stream_barrier import StreamBarrier
from .symmetric_memory import install as torch_symmetric_memory
from .symmetric_memory.allocations import SymmetricAllocations
from .timeline import Timeline
from .timing_machine import TimingMachine
from .torch_mode import StreamOrder
from .virtual_process import ProcessState, RunWideState, VirtualProcess

_one_at_a_time = threading.Lock()
"""Held by the running simulation: environment, random states and Triton's driver are the process's, not the thread's."""

EXECUTE: dict[str, type[Machine]] = {"data": Machine, "timing": TimingMachine}
"""Values that ``simulate(execute=...)`` takes, and what runs them."""


class Simulation:
    """What the ranks of one ``simulate`` call share: the machine, the collectives, the symmetric heap, every rank's context."""

    def __init__(self, machine: Machine, heap_size: int) -> None:
        self.machine = machine
        self.collectives = CollectiveEngine(machine)
        self.heap = SymmetricHeap(machine, heap_size)
        self.stream_barrier = StreamBarrier(self.heap, machine.world_size)
        self.meetings = HostMeetings()
        self.symmetric_memory = SymmetricAllocations(machine, self.heap)
        self.contexts: list[RankContext] = []

    def close(self) -> None:
        """Drop the tensors that queued work kept alive, and what the machine still has."""
        for context in self.contexts:
            context.release()
        self.stream_barrier.release()
        self.symmetric_memory.close()
        self.machine.close()
        self.heap.close()
        if self.machine.races is not None:
            self.machine.races.close()


def simulate(
    fn: Callable[..., Any],
    world_size: int,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    schedule: str | Schedule = "random",
    gpu: str | GPU = "h100",
    num_nodes: int = 1,
    check: Check | Sequence[RaceCheck | LintCheck] = None,
    heap_size: int | None = None,
    timeline: Timeline | None = None,
    execute: str = "data",
    report: str | Path | None = None,
    _process_state: Sequence[ProcessState] = (),
) -> list[Any]:
    """Run ``fn(*args, **kwargs)`` once on each of ``world_size`` simulated ranks and return the results, one for each rank.

    Each rank has a GPU of its own and what a process has: environment variables (RANK, WORLD_SIZE, ...), random states, a
    current stream, ``torch.distributed`` groups. Launches are queued and run interleaved with those of the other ranks.

    world_size: 1 to 127.
    seed: chooses one interleaving of hosts, streams and programs; the same seed, the same run. Random states of the ranks do
        not depend on it: they are seeded by the rank.
    schedule: how what runs next is chosen: "random", "straggler", "round_robin", "pct", "late" (see docs/checks.md), with options
        "pct:<depth>:<turns>" or ``triton_dist.sim.schedules.Pct``, or a ``Replay`` of what ``explore`` reported.
    gpu: the GPU model to pretend to be, a key of ``triton_dist.sim.gpus.GPUS``.
    num_nodes: how many hosts the ranks are spread over; divides ``world_size``.
    check: "race" looks for data races, "lint" for misuse that has a code (see docs/checks.md), "all" for both. A
        ``triton_dist.sim.check.RaceCheck`` or ``LintCheck``, or a list of one of each, does so with options; None or "" for no extra check.
    heap_size: bytes of each rank's symmetric heap; default TRITON_DIST_HEAP_SIZE, or 1 GiB.
    timeline: a ``triton_dist.sim.timeline.Timeline`` that the run fills with what ran when, on the simulated clock.

    execute: "data" computes everything. "timing" runs only what decides how long it takes: signals, scalars, integers and control flow
        are real, floating-point tiles and tensors (and integer ones above a MiB) are neither computed nor copied, and a loop whose
        rounds cost the same runs once. Shapes of any size take seconds and hardly any memory (make them by ``torch.empty``);
        ``timeline`` and ``Event.elapsed_time`` say how long. See docs/simulator.md for what the clock models.
    report: a file to write with all that happened, whether the run succeeds or raises (see docs/report.md). Its ending says which: ".html"
        is a page for a browser, ".json" and ".pftrace" are traces for ui.perfetto.dev.

    The first rank that raises ends the run with its own exception and traceback; ``sys.exit(0)`` ends that rank only. What the
    machine finds wrong (DeadlockError, OutOfBoundsError, DataRaceError, MisuseError, ...) is raised as well. Two simulations at once from
    two threads run one after the other. Raises NestedSimulationError inside a simulated rank and InvalidArgumentError for a bad argument.
    """
    if rank_context.current() is not None:
        raise NestedSimulationError("simulate was called inside a simulated rank; call it from outside, or run the function directly")
    _check_function(fn)
    options = find_check(check)
    if execute not in EXECUTE:
        raise InvalidArgumentError(f"execute={execute!r} is not known; use one of {list(EXECUTE)}")
    if options is not None and EXECUTE[execute].timing:
        raise InvalidArgumentError(f"check={check!r} looks at every access, and execute={execute!r} leaves most of them out; use 'data'")
    heap_size = heap_size_or_default(heap_size, DEFAULT_HEAP_SIZE)
    write_report = None if report is None else find_writer(report)
    chosen = find_schedule(schedule)
    with _one_at_a_time:
        machine = _machine(EXECUTE[execute], world_size, chosen, seed, gpu=gpu, num_nodes=num_nodes, timeline=timeline)
        if options is not None:
            machine.races = RaceChecker.of(machine.memory, options)
        shown = {"schedule": str(schedule), "execute": execute, "check": options is not None}
        recording = None if write_report is None else recorded(machine, write_report, shown)
        simulation = Simulation(machine, heap_size)
        caller, settings = VirtualProcess(_process_state), RunWideState(checked=options is not None)
        chosen.begins(machine)
        scheduler = HostScheduler(machine, seed=seed, schedule=chosen.loop, caller=caller, between=simulation.collectives.progress)
        for rank in range(world_size):
            context = RankContext(rank, world_size, num_nodes, simulation, scheduler)
            simulation.contexts.append(context)
            process = VirtualProcess.for_rank(rank, _environment(context), RankWorld(), _process_state)
            scheduler.add_rank(context, process, _body(context, fn, args, kwargs or {}))
        try:
            return _run(simulation, scheduler, recording or contextlib.nullcontext())
        finally:
            try:
                chosen.ended(machine)
                simulation.close()
            finally:
                settings.restore()


def _check_function(fn: Any) -> None:
    if not callable(fn):
        raise InvalidArgumentError(f"fn={fn!r} is not callable; pass the function that each rank runs")
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        raise InvalidArgumentError(f"fn={fn!r} is a generator or coroutine function, whose body a call does not run; pass a plain function")


def _machine(kind: type[Machine], world_size: int, schedule: Schedule, seed: int, **options: Any) -> Machine:
    """The machine of one run. A run for its time has an order of its own, whatever the schedule."""
    if kind.timing or schedule.loop:
        return kind(world_size, seed=seed, schedule=schedule.loop or "random", **options)
    # A bad world size is named by the machine; the policy is made before it.
    policy = schedule.policy(seed, world_size if isinstance(world_size, int) else 1)
    assert policy is not None, f"{schedule!r} has neither a loop nor a policy"
    machine = PolicyMachine(world_size, policy, seed=seed, **options)
    machine.pending = NamedCopies(machine)
    if isinstance(policy, ReplayPolicy):
        policy.machine = machine
    return machine


def _run(simulation: Simulation, scheduler: HostScheduler, recording: contextlib.AbstractContextManager[Any]) -> list[Any]:
    """Run all ranks to their end, and let the checks, if there are any, look at what is left or at what went wrong."""
    races = simulation.machine.races
    try:
        with recording, _simulated_driver(), installed(simulation.collectives), torch_symmetric_memory.installed():
            results = scheduler.run()
            if races is not None:
                simulation.symmetric_memory.pads.look()
                races.finish()
            return results
    except SimulationError as error:
        if races is not None:
            races.explain(error)
        raise


def _body(context: RankContext, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    def body() -> Any:
        # One thread for a rank: backward passes must run in it, too.
        with torch.autograd.set_multithreading_enabled(False), HostReads(context), StreamOrder(context):
            try:
                return fn(*args, **kwargs)
            finally:
                leave_groups()

    return body


def _environment(context: RankContext) -> dict[str, str]:
    """The variables that a launcher such as torchrun sets."""
    numbers = {
        "RANK": context.rank,
        "LOCAL_RANK": context.local_rank,
        "WORLD_SIZE": context.world_size,
        "LOCAL_WORLD_SIZE": context.local_world_size,
        "NODE_RANK": context.node,
        "GROUP_RANK": context.node,
        "NNODES": context.num_nodes,
    }
    # Nobody listens there: init_process_group finds the other ranks in this process.
    return {name: str(number) for name, number in numbers.items()} | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@contextlib.contextmanager
def _simulated_driver() -> Iterator[None]:
    """Make the simulator Triton's active driver, and put back what was there without creating a driver that was not."""
    from triton.runtime import driver

    from .driver import SimDriver

    before = driver._active
    driver.set_active(SimDriver())
    try:
        yield
    finally:
        driver._active = before
