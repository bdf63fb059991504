"""Source lines of a kernel whose file has another path than when it was compiled first.

Triton's cache is keyed by a kernel's text and line number and not by its file, so a clone in another folder gets the module of the first
one, with its paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from .ir import Operation


def relocate(module: Operation, name: str, file: str) -> None:
    """Make the locations in ``module`` those of today: the kernel ``name`` stands in ``file`` now.

    Files that lay in the same tree as the kernel's are looked for in the tree where it is now.
    """
    functions = [operation for operation in _operations(module) if operation.name == "tt.func"]
    kernel = next((function for function in functions if function.attributes.get("sym_name") == name), functions[0] if functions else None)
    if kernel is None or not kernel.location.file or kernel.location.file == file:
        return
    move = _mover(kernel.location.file, file)
    moved: dict[str, str] = {"": ""}
    for operation in _operations(module):
        before = operation.location.file
        if before not in moved:
            moved[before] = move(before)
        operation.location = replace(operation.location, file=moved[before])


def _mover(before: str, now: str) -> Callable[[str], str]:
    """From where a file was to where it is, by the path of one that is known."""
    parts_before, parts_now = before.split(os.sep), now.split(os.sep)
    same = 0
    while same < min(len(parts_before), len(parts_now)) and parts_before[-1 - same] == parts_now[-1 - same]:
        same += 1
    root_before = os.sep.join(parts_before[: len(parts_before) - same]) + os.sep
    root_now = os.sep.join(parts_now[: len(parts_now) - same]) + os.sep

    def move(file: str) -> str:
        if file == before:
            return now
        candidate = root_now + file[len(root_before) :]
        return candidate if same and file.startswith(root_before) and os.path.exists(candidate) else file

    return move


def _operations(operation: Operation) -> Iterator[Operation]:
    yield operation
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield from _operations(inner)
