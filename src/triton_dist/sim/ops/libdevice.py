"""CUDA's device math library for the simulator: ``LIBDEVICE`` maps each ``__nv_`` symbol to a function of numpy arrays.

The table holds every symbol that ``triton.language.extra.cuda.libdevice`` emits, and the few others of the library without pointer
operands. The simulator calls ``LIBDEVICE[symbol](*operands)`` when it meets an external elementwise operation with that symbol.

Accuracy
    - float32 functions are computed in float64 and rounded once, so they are at least as exact as those of the GPU, but need not equal
      them in the last bit. The ``__nv_fast_`` functions are the accurate ones.
    - Exact by definition, and equal to the GPU in every bit: integer functions, conversions, bit casts, the functions with a rounding
      suffix (``_rn``, ``_rz``, ``_ru``, ``_rd``), fma, rint, round, floor, ceil, trunc, fmod, remainder, nextafter, ldexp, logb, sqrt,
      reciprocals and divisions with a suffix.
    - Triton links the library in its flush-to-zero mode: most float32 functions read a subnormal operand as a zero of its sign, and return
      such a zero for a subnormal result. ``_READS_SUBNORMALS`` and ``_RETURNS_SUBNORMALS`` list the others, as measured on an H100. What
      the library makes of subnormal operands beyond that is not simulated: there cbrt and rcbrt give NaN, logb and nextafter and pow
      another number.
    - float64 functions come from numpy and torch, within 3 units in the last place; erfcx, the gamma functions, rnorm and the
      modified Bessel functions within 10, except lgamma next to its zeros at negative arguments; J and Y as ``libdevice_bessel`` says.
    - ``__nv_rcp64h`` is a coarse approximation by definition: here the upper half of the exact reciprocal, rounded.
    - A NaN is a quiet NaN; its sign and payload mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from triton_dist.errors import InvalidArgumentError
from triton_dist.sim.ops import libdevice_bessel as bessel
from triton_dist.sim.ops import libdevice_conversion as conversion
from triton_dist.sim.ops import libdevice_integer as integer
from triton_dist.sim.ops import libdevice_math as math
from triton_dist.sim.ops import libdevice_rounding as rounding
from triton_dist.sim.ops import libdevice_special as special
from triton_dist.sim.ops.arith import flush
from triton_dist.sim.ops.libdevice_rounding import Array, Rounding

_DTYPES: dict[str, type[np.generic]] = {
    "i16": np.int16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}
# The IR has no unsigned integers: an unsigned result is handed back as the signed one with the same bits.
_SIGNLESS: dict[str, type[np.generic]] = {"u32": np.int32, "u64": np.int64}


@dataclass(frozen=True)
class LibdeviceFunction:
    """One symbol of the library: call it with one numpy array or scalar for each operand.

    Operands broadcast against each other. The result has the broadcast shape (a numpy scalar when that has no axis).

    Attributes:
        symbol: the name in the library, ``__nv_sinf``.
        operands: the type of each operand: i16, i32, u32, i64, u64, f32 or f64. An unsigned one takes the signed array of the same bits.
        result: the type of the result; an unsigned one is returned as the signed type of the same width.
        function: the work, on one-dimensional contiguous arrays of one length and of exactly the types of ``operands``.
        reads_subnormals, returns_subnormals: False where float32 operands, or a float32 result, are flushed to zero.

    Raises:
        InvalidArgumentError: the number of operands or the type of one is not the symbol's.
    """

    symbol: str
    operands: tuple[str, ...]
    result: str
    function: Callable[..., Array]
    reads_subnormals: bool = True
    returns_subnormals: bool = True

    def __call__(self, *values: Array | np.generic) -> Array | np.generic:
        if len(values) != len(self.operands):
            raise InvalidArgumentError(
                f"{self.symbol} got {len(values)} operands, but takes {len(self.operands)}: pass {self._signature()}"
            )
        arrays = [self._typed(np.asarray(value), name) for value, name in zip(values, self.operands, strict=True)]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        flat = [np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1) for array in arrays]
        with np.errstate(all="ignore"):
            if not self.reads_subnormals:
                flat = [flush(array) if array.dtype == np.float32 else array for array in flat]
            result = self.function(*flat).astype(_DTYPES[self.result], copy=False)
            if not self.returns_subnormals:
                result = flush(result)
        return result.view(_SIGNLESS.get(self.result, _DTYPES[self.result])).reshape(shape)[()]

    def _typed(self, array: Array, name: str) -> Array:
        expected = np.dtype(_DTYPES[name])
        if array.dtype == expected:
            return array
        if array.dtype.kind in "iu" and expected.kind in "iu" and array.dtype.itemsize == expected.itemsize:
            return array.view(expected)
        raise InvalidArgumentError(f"{self.symbol} got an operand of type {array.dtype}, expected {name}: pass {self._signature()}")

    def _signature(self) -> str:
        return f"({', '.join(self.operands)}) -> {self.result}"


Row = tuple[str, Callable[..., Array], str]

# Symbol, function, and signature "operands > result". One symbol a row, where no rule makes the name.
_SINGLE: tuple[Row, ...] = (
    ("clz", integer.count_leading_zeros, "u32 > i32"),
    ("clzll", integer.count_leading_zeros, "u64 > i32"),
    ("ffs", integer.find_first_set, "u32 > i32"),
    ("ffsll", integer.find_first_set, "u64 > i32"),
    ("popc", integer.count_ones, "u32 > i32"),
    ("popcll", integer.count_ones, "u64 > i32"),
    ("brev", integer.reverse_bits, "u32 > u32"),
    ("brevll", integer.reverse_bits, "u64 > u64"),
    ("byte_perm", integer.permute_bytes, "u32 u32 u32 > u32"),
    ("mulhi", integer.multiply_high_32, "i32 i32 > i32"),
    ("umulhi", integer.multiply_high_32, "u32 u32 > u32"),
    ("mul64hi", integer.multiply_high_64, "i64 i64 > i64"),
    ("umul64hi", integer.multiply_high_64, "u64 u64 > u64"),
    ("mul24", integer.multiply_24, "i32 i32 > i32"),
    ("umul24", integer.multiply_24, "u32 u32 > u32"),
    ("sad", integer.sum_of_absolute_difference, "i32 i32 u32 > u32"),
    ("usad", integer.sum_of_absolute_difference, "u32 u32 u32 > u32"),
    ("hadd", integer.average_down, "i32 i32 > i32"),
    ("uhadd", integer.average_down, "u32 u32 > u32"),
    ("rhadd", integer.average_up, "i32 i32 > i32"),
    ("urhadd", integer.average_up, "u32 u32 > u32"),
    ("abs", np.abs, "i32 > i32"),
    ("llabs", np.abs, "i64 > i64"),
    ("min", np.minimum, "i32 i32 > i32"),
    ("max", np.maximum, "i32 i32 > i32"),
    ("umin", np.minimum, "u32 u32 > u32"),
    ("umax", np.maximum, "u32 u32 > u32"),
    ("llmin", np.minimum, "i64 i64 > i64"),
    ("llmax", np.maximum, "i64 i64 > i64"),
    ("ullmin", np.minimum, "u64 u64 > u64"),
    ("ullmax", np.maximum, "u64 u64 > u64"),
    ("int_as_float", conversion.bit_cast(np.float32), "i32 > f32"),
    ("uint_as_float", conversion.bit_cast(np.float32), "u32 > f32"),
    ("float_as_int", conversion.bit_cast(np.int32), "f32 > i32"),
    ("float_as_uint", conversion.bit_cast(np.uint32), "f32 > u32"),
    ("longlong_as_double", conversion.bit_cast(np.float64), "i64 > f64"),
    ("double_as_longlong", conversion.bit_cast(np.int64), "f64 > i64"),
    ("hiloint2double", conversion.double_from_halves, "u32 u32 > f64"),
    ("double2hiint", conversion.double_high_half, "f64 > u32"),
    ("double2loint", conversion.double_low_half, "f64 > u32"),
    ("half2float", conversion.half_to_float, "i16 > f32"),
    ("float2half_rn", conversion.float_to_half, "f32 > i16"),
    ("int2double_rn", conversion.integer_to_float(np.float64, Rounding.NEAREST), "i32 > f64"),
    ("uint2double_rn", conversion.integer_to_float(np.float64, Rounding.NEAREST), "u32 > f64"),
    ("llrintf", conversion.float_to_integer(np.int64, Rounding.NEAREST), "f32 > i64"),
    ("llrint", conversion.float_to_integer(np.int64, Rounding.NEAREST), "f64 > i64"),
    ("frsqrt_rn", rounding.reciprocal_square_root, "f32 > f32"),
    ("rcp64h", math.coarse_reciprocal, "f64 > f64"),
    ("saturatef", math.saturate, "f32 > f32"),
    ("fast_fdividef", np.divide, "f32 f32 > f32"),
    ("nextafterf", np.nextafter, "f32 f32 > f32"),
    ("nextafter", np.nextafter, "f64 f64 > f64"),
    ("signbitf", np.signbit, "f32 > i32"),
    ("signbitd", np.signbit, "f64 > i32"),
    ("isnanf", np.isnan, "f32 > i32"),
    ("isnand", np.isnan, "f64 > i32"),
    ("isinff", np.isinf, "f32 > i32"),
    ("isinfd", np.isinf, "f64 > i32"),
    ("finitef", np.isfinite, "f32 > i32"),
    ("isfinited", np.isfinite, "f64 > i32"),
)

# Functions of float64 that exist as __nv_<name>f and __nv_<name>. "f" stands for the float type.
_FLOAT: tuple[Row, ...] = (
    ("fabs", np.abs, "f > f"),
    ("floor", np.floor, "f > f"),
    ("ceil", np.ceil, "f > f"),
    ("trunc", np.trunc, "f > f"),
    ("rint", np.rint, "f > f"),
    ("nearbyint", np.rint, "f > f"),
    ("round", math.round_half_away, "f > f"),
    ("sqrt", np.sqrt, "f > f"),
    ("rsqrt", math.reciprocal_square_root, "f > f"),
    ("cbrt", np.cbrt, "f > f"),
    ("rcbrt", math.reciprocal_cube_root, "f > f"),
    ("exp", np.exp, "f > f"),
    ("exp2", np.exp2, "f > f"),
    ("exp10", math.exponential_base_10, "f > f"),
    ("expm1", np.expm1, "f > f"),
    ("log", np.log, "f > f"),
    ("log2", np.log2, "f > f"),
    ("log10", np.log10, "f > f"),
    ("log1p", np.log1p, "f > f"),
    ("sin", np.sin, "f > f"),
    ("cos", np.cos, "f > f"),
    ("tan", np.tan, "f > f"),
    ("sinpi", math.sine_pi, "f > f"),
    ("cospi", math.cosine_pi, "f > f"),
    ("asin", np.arcsin, "f > f"),
    ("acos", np.arccos, "f > f"),
    ("atan", np.arctan, "f > f"),
    ("atan2", np.arctan2, "f f > f"),
    ("sinh", np.sinh, "f > f"),
    ("cosh", np.cosh, "f > f"),
    ("tanh", np.tanh, "f > f"),
    ("asinh", np.arcsinh, "f > f"),
    ("acosh", np.arccosh, "f > f"),
    ("atanh", np.arctanh, "f > f"),
    ("pow", np.power, "f f > f"),
    ("powi", math.integer_power, "f i32 > f"),
    ("fmin", math.minimum_number, "f f > f"),
    ("fmax", math.maximum_number, "f f > f"),
    ("fdim", math.positive_difference, "f f > f"),
    ("fmod", np.fmod, "f f > f"),
    ("remainder", math.ieee_remainder, "f f > f"),
    ("copysign", np.copysign, "f f > f"),
    ("hypot", math.norm, "f f > f"),
    ("rhypot", math.reciprocal_norm, "f f > f"),
    ("norm3d", math.norm, "f f f > f"),
    ("rnorm3d", math.reciprocal_norm, "f f f > f"),
    ("norm4d", math.norm, "f f f f > f"),
    ("rnorm4d", math.reciprocal_norm, "f f f f > f"),
    ("ldexp", math.scale_by_power_of_two, "f i32 > f"),
    ("scalbn", math.scale_by_power_of_two, "f i32 > f"),
    ("ilogb", math.exponent_as_integer, "f > i32"),
    ("logb", math.exponent_as_float, "f > f"),
    ("llround", math.round_half_away_to_integer, "f > i64"),
    ("erf", special.error_function, "f > f"),
    ("erfc", special.complementary_error_function, "f > f"),
    ("erfcx", special.scaled_complementary_error_function, "f > f"),
    ("erfinv", special.inverse_error_function, "f > f"),
    ("erfcinv", special.inverse_complementary_error_function, "f > f"),
    ("normcdf", special.normal_distribution, "f > f"),
    ("normcdfinv", special.inverse_normal_distribution, "f > f"),
    ("lgamma", special.log_gamma, "f > f"),
    ("tgamma", special.gamma, "f > f"),
    ("cyl_bessel_i0", special.bessel_i0, "f > f"),
    ("cyl_bessel_i1", special.bessel_i1, "f > f"),
    ("j0", bessel.bessel_j0, "f > f"),
    ("j1", bessel.bessel_j1, "f > f"),
    ("jn", bessel.bessel_jn, "i32 f > f"),
    ("y0", bessel.bessel_y0, "f > f"),
    ("y1", bessel.bessel_y1, "f > f"),
    ("yn", bessel.bessel_yn, "i32 f > f"),
)

_MOVES_BITS = frozenset({"int_as_float", "uint_as_float", "float_as_int", "float_as_uint", "copysignf", "fdimf", "nextafterf", "erfinvf"})
_READS_SUBNORMALS = _MOVES_BITS | {"logf", "log2f", "log10f", "powf", "fast_powf", "tgammaf", "y0f", "y1f", "ynf"}
_EXACT_OR_SCALED = {"expf", "exp10f", "fmodf", "remainderf", "rhypotf", "rnorm3df", "rnorm4df", "j1f", "jnf", "ldexpf", "scalbnf"}
_RETURNS_SUBNORMALS = _MOVES_BITS | _EXACT_OR_SCALED

# The float functions that also exist as __nv_fast_<name>f.
_FAST = ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10", "pow")

# Symbols with every rounding direction as suffix: __nv_f<name>_<mode> for float32 and __nv_d<name>_<mode> for float64.
_DIRECTED: tuple[Row, ...] = (
    ("add", rounding.add, "f f > f"),
    ("sub", rounding.subtract, "f f > f"),
    ("mul", rounding.multiply, "f f > f"),
    ("div", rounding.divide, "f f > f"),
    ("rcp", rounding.reciprocal, "f > f"),
    ("sqrt", rounding.square_root, "f > f"),
)

# How the names of the conversions (__nv_float2int_rz) call the types.
_INTEGER_NAMES: dict[str, tuple[str, type[np.integer]]] = {
    "int": ("i32", np.int32),
    "uint": ("u32", np.uint32),
    "ll": ("i64", np.int64),
    "ull": ("u64", np.uint64),
}
_FLOAT_NAMES: dict[str, tuple[str, type[np.floating]]] = {"float": ("f32", np.float32), "double": ("f64", np.float64)}


def _through_float64(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function for float32: widened operands in, one rounding of the result out (``LibdeviceFunction`` casts it)."""

    def widened(*operands: Array) -> Array:
        return function(*(operand.astype(np.float64) if operand.dtype == np.float32 else operand for operand in operands))

    return widened


def _function(name: str, function: Callable[..., Array], signature: str, float_type: str = "") -> LibdeviceFunction:
    operands, result = (part.split() for part in signature.split(" > "))
    typed = [float_type if part == "f" else part for part in (*operands, *result)]
    reads = "f32" not in typed[:-1] or name in _READS_SUBNORMALS
    returns = typed[-1] != "f32" or name in _RETURNS_SUBNORMALS
    return LibdeviceFunction(f"__nv_{name}", tuple(typed[:-1]), typed[-1], function, reads, returns)


def _float_functions() -> Iterator[LibdeviceFunction]:
    for name, function, signature in _FLOAT:
        narrow = _through_float64(function)
        yield _function(f"{name}f", narrow, signature, "f32")
        yield _function(name, function, signature, "f64")
        if name in _FAST:
            yield _function(f"fast_{name}f", narrow, signature, "f32")


def _directed_functions() -> Iterator[LibdeviceFunction]:
    for mode in Rounding:
        for name, operation, signature in _DIRECTED:
            directed = rounding.in_direction(operation, mode)
            yield _function(f"f{name}_{mode.value}", directed, signature, "f32")
            yield _function(f"d{name}_{mode.value}", directed, signature, "f64")
        fma = rounding.in_direction(rounding.fused_multiply_add, mode)
        yield _function(f"fmaf_{mode.value}", fma, "f f f > f", "f32")
        yield _function(f"fmaf_ieee_{mode.value}", fma, "f f f > f", "f32")
        yield _function(f"fma_{mode.value}", fma, "f f f > f", "f64")
        if mode is Rounding.NEAREST:
            yield _function("fmaf", fma, "f f f > f", "f32")
            yield _function("fma", fma, "f f f > f", "f64")


def _conversions() -> Iterator[LibdeviceFunction]:
    for mode in Rounding:
        yield _function(f"double2float_{mode.value}", conversion.double_to_float(mode), "f64 > f32")
        for float_name, (float_type, floating) in _FLOAT_NAMES.items():
            for integer_name, (integer_type, integral) in _INTEGER_NAMES.items():
                to_integer = conversion.float_to_integer(integral, mode)
                yield _function(f"{float_name}2{integer_name}_{mode.value}", to_integer, f"{float_type} > {integer_type}")
                # 32 bits fit a double: the library has that conversion once, without a choice of direction.
                if not (float_type == "f64" and integer_type in ("i32", "u32")):
                    to_float = conversion.integer_to_float(floating, mode)
                    yield _function(f"{integer_name}2{float_name}_{mode.value}", to_float, f"{integer_type} > {float_type}")


def _table() -> dict[str, LibdeviceFunction]:
    functions = [_function(*row) for row in _SINGLE]
    functions += [*_float_functions(), *_directed_functions(), *_conversions()]
    return {function.symbol: function for function in functions}


LIBDEVICE: dict[str, LibdeviceFunction] = _table()
