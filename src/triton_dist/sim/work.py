"""What can be queued on a stream besides a kernel: copies, signals, events and calls of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from .check.history import READ, WRITE
from .cost_model import AT_ONCE, OperatorTime
from .memory import WORDS, element_index
from .ops.memory import put_word, see_word
from .requests import COMPARISONS, SYMBOLS, Steps, WaitRequest

if TYPE_CHECKING:
    from .check.checker import Tensors
    from .check.clocks import Clock
    from .machine import Machine
    from .stream_queues import Stream

REAL_BYTES = 1 << 20
"""In a run for its time, integer tensors up to this size have values; larger ones are taken for data, as floating-point ones are."""

_COPY_PIECE = 64 << 10
_COPY_PIECES = 8


def has_values(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values count in a run for its time."""
    return not tensor.is_floating_point() and tensor.numel() * tensor.element_size() <= REAL_BYTES


class Work:
    """One entry of a stream's queue. ``done`` once it has finished; ``rank`` and ``queue``, its stream, are set when it is submitted.

    issued: simulated time at which the host submitted it; it does not begin before. known: what comes before it by the host's program, for
    ``check``. number: how many works of its class its stream got before. followers: called when it has finished, before the next one
    begins.
    """

    names_itself = False
    """Whether reports say what it is where it waits, for a word or for other ranks."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.done = False
        self.rank = -1
        self.queue: Stream | None = None
        self.issued = 0.0
        self.number = 0
        self.known: Clock | None = None
        self.followers: list[Callable[[], object]] = []
        self.begin = 0.0
        self.end = 0.0

    def describe(self) -> str:
        """As reports name it."""
        return self.label

    def start(self, machine: Machine) -> None:
        """Called when everything before it in its stream has finished."""
        machine.start_task(self)

    def execute(self, task: Task) -> Steps:
        """The work, yielding where others may run; for work that ``start`` leaves to a task."""
        raise NotImplementedError

    def complete(self, machine: Machine) -> None:
        """Mark as done and let the stream go on."""
        self.done = True
        machine.completed(self)

    def abandon(self) -> None:
        """It won't be done: nobody waits for it any more."""
        self.done = True


class Task:
    """Runs one Work: what Program is for a kernel's block. Nothing is ever left to ``settle`` here."""

    __slots__ = ("work", "rank", "machine", "memory", "clock", "memory_ns", "matrix_ns", "generator", "waiting", "start")

    def __init__(self, work: Work, machine: Machine) -> None:
        self.work = work
        self.rank = work.rank
        self.machine = machine
        self.memory = machine.memory
        self.clock = self.start = work.begin
        self.memory_ns = self.matrix_ns = 0.0
        self.waiting: object = None
        self.generator = work.execute(self)

    def settle(self) -> None:
        """As Program's: work of a stream waits for each thing that it does."""

    def describe(self) -> str:
        """As reports name it."""
        return f"rank {self.rank}, {self.work.describe()}"

    def line(self) -> str:
        """No source line: it is not in a kernel."""
        return ""


class TorchCall(Work):
    """A torch op (or any host function) in stream order. It may write anywhere, so whoever waits looks again afterwards.

    function: None for an op that only takes time. time: how long it takes beyond its start.
    accesses: what it reads and writes, where data races are looked for.
    """

    def __init__(
        self, function: Callable[[], object] | None, label: str = "torch op", time: OperatorTime = AT_ONCE, accesses: Tensors = ()
    ) -> None:
        super().__init__(label)
        self._accesses = accesses
        self._function = function
        self._time = time

    def execute(self, task: Task) -> Steps:
        function, self._function = self._function, None  # what it refers to may go as soon as it has run
        if self._accesses and task.machine.races is not None:
            task.machine.races.stream_accesses(self.rank, self.queue.number if self.queue else 0, self.label, self._accesses)
        if function is not None:
            function()
        task.clock = task.machine.computed(task.rank, task.clock + task.machine.gpu.costs.torch_ns, self._time)
        task.memory.touch_all()
        return
        yield  # makes this a generator


class Copy(Work):
    """A copy by the copy engine. It lands piece by piece, and what does not wait for it may run before, between and after the pieces.

    destination, source: addresses. size: bytes. moves_data: False for a copy that only takes time.
    """

    def __init__(self, destination: int, source: int, size: int, label: str = "copy", *, moves_data: bool = True) -> None:
        super().__init__(f"{label} of {size} bytes")
        self.destination, self.source, self.size, self.moves_data = destination, source, size, moves_data

    def execute(self, task: Task) -> Steps:
        memory = task.memory
        if self.size == 0:
            return
        memory.check(self.destination, self.destination + self.size, 1, "copy to")
        memory.check(self.source, self.source + self.size, 1, "copy from")
        task.clock += task.machine.gpu.costs.copy_start_ns
        if task.machine.races is not None:
            both = [(READ, self.source, (self.size,), (1,), 1), (WRITE, self.destination, (self.size,), (1,), 1)]
            task.machine.races.stream_accesses(self.rank, self.queue.number if self.queue else 0, self.label, both)
        piece = max(_COPY_PIECE, -(-self.size // _COPY_PIECES))
        for offset in range(0, self.size, piece):
            yield
            size = min(piece, self.size - offset)
            task.clock = task.machine.copied(self, task.clock, size)
            if self.moves_data:
                ctypes.memmove(self.destination + offset, self.source + offset, size)
                memory.changed(self.destination + offset, self.destination + offset + size, task)


class WriteValue(Work):
    """Set a signal word from the host in stream order: everything before it in the stream is visible to who sees it.

    bits: 32 or 64.
    """

    def __init__(self, address: int, value: int, bits: int = 32) -> None:
        super().__init__("write of a signal by its stream")
        self.address, self.value = address, value
        self.dtype = np.dtype(f"i{bits // 8}")

    def execute(self, task: Task) -> Steps:
        yield
        task.memory.check(self.address, self.address + self.dtype.itemsize, self.dtype.itemsize, "signal write")
        task.clock += task.machine.gpu.costs.stream_write_ns
        if task.machine.races is not None:
            task.machine.races.stream_wrote_word(self, self.address, self.dtype.itemsize)
        put_word(task, self.address, self.dtype.type(self.value), self.dtype, -1)


class WaitValue(Work):
    """Hold the stream until a signal word fulfils a condition. compare: eq, ne, ge, gt, le or lt. bits: 32 or 64."""

    def __init__(self, address: int, value: int, compare: str = "ge", bits: int = 32) -> None:
        super().__init__(f"wait of its stream for a signal {SYMBOLS[compare]} {value}")
        self.address, self.value, self.compare = address, value, compare
        self.dtype = np.dtype(f"i{bits // 8}")

    def execute(self, task: Task) -> Steps:
        yield
        task.memory.check(self.address, self.address + self.dtype.itemsize, self.dtype.itemsize, "signal wait")
        size = self.dtype.itemsize
        view, index = WORDS[size], element_index(self.address, size)
        request, recorder = WaitRequest(self.address, size, self.compare, self.value), task.machine.recorder
        noted = None if recorder is None else recorder.wait_begins(task, request)
        while not COMPARISONS[self.compare](view[index], self.value, 1 << (8 * size - 1)):
            yield request
        see_word(task, self.address)
        if recorder is not None and noted is not None:
            recorder.wait_ends(noted, task, self.address, size)
        if task.machine.races is not None:
            task.machine.races.stream_saw_word(self, self.address, size, self.compare, self.value)
        task.clock += task.machine.gpu.costs.stream_wait_ns


class DeviceEvent:
    """A point in a stream. ``recorded`` is the last record queued, None before the first."""

    def __init__(self) -> None:
        self.recorded: RecordEvent | None = None

    @property
    def done(self) -> bool:
        """True when everything before the last record has finished, and before any record."""
        return self.recorded is None or self.recorded.done


class RecordEvent(Work):
    """Record an event; whoever waits for this record goes on when the stream has come to it."""

    def __init__(self, event: DeviceEvent) -> None:
        super().__init__("record of an event")
        self.waiters: list[WaitEvent] = []
        self.reached: Clock | None = None
        """What came before it, for ``check``."""
        event.recorded = self

    def start(self, machine: Machine) -> None:
        self.end = self.begin
        if machine.races is not None:
            self.reached = machine.races.stream_of(self).publish()
        self.complete(machine)
        for waiter in self.waiters:
            waiter.end = max(waiter.begin, self.end) + machine.gpu.costs.event_ns
            waiter.learn(machine)
            waiter.complete(machine)
        self.waiters.clear()


class WaitEvent(Work):
    """Hold the stream until the record that the event had when this was queued has happened."""

    def __init__(self, event: DeviceEvent) -> None:
        super().__init__("wait for an event")
        self.record = event.recorded

    def describe(self) -> str:
        if self.record is None or self.record.queue is None:
            return self.label
        return f"wait for an event of rank {self.record.rank}'s stream {self.record.queue.number}"

    def learn(self, machine: Machine) -> None:
        """Its stream goes on behind the record."""
        if machine.races is not None and self.record is not None and self.record.reached is not None:
            machine.races.stream_of(self).learn(self.record.reached)

    def start(self, machine: Machine) -> None:
        if self.record is None or self.record.done:
            self.learn(machine)
            self.end = max(self.begin, self.record.end + machine.gpu.costs.event_ns if self.record else 0.0)
            self.complete(machine)
        else:
            self.record.waiters.append(self)
