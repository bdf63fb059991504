"""The words that bodies count runs in, allocated for a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from ..runtime.preload import ALIGNMENT
from .graph import Operation, RunWords

_ALIGNED = ALIGNMENT // torch.int32.itemsize


def with_words(operations: Sequence[Operation], zeros: Callable[[int, bool], torch.Tensor]) -> list[Operation]:
    """The operations, each with tensors of a new plan's words behind its own.

    zeros: ``zeros(count, symmetric)`` makes int32 words; called once for all that are symmetric, and once for the others.
    """
    words = dict.fromkeys(words for operation in operations for words in operation.words)
    tensors: dict[RunWords, torch.Tensor] = {}
    for symmetric in (True, False):
        mine = [each for each in words if each.symmetric == symmetric]
        # Bodies take it that their tensors are aligned.
        sizes = [-(-each.count // _ALIGNED) * _ALIGNED for each in mine]
        if mine:
            tensors.update(zip(mine, zeros(sum(sizes), symmetric).split(sizes), strict=True))
    return [
        dataclasses.replace(operation, tensors=(*operation.tensors, *(tensors[each] for each in operation.words)))
        for operation in operations
    ]
