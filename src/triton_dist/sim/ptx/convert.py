"""cvt: between integers, between floats, from one to the other, and the packing of two floats."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from ..ops import arith
from ..ops.libdevice_conversion import float_to_integer, integer_to_float
from ..ops.libdevice_rounding import Rounding, round_to_float32
from .floats import MODES, at_least_zero, canonical, flush, saturated
from .form import Form, Run, contents, numbers, opcode, pure, writer
from .syntax import Instruction
from .types import TYPES, PtxType

Array = np.ndarray

_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_INTEGRAL_MODES = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0, "f16": 65504.0, "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)}


@opcode("cvt")
@pure
def _convert(instruction: Instruction) -> Run:
    form = Form(instruction)
    if form.flag("rs"):
        raise instruction.unsupported("stochastic rounding is not simulated")
    if form.flag("pack"):
        return _pack_integers(instruction, form)
    if len(instruction.operands) == 3:
        return _pack_two(instruction, form)
    integral = form.one_of(_INTEGRAL, "")
    mode = form.one_of((*MODES, "rna"), "")
    ftz, sat, satfinite, relu = form.flag("ftz"), form.flag("sat"), form.flag("satfinite"), form.flag("relu")
    if form.flag("tf32"):
        return _to_tf32(instruction, form, mode, relu)
    given, taken = form.type(), form.type()
    form.done(2)
    if "b" in (given.kind, taken.kind) or "pred" in (given.kind, taken.kind):
        raise instruction.wrong("cvt has no untyped bits; use .u, .s or .f types")
    if given.count > 1 or taken.count > 1:
        return _between_packed(instruction, given, taken, relu)
    read = numbers(instruction, instruction.operands[1], taken, wider=taken.kind != "f")
    write = writer(instruction, instruction.operands[0], given, wider=given.kind != "f")
    function = _function(instruction, given, taken, mode, integral, sat)

    def run(frame, mask) -> None:
        value = read(frame)
        if ftz:
            value = flush(value)
        result = function(value)
        if given.kind == "f":
            if ftz:
                result = flush(result)
            if sat:
                result = saturated(result)
            if relu:
                result = at_least_zero(result)
            if satfinite:
                result = _limited(result, given)
            result = canonical(result)
        write(frame, given.contents(result), mask)

    return run


def _pack_integers(instruction: Instruction, form: Form) -> Run:
    """``cvt.pack``: two integers, saturated, the first one above the second; narrow ones below the lower bits of a third operand."""
    form.one_of(("sat",))
    name = form.one_of(("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"))
    form.type(("s32",))
    bits, wide = int(name[1:]), name.endswith("16")
    if not wide:
        form.type(("b32",))
    form.done(3 if wide else 4)
    a, b = (numbers(instruction, operand, TYPES["s32"]) for operand in instruction.operands[1:3])
    above = None if wide else contents(instruction, instruction.operands[3], 32)
    write = writer(instruction, instruction.operands[0], TYPES["b32"])
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    mask_of_one = np.uint32((1 << bits) - 1)

    def run(frame, mask) -> None:
        first, second = (np.clip(read(frame), least, most).astype(np.int32).view(np.uint32) & mask_of_one for read in (a, b))
        packed = first << np.uint32(bits) | second
        write(frame, packed if above is None else packed | above(frame) << np.uint32(2 * bits), mask)

    return run


def _function(instruction: Instruction, given: PtxType, taken: PtxType, mode: str, integral: str, sat: bool) -> Callable[[Array], Array]:
    if taken.kind != "f" and given.kind != "f":
        if mode or integral:
            raise instruction.wrong("a conversion between integers is not rounded")
        ours, theirs = np.iinfo(given.dtype), np.iinfo(taken.dtype)
        if sat and ours.min <= theirs.min and theirs.max <= ours.max:
            raise instruction.wrong(f".sat has nothing to do: every .{taken.name} is a .{given.name}")
        return (lambda x: _clamped(x, given)) if sat else (lambda x: x.astype(given.dtype))
    if given.kind != "f":
        if not integral:
            raise instruction.wrong("a conversion to an integer needs .rni, .rzi, .rmi or .rpi")
        return lambda x: _to_integer(x, given, integral)
    if taken.kind != "f":
        if mode not in MODES:
            raise instruction.wrong("a conversion to a float needs .rn, .rz, .rm or .rp")
        return lambda x: from_integer(x, given.dtype, MODES[mode])
    if given == taken:
        return (lambda x: _INTEGRAL[integral](x).astype(given.dtype)) if integral else (lambda x: x)
    narrows = given.bits < taken.bits or given.bits == taken.bits == 16
    if integral or (narrows and mode not in MODES) or (mode and not narrows):
        raise instruction.wrong("a conversion to a narrower float needs .rn, .rz, .rm or .rp, and one to a wider float has none")
    return lambda x: to_float(x, given.dtype, MODES.get(mode, Rounding.NEAREST))


def _clamped(x: Array, kind: PtxType) -> Array:
    limits = np.iinfo(kind.dtype)
    low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    inside = np.clip(x, x.dtype.type(max(low, limits.min)), x.dtype.type(min(high, limits.max)))
    return inside.astype(kind.dtype)


def _to_integer(x: Array, kind: PtxType, integral: str) -> Array:
    """Clamped to the range of the result; a NaN gives 0, or the highest bit alone where the operand or the result has 64 bits."""
    mode = MODES[_INTEGRAL_MODES[integral]]
    source = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    if kind.bits >= 32:
        return float_to_integer(kind.dtype.type, mode)(source)
    limits = np.iinfo(kind.dtype)
    whole = np.nan_to_num(_INTEGRAL[integral](source), nan=0.0, posinf=limits.max, neginf=limits.min)
    clamped = np.clip(whole, limits.min, limits.max).astype(kind.dtype)
    if x.dtype.itemsize < 8:
        return clamped
    highest = np.array([1 << kind.bits - 1], kind.raw).view(kind.dtype)
    return np.where(np.isnan(x), highest, clamped)


def from_integer(x: Array, dtype: np.dtype, mode: Rounding) -> Array:
    """An integer as a float, rounded once."""
    if x.dtype.itemsize < 4:
        x = x.astype(f"{x.dtype.kind}4")
    if dtype.itemsize >= 4:
        return integer_to_float(dtype.type, mode)(x)
    return to_float(_odd(x), dtype, mode)


def _odd(x: Array) -> Array:
    """An integer as a double whose last bit says that something was cut off: a later, shorter rounding is right."""
    if x.dtype.itemsize == 4:
        return x.astype(np.float64)
    negative = x < 0
    size = np.where(negative, -x.astype(np.uint64), x.astype(np.uint64)).astype(np.uint64)
    cut = size & np.uint64(0x7FF)
    whole = np.where(size >> np.uint64(53) != 0, ((size >> np.uint64(11)) | (cut != 0)) << np.uint64(11), size)
    return np.where(negative, -1.0, 1.0) * whole.astype(np.float64)


def to_float(x: Array, dtype: np.dtype, mode: Rounding) -> Array:
    """A float as another type of float."""
    if dtype.itemsize >= 4 and x.dtype.itemsize <= dtype.itemsize:
        return x.astype(dtype)
    wide = x.astype(np.float64)
    if dtype == np.float32:
        return round_to_float32(wide, np.zeros(wide.shape), mode)
    if mode is Rounding.NEAREST:
        return arith._round_once(wide, dtype)
    nearest = arith._round_once(wide, dtype)
    return _moved(nearest, wide, mode)


def _moved(nearest: Array, wide: Array, mode: Rounding) -> Array:
    """The neighbour of a rounded number of 16 bits on the side that a direction asks for."""
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint16)
    toward_zero = np.where(np.isfinite(wide) & (np.abs(back) > np.abs(wide)), bits - np.uint16(1), bits)
    if mode is Rounding.TOWARD_ZERO:
        return toward_zero.view(nearest.dtype)
    short = toward_zero.view(nearest.dtype).astype(np.float64)
    outward = (wide > 0) if mode is Rounding.UP else (wide < 0)
    grows = np.isfinite(wide) & outward & (np.abs(short) < np.abs(wide))
    return np.where(grows, toward_zero + np.uint16(1), toward_zero).view(nearest.dtype)


def _limited(x: Array, kind: PtxType) -> Array:
    """``.satfinite``: the largest finite number instead of an infinity."""
    limit = _LARGEST.get(kind.name, np.inf)
    return np.where(np.isnan(x), x, np.clip(x.astype(np.float32), -limit, limit).astype(x.dtype))


def _to_tf32(instruction: Instruction, form: Form, mode: str, relu: bool) -> Run:
    """fp32 with 10 bits of mantissa: the others become 0."""
    form.type(("f32",))
    form.done(2)
    read = contents(instruction, instruction.operands[1], 32, TYPES["f32"].constants)
    write = writer(instruction, instruction.operands[0], TYPES["b32"])

    def run(frame, mask) -> None:
        bits = read(frame)
        half = np.uint32(0x1000)
        if mode == "rna":
            rounded = bits + half
        elif mode == "rz":
            rounded = bits
        else:
            rounded = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
        special = bits & np.uint32(0x7F800000) == np.uint32(0x7F800000)
        missing = special & (bits & np.uint32(0x7FFFFF) != 0)
        result = np.where(missing, np.uint32(0x7FFFFFFF), np.where(special, bits, rounded & ~np.uint32(0x1FFF)))
        if relu:
            result = np.where((result >> np.uint32(31) != 0) & ~missing, np.uint32(0), result)
        write(frame, result, mask)

    return run


def _pack_two(instruction: Instruction, form: Form) -> Run:
    """Two fp32 operands, the first for the upper half."""
    mode = MODES[form.one_of(("rn", "rz"), "rn")]
    satfinite, relu, ftz = form.flag("satfinite"), form.flag("relu"), form.flag("ftz")
    given, taken = form.type(("f16x2", "bf16x2", "e4m3x2", "e5m2x2")), form.type(("f32",))
    form.done(3)
    high, low = (numbers(instruction, operand, taken) for operand in instruction.operands[1:])
    write = writer(instruction, instruction.operands[0], given)

    def run(frame, mask) -> None:
        pair = np.stack(np.broadcast_arrays(low(frame), high(frame)), axis=-1)
        if ftz:
            pair = flush(pair)
        write(frame, given.contents(_narrowed(pair, given, mode, relu, satfinite)), mask)

    return run


def _narrowed(pair: Array, given: PtxType, mode: Rounding, relu: bool, satfinite: bool) -> Array:
    if relu:
        pair = at_least_zero(pair)
        if given.name == "bf16x2":
            pair = pair + pair.dtype.type(0)  # -0 becomes 0 there, on an H200; it stays in pairs of fp16
    if given.dtype.itemsize == 1:
        return _to_fp8(pair, given)
    if satfinite:
        limit = np.float32(_LARGEST[given.name.removesuffix("x2")])
        pair = np.where(np.isnan(pair), pair, np.clip(pair, -limit, limit))
    return canonical(to_float(pair, given.dtype, mode))


def _to_fp8(pair: Array, given: PtxType) -> Array:
    limit = np.float32(_LARGEST[given.name])
    wide = pair.astype(np.float32)
    result = np.clip(wide, -limit, limit).astype(given.dtype)
    return np.where(np.isnan(wide), np.uint8(0x7F), result.view(np.uint8)).view(given.dtype)


def _between_packed(instruction: Instruction, given: PtxType, taken: PtxType, relu: bool) -> Run:
    if given.count != 2 or taken.count != 2 or "x2" not in given.name or "x2" not in taken.name:
        raise instruction.unsupported(f"a conversion from .{taken.name} to .{given.name} is not in the subset")
    read, write = numbers(instruction, instruction.operands[1], taken), writer(instruction, instruction.operands[0], given)

    def run(frame, mask) -> None:
        pair = read(frame).astype(np.float32)
        write(frame, given.contents(_narrowed(pair, given, Rounding.NEAREST, relu, False)), mask)

    return run
