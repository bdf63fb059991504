"""Between Triton's values and a block's registers: packing, and which thread has which element.

Triton gives each thread ``pack`` elements at a time, packed into registers of 32 bits where they are smaller. Which elements meet in one
run of the block is not specified. Here a tile that only computes is cut into neighbours; where threads matter it is spread as the
compiler's default layout does: element ``i`` is thread ``i`` modulo the number of threads, and a tile with fewer elements than threads is
in several threads, each of which runs the block, as on a GPU.

A register narrower than its value has the lower bits, as LLVM makes it; a wider one has zeros above them (ones above a boolean that holds),
where LLVM leaves undefined what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InlineAssemblyError
from ..types import Type
from .block import AsmBlock
from .frame import Frame
from .types import raw_dtype


@dataclass(frozen=True)
class Operand:
    """How one operand or result lies in registers.

    dtype: of an element. bits: of an element. each: elements in one register. slots: its registers.
    """

    dtype: np.dtype
    bits: int
    each: int
    slots: range


@dataclass(frozen=True)
class Binding:
    """A block with the types of one use of it. pack: elements of one run."""

    block: AsmBlock
    pack: int
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]

    def load(self, frame: Frame, values: Sequence[np.ndarray]) -> None:
        """Put operands into registers. values: for each a row for each lane (or one for all), and ``pack`` columns."""
        widths = self.block.registers
        for operand, value in zip(self.operands, values, strict=True):
            for number, slot in enumerate(operand.slots):
                chosen = value[:, number * operand.each : (number + 1) * operand.each]
                frame.registers[slot] = _packed(chosen, operand, widths[slot])
        for slot, result in self.block.constraints.tied:
            frame.registers[result] = frame.registers[slot]

    def unload(self, frame: Frame) -> list[np.ndarray]:
        """The results, as ``load`` takes operands."""
        return [np.concatenate(self._columns(frame, result), axis=1) for result in self.results]

    def _columns(self, frame: Frame, result: Operand) -> list[np.ndarray]:
        contents = [frame.registers[slot] for slot in result.slots]
        height = max(len(one) for one in contents)
        return [np.broadcast_to(_unpacked(one, result), (height, result.each)) for one in contents]


def _raw(values: np.ndarray, operand: Operand) -> np.ndarray:
    if operand.dtype == np.bool_:
        return values.astype(np.uint8)
    return np.ascontiguousarray(values).view(f"u{operand.dtype.itemsize}")


def _packed(values: np.ndarray, operand: Operand, width: int) -> np.ndarray:
    raw = _raw(values, operand)
    target = raw_dtype(width)
    if width == 1:
        return raw[:, 0] != 0
    if operand.dtype == np.bool_:
        return np.where(values[:, 0], ~target.type(0), target.type(0))
    result = raw[:, 0].astype(target)
    for number in range(1, operand.each):
        result = result | raw[:, number].astype(target) << target.type(number * operand.bits)
    return result


def _unpacked(contents: np.ndarray, result: Operand) -> np.ndarray:
    columns = []
    for number in range(result.each):
        part = contents if contents.dtype == np.bool_ else contents >> contents.dtype.type(number * result.bits)
        if result.dtype == np.bool_:
            columns.append((part & part.dtype.type(1)).astype(np.bool_))
        else:
            columns.append(part.astype(f"u{result.dtype.itemsize}").view(result.dtype))
    return np.stack(columns, axis=1)


def _place(kinds: Sequence[Type], pack: int, first: int, widths: Sequence[int], what: str) -> tuple[tuple[Operand, ...], int]:
    found = []
    for kind in kinds:
        dtype, bits = kind.dtype, kind.bits
        each = min(max(32 // bits, 1), pack)
        if bits == 1 and each > 1:
            raise InlineAssemblyError("booleans are not packed; pass them as integers (mask.to(tl.int32))")
        slots = range(first, first + -(-pack // each))
        if slots.stop > len(widths):
            raise InlineAssemblyError(_too_few(len(widths), what))
        for slot in slots:
            if each > 1 and each * bits > widths[slot]:
                raise InlineAssemblyError(
                    f"${slot} has {widths[slot]} bits by its constraint, but {what} of {kind.element} with pack={pack} needs {each * bits}"
                )
        found.append(Operand(dtype, bits, each, slots))
        first = slots.stop
    return tuple(found), first


def _too_few(count: int, what: str) -> str:
    return f"the constraints name {count} operands, which are not enough for {what}; each needs pack elements, in registers of 32 bits"


def bind(block: AsmBlock, pack: int, operands: Sequence[Type], results: Sequence[Type]) -> Binding:
    """Match a block with the types of an op. Raises InlineAssemblyError where the constraints do not fit."""
    widths, outputs = block.constraints.widths, block.constraints.outputs
    given, end = _place(results, pack, 0, widths[:outputs], "a result")
    taken, last = _place(operands, pack, outputs, widths, "an operand")
    if end != outputs or last != len(widths):
        raise InlineAssemblyError(
            f"the constraints name {outputs} results and {len(widths) - outputs} operands, but there are {end} and {last - outputs} "
            f"registers of them (pack={pack})"
        )
    return Binding(block, pack, taken, given)


def elements_of_threads(count: int, threads: int, pack: int) -> np.ndarray:
    """Which elements each run of a block has: index [group, thread, position]; -1 is none."""
    each = max(-(-count // threads), 1)
    groups = -(-each // pack)
    number = np.arange(groups * pack)[:, None] * threads + np.arange(threads)
    number = np.where(number < max(count, threads), number % count, -1)
    return number.reshape(groups, pack, threads).transpose(0, 2, 1)
