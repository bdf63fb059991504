"""Operations as what the kernel reads: records of tasks, in the order in which programs take them, and the words that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from . import kernel
from .graph import Operation, Ranges, check_tiles, dependencies
from .kernel import Kind, Kinds
from .peers import check_unguarded


@dataclass(frozen=True, eq=False)
class Plan:
    """A program, ready to run. The tensors are on the device; see ``kernel.mega_kernel``. names: of the trace, by number."""

    kinds: Kinds
    names: list[str]
    programs: int
    tasks: int
    waits: torch.Tensor
    queue: torch.Tensor
    starts: torch.Tensor
    words: torch.Tensor
    state: torch.Tensor


def make_plan(operations: Sequence[Operation], programs: int, device: torch.device, *, in_order: bool, take: bool) -> Plan:
    """in_order: operations wait for whole operations before them. take: programs take tasks as they come, else each has its own.

    Tasks are in the order of the operations, in each program's own list too, so what a task waits for is complete or was begun before it.
    Raises InvalidArgumentError for an operation whose tiles disturb each other, or that writes what other ranks may still read.
    """
    for operation in operations:
        check_tiles(operation)
    kinds, numbers, names = _kinds(operations)
    waits_of = dependencies(operations, in_order=in_order)
    check_unguarded(operations, waits_of)
    words = _Words.of(operations, waits_of)
    first_task = np.cumsum([0, *(operation.tiles for operation in operations)])
    tasks = int(first_task[-1])
    programs = max(1, min(programs, tasks))
    records = np.zeros((tasks, kernel.RECORD), dtype=np.int64)
    waits: list[tuple[int, int]] = []
    for index, operation in enumerate(operations):
        begin = int(first_task[index])
        for tile, of_tile in enumerate(waits_of[index]):
            mine = [words.wait(earlier, *span) for earlier, ranges in of_tile for span in ranges]
            (at, count), first = mine[0] if mine else (0, 0), len(waits)
            waits += mine[1:]
            numbered = (numbers[index], tile), (first, len(waits)), (words.of_tile(index, tile), count), (at, words.counters[index])
            records[begin + tile, : kernel.FIRST_TENSOR] = [low & 0xFFFFFFFF | high << 32 for low, high in numbered]
        addresses = [tensor.data_ptr() for tensor in operation.tensors]
        records[begin : begin + operation.tiles, kernel.FIRST_TENSOR : kernel.FIRST_TENSOR + len(addresses)] = addresses
    if take:
        starts = np.array([tasks])
    else:
        # The lists of the programs, one behind the other: dealt out in turn, and so in the order of the operations.
        records = records[np.argsort(np.arange(tasks) % programs, kind="stable")]
        starts = np.cumsum([0, *np.bincount(np.arange(tasks) % programs, minlength=programs)])

    def on_device(values: object, dtype: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(values), dtype=dtype, device=device)

    return Plan(
        kinds, names, programs, tasks,
        on_device(waits or [(0, 0)], torch.int32), on_device(records, torch.int64), on_device(starts, torch.int32),
        on_device(np.zeros(words.count), torch.int32), on_device(np.zeros(kernel.STATE), torch.int32),
    )  # fmt: skip


@dataclass
class _Words:
    """The words of a program. firsts, counters: of each operation, its tiles' first word and the one they add to; -1: nobody waits so."""

    tiles: list[int]
    firsts: list[int]
    counters: list[int]
    count: int = 0

    @classmethod
    def of(cls, operations: Sequence[Operation], waits: Sequence[Sequence[Sequence[tuple[int, Ranges]]]]) -> _Words:
        """Words for what is waited for: none where nobody waits."""
        words = cls([operation.tiles for operation in operations], [-1] * len(operations), [-1] * len(operations))
        for earlier, ranges in (wait for of_tiles in waits for of_tile in of_tiles for wait in of_tile):
            for span in ranges:
                places, size = (words.counters, 1) if words._is_whole(earlier, *span) else (words.firsts, words.tiles[earlier])
                if places[earlier] < 0:
                    places[earlier] = words.count
                    words.count += size
        words.count = max(1, words.count)
        return words

    def _is_whole(self, operation: int, first: int, end: int) -> bool:
        return end - first == self.tiles[operation]

    def wait(self, operation: int, first: int, end: int) -> tuple[int, int]:
        """Word and count (see ``kernel``) of a wait for tiles ``first`` to ``end`` of an operation."""
        if self._is_whole(operation, first, end):
            return self.counters[operation], -self.tiles[operation]
        return self.firsts[operation] + first, end - first

    def of_tile(self, operation: int, tile: int) -> int:
        """The word of one tile, or -1."""
        return -1 if self.firsts[operation] < 0 else self.firsts[operation] + tile


def _kinds(operations: Sequence[Operation]) -> tuple[Kinds, list[int], list[str]]:
    """All kinds, the number of each operation's, and names for the trace: operations that run the same code share theirs."""
    kinds: list[Kind] = []
    numbers, names = [], []
    for operation in operations:
        kind = Kind(operation.body, operation.constants)
        if kind not in kinds:
            kinds.append(kind)
            names.append([operation.name])
        number = kinds.index(kind)
        if operation.name not in names[number]:
            names[number].append(operation.name)
        numbers.append(number)
    return Kinds(tuple(kinds)), numbers, ["scoreboard_wait_deps", *("/".join(known) for known in names)]
