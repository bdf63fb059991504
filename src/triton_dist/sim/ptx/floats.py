"""Arithmetic of floats: of 16, 32 and 64 bits and packed pairs, with PTX's rounding directions, ``.ftz``, ``.sat`` and ``.relu``.

What PTX calls approximate (``.approx``, ``.full``) is the rounded exact result here; a GPU may differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ops import arith
from ..ops import libdevice_rounding as rounding
from ..ops.libdevice_rounding import Rounding
from .form import Form, Run, contents, numbers, writer
from .syntax import Instruction
from .types import TYPES, PtxType

Array = np.ndarray
Function = Callable[..., Array]

MODES = {"rn": Rounding.NEAREST, "rz": Rounding.TOWARD_ZERO, "rm": Rounding.DOWN, "rp": Rounding.UP}
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_ALL = ("f32", "f64", *_HALVES)
_NAN = {"float16": 0x7FFF, "bfloat16": 0x7FFF, "float32": 0x7FFFFFFF}
"""The bits of what a GPU gives for a NaN; fp64 keeps numpy's."""


def canonical(x: Array) -> Array:
    """The same numbers with the NaN that a GPU gives."""
    bits = _NAN.get(x.dtype.name)
    missing = np.isnan(x)
    if bits is None or not missing.any():
        return x
    raw = np.dtype(f"u{x.dtype.itemsize}")
    return np.where(missing, raw.type(bits), x.view(raw)).view(x.dtype)


def flush(x: Array) -> Array:
    """Subnormal numbers become a zero of their sign."""
    smallest = {"float16": 2.0**-14, "float32": 2.0**-126, "bfloat16": 2.0**-126}.get(x.dtype.name)
    if smallest is None:
        return x
    return np.where(np.abs(x.astype(np.float32)) < smallest, np.copysign(x.dtype.type(0), x), x)


def saturated(x: Array) -> Array:
    """Limited to 0 .. 1; a NaN becomes 0."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    return np.where(np.isnan(x) | (x <= 0), zero, np.where(x > 1, one, x))


def at_least_zero(x: Array) -> Array:
    """``.relu``: negative numbers become 0, a NaN stays."""
    return np.where(x < 0, x.dtype.type(0), x)


def in_direction(function: Callable[..., Array], mode: Rounding) -> Function:
    """A function of ``libdevice_rounding`` for arrays of any shape, and for types of 16 bits, whose sums and products fp32 holds."""

    def rounded(*operands: Array) -> Array:
        dtype = operands[0].dtype
        arrays = np.broadcast_arrays(*operands)
        wide = [np.ravel(array).astype(np.float32) if dtype.itemsize == 2 else np.ravel(array) for array in arrays]
        return function(*wide, mode).reshape(arrays[0].shape).astype(dtype)

    return rounded


def _fused(a: Array, b: Array, c: Array) -> Array:
    return arith.fused_multiply_add(*np.broadcast_arrays(a, b, c))


def _run(instruction: Instruction, kind: PtxType, function: Function, count: int, after: list[Function], ftz: bool) -> Run:
    """Read ``count`` operands, apply ``function`` and what comes ``after`` it, and write the result."""
    reads = [numbers(instruction, operand, kind) for operand in instruction.operands[1 : 1 + count]]
    write = writer(instruction, instruction.operands[0], kind)

    def run(frame, mask) -> None:
        operands = [read(frame) for read in reads]
        if ftz:
            operands = [flush(operand) for operand in operands]
        result = function(*operands)
        if ftz:
            result = flush(result)
        for step in after:
            result = step(result)
        write(frame, kind.contents(canonical(np.asarray(result))), mask)

    return run


def _take(instruction: Instruction, form: Form, types: tuple[str, ...], count: int) -> tuple[PtxType, Rounding, list[Function], bool]:
    """The type of an instruction, its rounding, what is done to its result, and whether subnormals are flushed."""
    mode = MODES[form.one_of(MODES, "rn")]
    ftz, sat, relu = form.flag("ftz"), form.flag("sat"), form.flag("relu")
    form.flag("noftz")
    kind = form.type(types)
    form.done(count + 1)
    if mode is not Rounding.NEAREST and kind.dtype.itemsize == 2:
        raise instruction.wrong("types of 16 bits are rounded to nearest (.rn) only")
    return kind, mode, ([saturated] if sat else []) + ([at_least_zero] if relu else []), ftz


_DIRECTED: dict[str, tuple[Callable[..., Array], int, tuple[str, ...]]] = {
    "add": (rounding.add, 2, (*_ALL, "f32x2")),
    "sub": (rounding.subtract, 2, (*_ALL, "f32x2")),
    "mul": (rounding.multiply, 2, (*_ALL, "f32x2")),
    "div": (rounding.divide, 2, ("f32", "f64")),
    "rcp": (rounding.reciprocal, 1, ("f32", "f64")),
    "sqrt": (rounding.square_root, 1, ("f32", "f64")),
}


def directed(instruction: Instruction) -> Run:
    """add, sub, mul, div, rcp, sqrt."""
    form = Form(instruction)
    function, count, types = _DIRECTED[instruction.opcode]
    if count == 1 or instruction.opcode == "div":
        form.flag("approx")
        form.flag("full")
    kind, mode, after, ftz = _take(instruction, form, types, count)
    return _run(instruction, kind, in_direction(function, mode), count, after, ftz)


def fused(instruction: Instruction) -> Run:
    """fma, and mad of floats, which is the same."""
    form = Form(instruction)
    kind, mode, after, ftz = _take(instruction, form, (*_ALL, "f32x2"), 3)
    function = _fused if mode is Rounding.NEAREST else in_direction(rounding.fused_multiply_add, mode)
    return _run(instruction, kind, function, 3, after, ftz)


_EXTREMA = {
    ("max", False): arith.maximum_number,
    ("max", True): arith.maximum,
    ("min", False): arith.minimum_number,
    ("min", True): arith.minimum,
}


def extremum(instruction: Instruction) -> Run:
    """min and max."""
    form = Form(instruction)
    function = _EXTREMA[instruction.opcode, form.flag("NaN")]
    by_size = form.flag("xorsign")
    if by_size:
        form.one_of(("abs",))
    ftz = form.flag("ftz")
    kind = form.type(_ALL)
    form.done(3)

    def of_sizes(a: Array, b: Array) -> Array:
        size = function(np.abs(a), np.abs(b))
        return np.where(np.signbit(a) ^ np.signbit(b), -size, size)

    return _run(instruction, kind, of_sizes if by_size else lambda a, b: function(*np.broadcast_arrays(a, b)), 2, [], ftz)


def sign(instruction: Instruction) -> Run:
    """abs and neg, which only touch the sign bit."""
    form = Form(instruction)
    ftz = form.flag("ftz")
    kind = form.type(_ALL)
    form.done(2)
    raw = np.dtype(f"u{kind.dtype.itemsize}")
    top = raw.type(1 << 8 * raw.itemsize - 1)
    read, write = numbers(instruction, instruction.operands[1], kind), writer(instruction, instruction.operands[0], kind)
    clears = instruction.opcode == "abs"

    def run(frame, mask) -> None:
        value = flush(read(frame)) if ftz else read(frame)
        bits = np.ascontiguousarray(value).view(raw)
        write(frame, kind.contents((bits & ~top if clears else bits ^ top).view(kind.dtype)), mask)

    return run


def copy_sign(instruction: Instruction) -> Run:
    """copysign: the second operand with the sign of the first."""
    form = Form(instruction)
    kind = form.type(("f32", "f64"))
    form.done(3)
    a, b = (contents(instruction, operand, kind.bits, kind.constants) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], kind)
    top = kind.raw.type(1 << kind.bits - 1)
    return lambda frame, mask: write(frame, (a(frame) & top) | (b(frame) & ~top), mask)


_APPROXIMATE: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "rsqrt": (lambda x: 1 / np.sqrt(x), ("f32", "f64")),
    "ex2": (np.exp2, ("f32", *_HALVES)),
    "lg2": (np.log2, ("f32",)),
    "sin": (np.sin, ("f32",)),
    "cos": (np.cos, ("f32",)),
    "tanh": (np.tanh, ("f32", *_HALVES)),
}


def approximate(instruction: Instruction) -> Run:
    """ex2, lg2, rsqrt, sin, cos, tanh: by way of fp64, rounded to nearest. fp32 ones other than tanh read subnormals as zeros."""
    form = Form(instruction)
    function, types = _APPROXIMATE[instruction.opcode]
    form.one_of(("approx",))
    ftz = form.flag("ftz")
    kind = form.type(types)
    form.done(2)
    return _run(instruction, kind, lambda x: function(x.astype(np.float64)).astype(kind.dtype), 1, [], ftz)


_PROPERTIES: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & ((x == 0) | (np.abs(x) >= np.finfo(x.dtype).tiny)),  # zero is, on an H200
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


def test_property(instruction: Instruction) -> Run:
    """testp."""
    form = Form(instruction)
    function = _PROPERTIES[form.one_of(_PROPERTIES)]
    kind = form.type(("f32", "f64"))
    form.done(2)
    read, write = numbers(instruction, instruction.operands[1], kind), writer(instruction, instruction.operands[0], TYPES["pred"])
    return lambda frame, mask: write(frame, function(read(frame)), mask)


FUNCTIONS: dict[str, Callable[[Instruction], Run]] = {
    **dict.fromkeys(_DIRECTED, directed),
    "fma": fused,
    "mad": fused,
    "min": extremum,
    "max": extremum,
    "abs": sign,
    "neg": sign,
    "copysign": copy_sign,
    "testp": test_property,
    **dict.fromkeys(_APPROXIMATE, approximate),
}
"""Translators by instruction."""
