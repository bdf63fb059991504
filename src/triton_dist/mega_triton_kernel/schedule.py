"""Operations as what the kernel reads: records of tasks, in the order in which programs take them, and the words that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from . import kernel
from .graph import Operation, check_tiles, dependencies
from .kernel import Kind, Kinds


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
    Raises InvalidArgumentError for an operation whose tiles disturb each other.
    """
    for operation in operations:
        check_tiles(operation)
    kinds, numbers, names = _kinds(operations)
    first_word = np.cumsum([0, *(operation.tiles for operation in operations)])
    tasks = int(first_word[-1])
    programs = max(1, min(programs, tasks))
    state = torch.zeros(kernel.STATE, dtype=torch.int32, device=device)
    records = np.zeros((tasks, kernel.RECORD), dtype=np.int64)
    waits: list[tuple[int, int]] = []
    for index, (operation, of_tiles) in enumerate(zip(operations, dependencies(operations, in_order=in_order), strict=True)):
        for tile, of_tile in enumerate(of_tiles):
            word, first = int(first_word[index]) + tile, len(waits)
            mine = [(int(first_word[earlier]) + start, end - start) for earlier, ranges in of_tile for start, end in ranges]
            at, count = mine[0] if mine else (0, 0)
            waits += mine[1:]
            records[word, : kernel.FIRST_TENSOR] = numbers[index] | tile << 32, first | len(waits) << 32, word | count << 32, at
        addresses = [tensor.data_ptr() for tensor in operation.tensors]
        of_operation = slice(int(first_word[index]), int(first_word[index + 1]))
        records[of_operation, kernel.FIRST_TENSOR : kernel.FIRST_TENSOR + len(addresses)] = addresses
    if take:
        starts = np.array([tasks])
    else:
        # The lists of the programs, one behind the other: dealt out in turn, and so in the order of the operations.
        records = records[np.argsort(np.arange(tasks) % programs, kind="stable")]
        starts = np.cumsum([0, *np.bincount(np.arange(tasks) % programs, minlength=programs)])

    def on_device(values: object, dtype: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(values), dtype=dtype).to(device)

    return Plan(
        kinds, names, programs, tasks,
        on_device(waits or [(0, 0)], torch.int32), on_device(records, torch.int64), on_device(starts, torch.int32),
        torch.zeros(tasks, dtype=torch.int32, device=device), state,
    )  # fmt: skip


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
