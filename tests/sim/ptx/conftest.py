"""Runs a block without a kernel: what it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from triton_dist.sim.ptx.block import translate
from triton_dist.sim.ptx.control import Runner
from triton_dist.sim.ptx.frame import Frame

_LETTERS = {16: "h", 32: "r", 64: "l"}


def evaluate(text: str, gives: Sequence[int], *operands: np.ndarray) -> list[np.ndarray]:
    """The results of a block that only computes, for arrays of unsigned operands. gives: bits of the results."""
    letters = [f"={_LETTERS[bits]}" for bits in gives] + [_LETTERS[8 * operand.dtype.itemsize] for operand in operands]
    block = translate(text, ",".join(letters))
    assert not block.touches and not block.per_thread
    frame = Frame(None, np.zeros(max([1, *(len(one) for one in operands)]), np.int64), list(block.registers), 0)
    for slot, operand in enumerate(operands, len(gives)):
        frame.registers[slot] = operand
    with np.errstate(all="ignore"):
        for _ in Runner(block.lines, frame, shares=False).steps():
            pass
    return [np.broadcast_to(one, frame.lanes) for one in frame.registers[: len(gives)]]


@pytest.fixture(name="evaluate")
def give_evaluate() -> Callable[..., list[np.ndarray]]:
    """The function above."""
    return evaluate
