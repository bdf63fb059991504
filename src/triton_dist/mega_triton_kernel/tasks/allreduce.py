"""Sums over the ranks of a node, in one shot: each rank loads what it needs from every other one, as soon as that is complete.

It suits the few KiB of a decoding step, where latency is what counts; each rank reads (ranks - 1) times the tensor. Every tile meets its
peers by itself, so a tile is on its way while others are still computed. No multicast memory is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

import triton_dist.language as dl

from ...runtime.address_map import STRIDE
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation, RunWords
from ..kernel import tensor_of
from .barrier import Ranks, meet, tell
from .checks import check, nbytes, width_of_blocks


@dataclass(frozen=True)
class _AllReduce:
    DTYPE: Any
    ELEMENTS: int
    BLOCK: int
    FIRST: int
    SIZE: int
    INDEX: int
    TELL: bool


@triton.jit
def allreduce_task(task, tile, run, C: tl.constexpr):
    """One block of ``out``, added in fp32 in the order of the ranks. Tensors: x (symmetric), out, words (symmetric int32 (tiles, ranks)).

    TELL: the peers are told, by one more such tensor, done, that this rank has read its part of their x.
    """
    meet(tensor_of(task, 2, tl.int32) + tile * C.SIZE, run, C)
    at = tile.to(tl.int64) * C.BLOCK + tl.arange(0, C.BLOCK)
    inside = at < C.ELEMENTS
    x = tensor_of(task, 0, C.DTYPE)
    sums = tl.zeros((C.BLOCK,), tl.float32)
    for index in tl.static_range(C.SIZE):
        of_rank = dl.symm_at(x, C.FIRST + index) if C.SIZE > 1 else x
        sums += tl.load(of_rank + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(tensor_of(task, 1, C.DTYPE) + at, sums.to(C.DTYPE), mask=inside)
    if C.TELL:
        tell(tensor_of(task, 3, tl.int32) + tile * C.SIZE, run, C)


@triton.jit
def read_by_all_task(task, tile, run, C: tl.constexpr):
    """Waits until every rank has read its part of this rank's x. Tensors: done."""
    dl.wait(tensor_of(task, 0, tl.int32) + tile * C.SIZE, C.SIZE, "sys", "acquire", waitValue=run, cmp="ge")


def block_of(elements: int, programs: int) -> int:
    """Elements of a tile; the same on every rank for the same number of programs."""
    return width_of_blocks(elements, programs, 256, 4096)


def allreduce(x: torch.Tensor, out: torch.Tensor, ranks: Ranks, block: int, *, told: bool) -> list[Operation]:
    """x: symmetric. out: of its shape and dtype, other memory.

    told: ranks tell each other when they have read x, and a second operation keeps later writers of x waiting for that.
    """
    check("make_allreduce", "output", out, x.shape, x.dtype)
    elements = x.numel()
    tiles = triton.cdiv(elements, block)
    boxes = [(0, 1, tile * block, (tile + 1) * block) for tile in range(tiles)]
    mine, result = Access.of_boxes(x, elements, boxes), Access.of_boxes(out, elements, boxes)
    constants = _AllReduce(TRITON_DTYPES[x.dtype], elements, block, ranks.FIRST, ranks.SIZE, ranks.INDEX, told)
    here, done = RunWords(tiles * ranks.SIZE, symmetric=True), RunWords(tiles * ranks.SIZE, symmetric=True)
    made = [
        Operation(
            "allreduce", allreduce_task, constants, (x, out), tiles, (mine,), (result,), nbytes=nbytes(x, out),
            words=(here, done) if told else (here,), agreed=(elements, str(x.dtype), told, f"at {x.data_ptr() % STRIDE:#x}"),
            meets=True, unguarded=ranks.SIZE > 1 and not told,
        )
    ]  # fmt: skip
    if told:
        made.append(
            Operation(
                "allreduce_read_by_all", read_by_all_task, ranks, (), tiles, (result,), (mine,), kept=(x,), words=(done,), stores=False
            )
        )
    return made
