"""The pretended GPUs of all ranks: streams, resident programs, and the scheduler that interleaves them from a seed.

Everything that runs is a generator. It yields None where others may run, SPIN when a loop came round with nothing changed, and a
WaitRequest to be parked until a word is written. When nothing can run, that is a deadlock, and the parked generators are its reason.
"""

from __future__ import annotations

import gc
import heapq
import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataRaceError, DeadlockError, InvalidArgumentError, MisuseError, SimulationError
from ..runtime.address_map import MAX_WORLD_SIZE
from .gpus import GPU, find_gpu
from .memory import Memory
from .pending import PendingCopies
from .program import Program
from .report import circle_lines, deadlock_report, livelock_report
from .requests import SPIN
from .schedules.names import LOOPS
from .stream_queues import StreamQueues
from .teams import TeamNumbers
from .timeline import Timeline
from .work import Copy, Task, Work

if TYPE_CHECKING:
    from .launch import KernelLaunch
    from .schedules.policy import Policy
    from .schedules.trace import Tracer
    from .waits_for import WaitsFor

_STRAGGLER_TURNS = 0.02
"""Share of its turns that a straggling rank takes."""

_BATCH = 1024
_LIVELOCK_STEPS = 2_000_000
_MANY, _JUMP = 256, 0.125
"""Among this many or more, neighbours (programs of one launch, near in memory) run after each other until one is chosen at random again."""


@dataclass
class Device:
    """One rank's GPU: launches with programs that have not started, in launch order, and the SMs that are free (since when, which)."""

    launches: deque[KernelLaunch]
    free: list[tuple[float, int]]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Machine(StreamQueues):
    """All devices of a world.

    schedule: "random" picks what runs next by ``seed``; "straggler" too, but rank ``seed % world_size`` moves only when the others have
    mostly gone as far as they can; "round_robin" takes turns. The same seed gives the same run.
    gpu: a name from ``gpus.GPUS`` or a GPU. num_nodes: hosts over which the ranks are spread evenly.
    timeline: where to record what ran when; a new one by default.
    memory: the known allocations; none by default.
    Raises InvalidArgumentError.
    """

    program_class: type[Program] = Program
    policy: Policy | None = None
    """Chooses what runs next, where that is not done by the machine's own loop (see ``policy_machine``)."""
    tracer: Tracer | None = None
    """Writes down what runs, if asked to."""
    waits_for: WaitsFor | None = None
    """Who waits for whom; known once nothing moves any more."""
    timing = False
    """Whether a run only finds out how long it takes (see ``timing_machine``)."""
    order_of_its_own = False
    """Whether what can run is kept elsewhere than here."""

    def __init__(
        self,
        world_size: int,
        *,
        seed: int = 0,
        schedule: str = "random",
        gpu: str | GPU = "h100",
        num_nodes: int = 1,
        timeline: Timeline | None = None,
        memory: Memory | None = None,
    ) -> None:
        if not _is_count(world_size) or world_size > MAX_WORLD_SIZE:
            raise InvalidArgumentError(f"world_size={world_size!r}; it has to be an integer from 1 to {MAX_WORLD_SIZE}")
        if schedule not in LOOPS:
            raise InvalidArgumentError(f"schedule={schedule!r} is not known; use one of {LOOPS}")
        if not _is_count(num_nodes) or world_size % num_nodes:
            raise InvalidArgumentError(
                f"num_nodes={num_nodes!r}; it has to be an integer that divides world_size={world_size}, for as many ranks on every node"
            )
        super().__init__(world_size, find_gpu(gpu))
        self.world_size = world_size
        self.seed = seed
        self.rates = self.gpu.rates
        self.num_nodes = num_nodes
        self.memory = memory if memory is not None else Memory()
        self.memory.wake = self._wake
        self.timeline = timeline if timeline is not None else Timeline()
        self.teams = TeamNumbers(self.memory, world_size, num_nodes)
        self.pending = PendingCopies(self)
        """Puts and gets that have not landed."""
        self.batch = _BATCH
        """Turns that one ``step`` takes at most."""
        self.steps = 0
        self._random = random.Random(seed).random if schedule != "round_robin" else None
        self._straggler = seed % world_size if schedule == "straggler" else -1
        self._runnable: list = []
        self._turns: deque = deque()
        self._spinning: list = []
        self._spin_version = -1
        self._idle_steps = 0
        self.devices = [Device(deque(), [(0.0, sm) for sm in range(self.gpu.sm_count)]) for _ in range(world_size)]

    def node_of(self, rank: int) -> int:
        """The host that a rank is on."""
        return rank // (self.world_size // self.num_nodes)

    def recorded_time(self, clock: float) -> int:
        """What a program whose clock shows ``clock`` records as the time; nanoseconds, of one clock for all ranks."""
        return int(clock)

    def _start(self, work: Work) -> None:
        work.start(self)

    def start_task(self, work: Work) -> None:
        """Make work that is not a kernel runnable."""
        self._begin(Task(work, self))

    def start_launch(self, launch: KernelLaunch) -> None:
        """Let the programs of a launch start as SMs become free, after those of earlier launches."""
        launch.begin += self.gpu.costs.launch_ns
        launch.end = launch.begin
        device = self.devices[launch.rank]
        device.launches.append(launch)
        self._admit(device)

    def _admit(self, device: Device) -> None:
        while device.launches and device.free:
            launch = device.launches[0]
            free_since, sm = heapq.heappop(device.free)
            number = launch.next_program
            launch.next_program += 1
            program = self.program_class(launch.program_id(number), launch, self, max(free_since, launch.begin), sm)
            if self.recorder is not None:
                self.recorder.program_begins(program)
            self._begin(program)
            if launch.next_program == launch.count:
                device.launches.popleft()

    def _begin(self, actor) -> None:
        """A new program or task can run."""
        if self.tracer is not None:
            self.tracer.watch(actor)
        self._ready(actor)

    def _ready(self, actor) -> None:
        actor.waiting = None
        (self._turns if self._random is None else self._runnable).append(actor)

    def _wake(self, actors: list) -> None:
        for actor in actors:
            actor.waiting = None
        (self._turns if self._random is None else self._runnable).extend(actors)

    def _ready_actors(self) -> list:
        return [*self._runnable, *self._turns]

    def parked(self) -> list:
        """Programs and tasks that wait for a word."""
        return [actor for actors in self.memory.watchers.values() for actor in actors]

    def _ended(self, actor) -> None:
        if isinstance(actor, Task):
            work = actor.work
            work.end = actor.clock
            kind = "copy" if isinstance(work, Copy) else "other"
            self.timeline.ran(actor.rank, kind, work.describe(), work.queue.number if work.queue else 0, actor.start, actor.clock)
            work.complete(self)
            return
        if actor.memory_ns or actor.matrix_ns:
            actor.settle()
        launch = actor.launch
        device = self.devices[actor.rank]
        heapq.heappush(device.free, (actor.clock, actor.sm))
        self.timeline.ran(actor.rank, "program", launch.kernel.name, actor.sm, actor.start, actor.clock)
        launch.end = max(launch.end, actor.clock)
        launch.finished += 1
        self.memory.version += 1
        if self.recorder is not None:
            self.recorder.program_ends(actor)
        if self.races is not None:
            self.races.program_ended(actor.race)
        if device.launches:
            self._admit(device)
        if launch.finished == launch.count:
            if self.pending.entries:
                self.pending.finish(launch)
            if self.races is not None:
                self.races.launch_ended(launch)
            launch.complete(self)

    def stuck_in_loops(self) -> list[Program]:
        """Programs that go round a loop: those that saw no change, and those that may run but have changed nothing for long."""
        running = self._ready_actors() if self._idle_steps else []
        return [actor for actor in [*running, *self._spinning] if isinstance(actor, Program)]

    def step(self) -> bool:
        """Run until some work has finished, or for ``batch`` turns. False when nothing can move.

        Raises what a kernel does wrong, as a SimulationError, and what a torch op raised.
        """
        version, finished = self.memory.version, self.finished
        collecting = gc.isenabled()
        gc.disable()  # thousands of suspended programs are expensive to traverse; nothing here makes cycles
        try:
            with np.errstate(all="ignore"):
                turns = self._batch()
        finally:
            if collecting:
                gc.enable()
        self.steps += turns
        if turns and version == self.memory.version and finished == self.finished:
            self._idle_steps += turns
            if self._idle_steps > _LIVELOCK_STEPS:
                running = [actor for actor in self._ready_actors() if isinstance(actor, Program)]
                raise DeadlockError(livelock_report(self, running, self._spinning))
        else:
            self._idle_steps = 0
        return turns > 0

    def _batch(self) -> int:
        """Turns until some work has finished, ``batch`` at most; how many there were. The inner loop of everything."""
        memory, rand, runnable, turns = self.memory, self._random, self._runnable, self._turns
        watchers, straggler, pending = memory.watchers, self._straggler, self.pending
        finished = self.finished
        index = 0
        for turn in range(self.batch):
            if not runnable and not turns and not self._wake_spinning():
                if not pending.land_one() and not self._part_threads():
                    return turn
                continue
            if pending.entries:
                pending.take_turn()
            if rand is None:
                actor = turns.popleft()
            else:
                if self._spinning and memory.version != self._spin_version and rand() < 0.05:
                    self._wake_spinning()
                count = len(runnable)
                index += 1
                if count < _MANY or index >= count or rand() < _JUMP:
                    index = int(rand() * count)
                actor = runnable[index]
                if actor.rank == straggler and rand() > _STRAGGLER_TURNS:
                    continue
            version = memory.version
            try:
                request = next(actor.generator)
            except StopIteration:
                request = self
            except Exception as error:
                raise self._located(error, actor) from None
            if request is None:
                if rand is None:
                    turns.append(actor)
                continue
            if rand is not None:  # what ran may have appended others, but the actor is still at its place
                last = runnable.pop()
                if actor is not last:
                    runnable[index] = last
            if request is self:
                self._ended(actor)
                if self.finished != finished:
                    return turn + 1
            elif request is SPIN:
                actor.waiting = SPIN
                if version != memory.version:
                    self._spin_version = -1
                self._spinning.append(actor)
            else:
                actor.waiting = request
                granule = request.address >> 3
                if granule in watchers:
                    watchers[granule].append(actor)
                else:
                    watchers[granule] = [actor]
        return self.batch

    def _wake_spinning(self) -> bool:
        """Programs that spin are tried again once memory has changed since they all last looked."""
        if not self._spinning or self.memory.version == self._spin_version:
            return False
        self._spin_version = self.memory.version
        spinning, self._spinning = self._spinning, []
        for actor in spinning:
            self._ready(actor)
        return True

    def _parks(self, actor: Program | Task, request: Any, version: int) -> None:
        """An actor goes on when ``request`` holds, or, if it spins, when memory changes. version: of the memory before its last step."""
        actor.waiting = request
        if request is SPIN:
            if version != self.memory.version:
                self._spin_version = -1
            self._spinning.append(actor)
        else:
            self.memory.watchers.setdefault(request.address >> 3, []).append(actor)

    def _part_threads(self) -> bool:
        """Nothing can move in lock step: let threads run apart in the first program in which they can. Whether there is one."""
        for place, actor in enumerate(self._spinning):
            if isinstance(actor, Program) and actor.may_part:
                del self._spinning[place]
                actor.part = True
                self._ready(actor)
                return True
        return False

    def _located(self, error: Exception, actor) -> Exception:
        """The error with who did it and where: in front of a SimulationError's text, as a note to any other."""
        if isinstance(error, (DataRaceError, MisuseError)):
            return error  # it names who and where itself
        place = actor.launch.kernel.location_of_error(error.__traceback__) if isinstance(actor, Program) else None
        if self.recorder is not None:
            self.recorder.program_failed(actor, place)
        if not isinstance(actor, Program):
            return type(error)(f"{actor.describe()}: {error}") if isinstance(error, SimulationError) else error
        if isinstance(error, SimulationError):
            return type(error)(f"{actor.describe()} at {place}: {error}")
        error.add_note(f"in {actor.describe()} at {place}")
        return error

    def run(self) -> None:
        """Run until everything has finished; raises DeadlockError when it can't."""
        while self.step():
            pass
        if any(self.busy(rank) for rank in range(self.world_size)):
            raise self.deadlock([])

    def drop(self, ranks: Collection[int]) -> bool:
        """Give up all work of ``ranks``: programs end where they are, and what is queued never starts.

        False, and nothing done, where some go round in loops, in an order that is not this class's.
        """
        if self.order_of_its_own and self._ready_actors():
            return False
        self._runnable = [actor for actor in self._runnable if actor.rank not in ranks or self._give_up(actor)]
        self._turns = deque(actor for actor in self._turns if actor.rank not in ranks or self._give_up(actor))
        self._spinning = [actor for actor in self._spinning if actor.rank not in ranks or self._give_up(actor)]
        for granule, actors in list(self.memory.watchers.items()):
            actors[:] = [actor for actor in actors if actor.rank not in ranks or self._give_up(actor)]
            if not actors:
                del self.memory.watchers[granule]
        self.pending.entries[:] = [copy for copy in self.pending.entries if copy.program.rank not in ranks]
        for rank in ranks:
            self._drop_queues(rank)
        self._idle_steps = 0
        self.memory.touch_all()
        return True

    def _give_up(self, actor: Program | Task) -> bool:
        """End an actor where it is; what it has done by then comes before what its host does next. False, for it does not stay."""
        actor.generator.close()
        if isinstance(actor, Program):
            if self.recorder is not None:
                self.recorder.program_ends(actor)
            if self.races is not None and actor.race is not None:
                self.races.program_ended(actor.race)
        return False

    def _drop_queues(self, rank: int) -> None:
        device = self.devices[rank]
        device.launches.clear()
        clock = self.rank_clock(rank)
        device.free = [(clock, sm) for sm in range(self.gpu.sm_count)]
        for stream in self.streams_of(rank):
            works = [*([] if stream.active is None else [stream.active]), *stream.queue]
            started, stream.active = stream.active, None
            stream.queue.clear()
            for work in works:
                work.end = max(work.begin, clock)
                if work is started and self.recorder is not None:
                    self.recorder.work_ends(work)
                if work is started and self.races is not None:
                    self.races.launch_ended(work)  # type: ignore[arg-type]
                work.abandon()
                self.finished += 1

    def deadlock(self, host_waits: list[tuple[int, str]]) -> DeadlockError:
        """The error that explains why nothing moves. host_waits: for each waiting host function its rank and what it waits for."""
        error = DeadlockError(deadlock_report(self, list(self._spinning), host_waits))
        if self.races is not None:
            self.races.explain(error)
        error.args = ("\n".join([str(error), *circle_lines(self)]),)  # at last: programs go on to find it
        return error

    def close(self) -> None:
        """Drop what is left; suspended programs are closed."""
        for actor in [*self._ready_actors(), *self._spinning, *self.parked()]:
            actor.generator.close()
        self._runnable.clear()
        self._turns.clear()
        self._spinning.clear()
        self.pending.entries.clear()
        self.memory.watchers.clear()
        self.memory.writes.clear()
        self._streams.clear()
