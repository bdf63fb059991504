"""A meeting of the ranks of a node in the midst of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

import triton_dist.language as dl

from ..graph import Access, Operation, RunWords
from ..kernel import tensor_of


@dataclass(frozen=True)
class Ranks:
    """The ranks that a task meets: ``SIZE`` of them from ``FIRST`` on; this one is number ``INDEX`` of them."""

    FIRST: int
    SIZE: int
    INDEX: int


@triton.jit
def tell(words, run, C: tl.constexpr):
    """Sets this rank's own word of each of the ranks of ``C``."""
    if C.SIZE > 1:
        for distance in range(C.SIZE):
            dl.notify(words + C.INDEX, C.FIRST + (C.INDEX + distance) % C.SIZE, signal=run, sig_op="set", comm_scope="intra_node")


@triton.jit
def meet(words, run, C: tl.constexpr):
    """Says to each of the ranks of ``C`` that this one is here, by its own word of theirs, and waits until all have said so."""
    tell(words, run, C)
    if C.SIZE > 1:
        dl.wait(words, C.SIZE, "sys", "acquire", waitValue=run, cmp="ge")


@triton.jit
def barrier_task(task, tile, run, C: tl.constexpr):
    """Tensors: words, symmetric int32, one a rank."""
    meet(tensor_of(task, 0, tl.int32), run, C)


def barrier(ranks: Ranks, inputs: Sequence[torch.Tensor]) -> Operation:
    """inputs: it comes after everything that was done with them before, and everything that is done with them later comes after it."""
    guarded, words = tuple(Access.of_all(tensor, 1) for tensor in inputs), RunWords(ranks.SIZE, symmetric=True)
    return Operation(
        "barrier_all_intra_node", barrier_task, ranks, (), 1, guarded, guarded, kept=tuple(inputs), words=(words,), meets=True, stores=False
    )
