"""Statements in which elements meet: reductions, scans, sort, gather, histogram, matrix products."""

from __future__ import annotations

import functools

import numpy as np

from tests.fuzz.builder import TRITON_NAMES, Builder, Environment, Variable
from tests.fuzz.memory_statements import add_load
from tests.fuzz.reference import (
    INTEGERS,
    Tile,
    bits_of,
    elementwise,
    float_extremum,
    integer_binary,
    is_float,
    is_unsigned,
    rounded,
    settle,
    unit,
    wrap,
)
from tests.fuzz.tile_statements import REAL, get

COMBINES = """@triton.jit
def combine_multiply(x, y):
    return x * y


@triton.jit
def combine_or(x, y):
    return x | y


@triton.jit
def combine_affine(scale, shift, other_scale, other_shift):
    return scale * other_scale, shift * other_scale + other_shift


@triton.jit(noinline=True)
def early(x, y):
    if x > y:
        return x - y
    if x == 3:
        return x * y
    return y


"""


def promoted(dtype: str) -> str:
    """The type in which ``tl.sum`` and ``tl.max`` work on small integers."""
    if is_float(dtype) or bits_of(dtype) >= 32:
        return dtype
    return "uint32" if is_unsigned(dtype) else "int32"


def fold(kind: str, data: np.ndarray, dtype: str, axis: int) -> np.ndarray:
    """Reduce integers exactly."""
    parts = [np.take(data, position, axis) for position in range(data.shape[axis])]
    symbol = {"sum": "+", "max": "max", "min": "min", "xor_sum": "^", "multiply": "*", "or": "|"}[kind]
    return functools.reduce(lambda x, y: integer_binary(symbol, Tile(dtype, x), Tile(dtype, y)).data, parts)


def float_sum(tile: Tile, axis: int, running: bool, reverse: bool = False) -> Tile:
    """A sum in any order, with a bound for every order."""
    flip = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
    count = tile.shape[axis]
    with np.errstate(all="ignore"):
        add = (lambda x: flip(np.cumsum(flip(x), axis))) if running else (lambda x: np.sum(x, axis))
        total, magnitude = add(tile.data), add(np.abs(tile.data))
        error = (add(tile.error) if tile.error is not None else 0.0) + (count + 2) * unit(magnitude, tile.dtype)
        result = rounded(total, tile.dtype)
        small = settle(magnitude, np.broadcast_to(error, magnitude.shape), tile.dtype).error
        # An operand that is infinite or NaN decides in every order; finite ones that may overflow on the way don't.
        special = ~np.isfinite(add(np.where(np.isfinite(tile.data), 0.0, tile.data))) & np.isfinite(
            np.broadcast_to(error if tile.error is not None else 0.0, total.shape)
        )
        finite_part = add(np.where(np.isfinite(tile.data), np.abs(tile.data), 0.0))
        safe = special & (finite_part < rounded(np.array(6e4 if tile.dtype == "fp16" else 1e38), tile.dtype))
        return Tile(tile.dtype, result, np.where(safe, 0.0, small))


def add_reduction(build: Builder) -> Variable | None:
    """Sum, extrema, positions, parity, or a custom combine, along one axis or all."""
    a = build.pick(dtypes=(*INTEGERS, *REAL))
    if a is None:
        return None
    axis = build.random.randrange(len(a.shape))
    shape = a.shape[:axis] + a.shape[axis + 1 :]
    if is_float(a.dtype):
        kind = build.random.choice(("sum", "max", "min", "argmax", "argmin"))
        if kind == "sum":
            return build.add(f"tl.sum({a.name}, {axis})", a.dtype, shape, lambda e: float_sum(get(e, a), axis, False), False)
        if kind in ("max", "min"):

            def extremum(environment: Environment) -> Tile:
                tile = get(environment, a)
                parts = [tile.like(lambda x, position=position: np.take(x, position, axis)) for position in range(a.shape[axis])]
                return functools.reduce(lambda x, y: float_extremum(kind == "max", x, y), parts)

            return build.add(f"tl.{kind}({a.name}, {axis})", a.dtype, shape, extremum, a.exact)
    else:
        kind = build.random.choice(("sum", "max", "min", "xor_sum", "argmax", "argmin", "multiply", "or"))
    if kind.startswith("arg"):
        return _position(build, a, kind, axis, shape)
    if kind in ("multiply", "or"):
        text, dtype = f"tl.reduce({a.name}, {axis}, combine_{kind})", a.dtype
    else:
        text = f"tl.{kind}({a.name}, {axis})"
        dtype = a.dtype if kind == "xor_sum" else promoted(a.dtype)
    return build.add(text, dtype, shape, lambda e: Tile(dtype, fold(kind, get(e, a).data, dtype, axis)))


def _position(build: Builder, a: Variable, kind: str, axis: int, shape: tuple[int, ...]) -> Variable | None:
    """``argmax`` or ``argmin``, the first of equals; without NaN, for which the order of comparisons decides."""
    if not a.exact:
        return None
    if is_float(a.dtype):
        a = without_nan(build, a)
    function = np.argmax if kind == "argmax" else np.argmin
    return build.add(
        f"tl.{kind}({a.name}, {axis})", "int32", shape, lambda e: Tile("int32", np.asarray(function(get(e, a).data, axis)).astype(object))
    )


def without_nan(build: Builder, a: Variable) -> Variable:
    """The tile with 1.0 for NaN, and one kind of zero."""

    def clean(environment: Environment) -> Tile:
        data = get(environment, a).data
        return Tile(a.dtype, np.where(np.isnan(data), 1.0, data) + 0.0)

    return build.add(f"tl.where({a.name} == {a.name}, {a.name}, 1.0) + 0.0", a.dtype, a.shape, clean)


def add_scan(build: Builder) -> Variable | None:
    """``cumsum``, ``cumprod`` of integers, or an associative scan of one or two tiles."""
    a = build.pick(dtypes=("int32", "uint32", "int64", *REAL))
    if a is None:
        return None
    axis, reverse = build.random.randrange(len(a.shape)), build.chance(0.3)
    options = ", reverse=True" if reverse else ""
    if is_float(a.dtype):
        if a.dtype == "bf16":
            return None
        return build.add(
            f"tl.cumsum({a.name}, {axis}{options})", a.dtype, a.shape, lambda e: float_sum(get(e, a), axis, True, reverse), False
        )
    kind = build.random.choice(("cumsum", "cumprod", "or", "affine"))
    if kind == "affine":
        return _affine_scan(build, a, axis, reverse)
    symbol = {"cumsum": "+", "cumprod": "*", "or": "|"}[kind]
    text = f"tl.associative_scan({a.name}, {axis}, combine_or{options})" if kind == "or" else f"tl.{kind}({a.name}, {axis}{options})"

    def scan(environment: Environment) -> Tile:
        data = get(environment, a).data
        data = np.flip(data, axis) if reverse else data
        parts = [np.take(data, 0, axis)]
        for position in range(1, a.shape[axis]):
            parts.append(integer_binary(symbol, Tile(a.dtype, parts[-1]), Tile(a.dtype, np.take(data, position, axis))).data)
        result = np.stack(parts, axis)
        return Tile(a.dtype, np.flip(result, axis) if reverse else result)

    return build.add(text, a.dtype, a.shape, scan)


def _affine_scan(build: Builder, a: Variable, axis: int, reverse: bool) -> Variable:
    """A scan of pairs whose combine does not commute: composition of maps ``x * scale + shift``."""
    b = build.pick(dtypes=(a.dtype,), test=lambda other: other.shape == a.shape) or a
    names = (build.fresh("scan"), build.fresh("scan"))
    build.line(
        f"{names[0]}, {names[1]} = tl.associative_scan(({a.name}, {b.name}), {axis}, combine_affine{', reverse=True' if reverse else ''})"
    )

    def run(environment: Environment) -> None:
        scales, shifts = (np.flip(get(environment, x).data, axis) if reverse else get(environment, x).data for x in (a, b))
        results = [(np.take(scales, 0, axis), np.take(shifts, 0, axis))]
        for position in range(1, a.shape[axis]):
            scale, shift = np.take(scales, position, axis), np.take(shifts, position, axis)
            before = results[-1]
            results.append((wrap(before[0] * scale, a.dtype), wrap(before[1] * scale + shift, a.dtype)))
        for side, name in enumerate(names):
            data = np.stack([pair[side] for pair in results], axis)
            environment[name] = Tile(a.dtype, np.flip(data, axis) if reverse else data)

    build.statements.append(run)
    made = [Variable(name, a.dtype, a.shape) for name in names]
    build.variables += made
    return made[1]


def add_rearrangement(build: Builder) -> Variable | None:
    """``sort``, ``gather`` or ``histogram``."""
    a = build.pick(exact=True, dtypes=(*INTEGERS, *REAL))
    if a is None:
        return None
    kind = build.random.choice(("sort", "gather", "histogram"))
    axis = len(a.shape) - 1
    if kind == "sort":
        if is_float(a.dtype):
            a = without_nan(build, a)
        descending = build.chance(0.5)
        text = f"tl.sort({a.name}, {axis}, descending={descending})"
        return build.add(text, a.dtype, a.shape, lambda e: Tile(a.dtype, np.sort(get(e, a).data, axis)[..., :: -1 if descending else 1]))
    if kind == "gather":
        axis = build.random.randrange(len(a.shape))
        count = a.shape[axis]
        indices = _indices(build, a.shape, count)
        return build.add(
            f"tl.gather({a.name}, {indices.name}, {axis})",
            a.dtype,
            a.shape,
            lambda e: get(e, a).like(lambda x: np.take_along_axis(x, get(e, indices).data.astype(np.int64), axis)),
        )
    if a.dtype != "int32" or len(a.shape) != 1 or a.shape[0] < 2:
        return None
    bins = build.random.choice((2, 8, 32))
    bounded = build.add(
        f"{a.name} & {bins - 1}", "int32", a.shape, lambda e: Tile("int32", elementwise(lambda x: x & (bins - 1), get(e, a).data))
    )
    return build.add(
        f"tl.histogram({bounded.name}, {bins})",
        "int32",
        (bins,),
        lambda e: Tile("int32", np.bincount(get(e, bounded).data.astype(np.int64), minlength=bins).astype(object)),
    )


def _indices(build: Builder, shape: tuple[int, ...], count: int) -> Variable:
    source = add_load(build, "int32", shape, "values")
    return build.add(
        f"{source.name} & {count - 1}", "int32", shape, lambda e: Tile("int32", elementwise(lambda x: x & (count - 1), get(e, source).data))
    )


def add_dot(build: Builder) -> Variable:
    """A matrix product of two fresh tiles, of all types and precisions of the front end that have a plain meaning."""
    m, n, k = (build.random.choice((16, 32)) for _ in range(3))
    dtype = build.random.choice(("fp16", "bf16", "fp32", "fp32", "int8", "fp8e5", "fp8e4nv"))
    k = max(k, 32) if dtype == "int8" or dtype.startswith("fp8") else k
    a, b = add_load(build, dtype, (m, k), "small"), add_load(build, dtype, (k, n), "small")
    result = "int32" if dtype == "int8" else build.random.choice(("fp32", "fp32", "fp16")) if dtype == "fp16" else "fp32"
    precision = build.random.choice(("ieee", "tf32", "tf32x3")) if dtype == "fp32" else "ieee"
    c = add_load(build, result, (m, n), "small") if build.chance(0.5) else None
    text = f"tl.dot({a.name}, {b.name}" + (f", {c.name}" if c else "")
    text += f", input_precision='{precision}'" if dtype == "fp32" else ""
    text += f", out_dtype=tl.{TRITON_NAMES.get(result, result)}"

    def product(environment: Environment) -> Tile:
        x, y = get(environment, a).data, get(environment, b).data
        start = get(environment, c).data if c else np.zeros((m, n), int)
        if dtype == "int8":
            return Tile(result, wrap(x.dot(y) + start, result))
        magnitude = np.abs(x) @ np.abs(y) + np.abs(start)
        total = x @ y + start
        loose = {"tf32": 2.0**-9, "tf32x3": 2.0**-19}.get(precision, 0.0)
        error = magnitude * (loose + k * 2.0**-22) + unit(total, result) * (2 if result == "fp16" else 1)
        return settle(rounded(total, result), error, result)

    return build.add(text + ")", result, (m, n), product, dtype == "int8")
