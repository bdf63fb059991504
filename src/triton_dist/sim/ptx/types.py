"""PTX's types, and how the bits of a register become numbers.

A register is an array of unsigned integers of its width, one for each lane (a boolean array for a predicate). A lane is a thread, or one
of the groups of elements that a thread works on. An array of one element stands for a register that is the same in all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

_UNSIGNED: dict[int, np.dtype] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}


@dataclass(frozen=True)
class PtxType:
    """A type as instructions name it.

    kind: "b" (bits), "u", "s" (integers), "f" (float), "pred". bits: of the whole value. dtype: of one number. count: how many of them
    a value holds; above one for packed types.
    """

    name: str
    kind: str
    bits: int
    dtype: np.dtype
    count: int = 1

    @property
    def raw(self) -> np.dtype:
        """The unsigned integer as wide as the value."""
        return self.dtype if self.kind == "pred" else _UNSIGNED[self.bits]

    @property
    def constants(self) -> str:
        """The kinds of constants that an operand of the type may be, see ``syntax.Immediate``."""
        if self.kind == "b":
            return constants_of_bits(self.bits)
        if self.kind == "f":
            return {"f32": "df", "f64": "d"}.get(self.name, "")
        return "su" if self.count == 1 else ""

    def numbers(self, bits: np.ndarray) -> np.ndarray:
        """Register contents as numbers; a packed type gives one more dimension, with the lowest bits first."""
        if self.dtype == bits.dtype:
            return bits
        numbers = np.ascontiguousarray(bits).view(self.dtype)
        return numbers.reshape(*bits.shape, self.count) if self.count > 1 else numbers

    def contents(self, numbers: np.ndarray) -> np.ndarray:
        """The reverse of ``numbers``."""
        if numbers.dtype != self.dtype:
            numbers = numbers.astype(self.dtype)
        if self.count > 1:
            return np.ascontiguousarray(numbers).view(self.raw)[..., 0]
        return np.ascontiguousarray(numbers).view(self.raw)


def constants_of_bits(width: int) -> str:
    """As ``PtxType.constants``, of the type without a kind."""
    return {32: "suf", 64: "sud"}.get(width, "su")


def _make() -> dict[str, PtxType]:
    found = [PtxType("pred", "pred", 1, np.dtype(np.bool_))]
    for bits, raw in _UNSIGNED.items():
        found.append(PtxType(f"b{bits}", "b", bits, raw))
        found.append(PtxType(f"u{bits}", "u", bits, raw))
        found.append(PtxType(f"s{bits}", "s", bits, np.dtype(f"i{bits // 8}")))
    floats = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
    for name, number in floats.items():
        found.append(PtxType(name, "f", np.dtype(number).itemsize * 8, np.dtype(number)))
    found.append(PtxType("f16x2", "f", 32, np.dtype(np.float16), 2))
    found.append(PtxType("bf16x2", "f", 32, np.dtype(ml_dtypes.bfloat16), 2))
    found.append(PtxType("u16x2", "u", 32, np.dtype(np.uint16), 2))
    found.append(PtxType("s16x2", "s", 32, np.dtype(np.int16), 2))
    found.append(PtxType("f32x2", "f", 64, np.dtype(np.float32), 2))
    for name, number in {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}.items():
        found.append(PtxType(f"{name}x2", "f", 16, np.dtype(number), 2))
        found.append(PtxType(f"{name}x4", "f", 32, np.dtype(number), 4))
    return {one.name: one for one in found}


TYPES = _make()
"""All types that the subset has, by name."""

B128 = PtxType("b128", "b", 128, np.dtype(np.uint64), 2)
"""Only loads, stores, exchanges and moves take it; registers of this width are two halves."""


def extended(bits: np.ndarray, kind: PtxType, width: int) -> np.ndarray:
    """A value of a type in a register that is at least as wide: signed ones with their sign, others with zeros."""
    if kind.bits == width:
        return bits
    target = _UNSIGNED[width]
    if kind.kind == "s":
        return bits.view(kind.dtype).astype(f"i{width // 8}").view(target)
    return bits.astype(target)


def raw_dtype(width: int) -> np.dtype:
    """The array that holds registers of a width; 1 is a predicate."""
    return np.dtype(np.bool_) if width == 1 else _UNSIGNED[width]
