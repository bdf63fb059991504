"""Barriers and signals of a handle: small kernels of torch's in stream order, on words of the signal pads.

A signal of rank ``i`` to rank ``j`` on a channel is the word ``world_size * channel + i`` of ``j``'s pad. Who signals waits until it
is 0 and makes it 1, who waits for the signal waits until it is 1 and makes it 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..memory import WORDS, element_index
from ..ops.memory import put_word, see_word
from ..requests import Steps, WaitRequest
from ..work import Task, Work

if TYPE_CHECKING:
    from ..machine import Machine

_WORD = np.dtype(np.int32)


class Swap(NamedTuple):
    """Wait until the word at ``address`` is ``expected`` and make it ``value``, in one step."""

    address: int
    expected: int
    value: int


class PadSignals(Work):
    """One kernel that signals and waits for signals. threads: what each of its threads does, one swap after the other."""

    def __init__(self, label: str, threads: Sequence[Sequence[Swap]]) -> None:
        super().__init__(label)
        self._threads = threads
        self._running = 0

    def start(self, machine: Machine) -> None:
        self.end = self.begin
        self._running = len(self._threads)
        if not self._running:
            self.complete(machine)
        for number, swaps in enumerate(self._threads):
            machine.start_task(PadThread(self, swaps, number))

    def ended(self, machine: Machine, at: float) -> None:
        """One of its threads has ended."""
        self.end = max(self.end, at)
        self._running -= 1
        if not self._running:
            self.complete(machine)


class PadThread(Work):
    """One thread of a PadSignals."""

    names_itself = True

    def __init__(self, kernel: PadSignals, swaps: Sequence[Swap], number: int) -> None:
        super().__init__(kernel.label)
        self._kernel, self._swaps = kernel, swaps
        self.rank, self.queue, self.begin = kernel.rank, kernel.queue, kernel.begin
        self.number = kernel.number * len(kernel._threads) + number

    def execute(self, task: Task) -> Steps:
        memory, races, costs = task.memory, task.machine.races, task.machine.gpu.costs
        for address, expected, value in self._swaps:
            yield
            memory.check(address, address + _WORD.itemsize, _WORD.itemsize, self.label)
            view, index = WORDS[_WORD.itemsize], element_index(address, _WORD.itemsize)
            request, recorder = WaitRequest(address, _WORD.itemsize, "eq", expected), task.machine.recorder
            noted = None if recorder is None else recorder.wait_begins(task, request)
            while view[index] != expected:
                yield request
            see_word(task, address)
            if recorder is not None and noted is not None:
                recorder.wait_ends(noted, task, address, _WORD.itemsize)
            if races is not None:
                races.stream_swapped_word(self, address, _WORD.itemsize, "release" if value else "acquire")
            task.clock += costs.stream_write_ns if value else costs.stream_wait_ns
            put_word(task, address, _WORD.type(value), _WORD, -1)

    def complete(self, machine: Machine) -> None:
        self.done = True
        self._kernel.ended(machine, self.end)
