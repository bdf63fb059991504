"""Statements that compute on tiles: arithmetic, comparisons, conversions, math, shapes."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import COMPUTE, TRITON_NAMES, Builder, Environment, Variable, random_shape
from tests.fuzz.memory_statements import add_load, add_scalar, axis_index, axis_text
from tests.fuzz.reference import (
    FLOATS,
    INTEGERS,
    MATH,
    Tile,
    bits_of,
    compare,
    convert,
    elementwise,
    float_binary,
    float_extremum,
    flushed,
    fused_multiply_add,
    integer_binary,
    is_float,
    math_function,
    rounded,
    wrap,
)

REAL = ("fp16", "bf16", "fp32", "fp64")


def get(environment: Environment, variable: Variable) -> Tile:
    """A variable's value, in its own shape."""
    return environment[variable.name]


def second(build: Builder, a: Variable, exact: bool = False) -> Variable:
    """An operand to stand beside ``a``: one that is there, a new one from memory, or rarely ``a`` itself."""
    if build.chance(0.03):
        return a
    found = build.partner(a, exact) if build.chance(0.7) else None
    if found is not None:
        return found
    return add_load(build, a.dtype, a.shape) if a.shape else add_scalar(build, a.dtype)


def add_binary(build: Builder, target: Variable | None = None) -> Variable | None:
    """``a op b``; for integers also division, bits and shifts."""
    a = target or build.pick(tile=False)
    if a is None:
        return None
    b = second(build, a)
    exact = a.exact and b.exact
    if is_float(a.dtype):
        symbol = build.random.choice(("+", "-", "*", "/", "min", "max") if a.dtype in ("fp32", "fp64") else ("+", "-", "*", "min", "max"))
        if symbol in ("min", "max"):
            text = f"tl.{symbol}imum({a.name}, {b.name})"
            return build.add(text, a.dtype, a.shape, lambda e: float_extremum(symbol == "max", get(e, a), get(e, b)), exact)
        return build.add(f"{a.name} {symbol} {b.name}", a.dtype, a.shape, lambda e: float_binary(symbol, get(e, a), get(e, b)), exact)
    symbol = build.random.choice(("+", "-", "*", "&", "|", "^", "//", "%", "<<", ">>", "min", "max"))
    right = b.name
    prepare = lambda tile: tile  # noqa: E731
    if symbol in ("//", "%"):
        right = f"({b.name} | 1)"
        prepare = lambda tile: Tile(tile.dtype, wrap(elementwise(lambda y: y | 1, tile.data), tile.dtype))  # noqa: E731
    elif symbol in ("<<", ">>"):
        top = bits_of(a.dtype) - 1
        right = f"({b.name} & {top})"
        prepare = lambda tile: Tile(tile.dtype, elementwise(lambda y: y & top, tile.data))  # noqa: E731
    text = f"tl.{symbol}imum({a.name}, {b.name})" if symbol in ("min", "max") else f"{a.name} {symbol} {right}"
    return build.add(text, a.dtype, a.shape, lambda e: integer_binary(symbol, get(e, a), prepare(get(e, b))))


def add_unary(build: Builder) -> Variable | None:
    """Negation, ``~``, ``abs``, ``floor``, ``ceil`` and functions."""
    a = build.pick(tile=False)
    if a is None:
        return None
    if not is_float(a.dtype):
        kind = build.random.choice(("-", "~", "abs"))
        functions = {"-": lambda x: -x, "~": lambda x: ~x, "abs": abs}
        text = f"tl.abs({a.name})" if kind == "abs" else f"{kind}{a.name}"
        return build.add(text, a.dtype, a.shape, lambda e: Tile(a.dtype, wrap(elementwise(functions[kind], get(e, a).data), a.dtype)))
    zero = rounded(np.zeros(()), a.dtype)
    if build.chance(0.5):
        return build.add(f"tl.abs({a.name})", a.dtype, a.shape, lambda e: Tile(a.dtype, np.abs(get(e, a).data), get(e, a).error), a.exact)
    # Not -a: what that makes of +0 depends on the version of Triton.
    return build.add(f"0.0 - {a.name}", a.dtype, a.shape, lambda e: float_binary("-", Tile(a.dtype, zero), get(e, a)), a.exact)


def add_math(build: Builder) -> Variable | None:
    """A function of fp32 or fp64: ``floor``, ``ceil``, ``fma``, ``clamp``, or one that is only near."""
    a = build.pick(dtypes=("fp32", "fp64"), exact=True, tile=False)
    if a is None:
        return None
    name = build.random.choice((*MATH, "floor", "ceil", "floor", "fma", "clamp", "clamp"))
    if name in ("floor", "ceil"):
        function = getattr(np, name)
        return build.add(f"tl.{name}({a.name})", a.dtype, a.shape, lambda e: Tile(a.dtype, function(flushed(get(e, a).data, a.dtype))))
    if name == "clamp":
        low, high = build.random.choice(((-1.0, 2.0), (0.0, 6.0)))

        def clamp(environment: Environment) -> Tile:
            limits = [Tile(a.dtype, np.array(limit)) for limit in (low, high)]
            return float_extremum(False, float_extremum(True, get(environment, a), limits[0]), limits[1])

        return build.add(f"tl.clamp({a.name}, {low}, {high})", a.dtype, a.shape, clamp)
    if name == "fma":
        b, c = second(build, a, exact=True), second(build, a, exact=True)
        if not b.shape == c.shape == a.shape:
            return None
        text = f"tl.fma({a.name}, {b.name}, {c.name})"
        return build.add(text, a.dtype, a.shape, lambda e: fused_multiply_add(get(e, a), get(e, b), get(e, c)))
    return build.add(f"tl.{name}({a.name})", a.dtype, a.shape, lambda e: math_function(name, get(e, a)), False)


def add_where(build: Builder) -> Variable | None:
    """A comparison, and a choice by it."""
    left = build.pick(exact=True, tile=False)
    if left is None:
        return None
    right = second(build, left, exact=True)
    symbol = build.random.choice(("<", "<=", ">", ">=", "==", "!="))
    mask = build.add(
        f"{left.name} {symbol} {right.name}",
        "int1",
        left.shape,
        lambda e: compare(symbol, get(e, left), get(e, right)) if left.shape else _scalar(symbol, left, right, e),
    )
    a = build.pick(test=lambda other: other.shape == left.shape, tile=False)
    if a is None or not left.shape:
        return mask
    b = second(build, a)

    def choose(environment: Environment) -> Tile:
        condition, x, y = (get(environment, variable) for variable in (mask, a, b))
        data = np.where(condition.data, x.data, y.data)
        errors = [np.zeros(tile.shape) if tile.error is None else tile.error for tile in (x, y)]
        exact = x.error is None and y.error is None
        return Tile(a.dtype, data, None if exact else np.where(condition.data, *errors))

    return build.add(f"tl.where({mask.name}, {a.name}, {b.name})", a.dtype, a.shape, choose, a.exact and b.exact)


def _scalar(symbol: str, left: Variable, right: Variable, environment: Environment) -> Tile:
    tile = compare(symbol, get(environment, left), get(environment, right))
    return Tile("int1", np.asarray(tile.data))


def add_logic(build: Builder) -> Variable | None:
    """``&``, ``|``, ``^`` of masks, or ``~`` of one."""
    a = build.pick(dtypes=("int1",))
    if a is None:
        return None
    b = second(build, a)
    symbol = build.random.choice("&|^~")
    functions = {"&": np.logical_and, "|": np.logical_or, "^": np.logical_xor}
    if symbol == "~":
        return build.add(f"~{a.name}", "int1", a.shape, lambda e: Tile("int1", ~get(e, a).data))
    return build.add(
        f"{a.name} {symbol} {b.name}", "int1", a.shape, lambda e: Tile("int1", functions[symbol](get(e, a).data, get(e, b).data))
    )


def add_convert(build: Builder, dtype: str | None = None, source: Variable | None = None) -> Variable | None:
    """``a.to(dtype)``."""
    a = source or build.pick(dtypes=(*COMPUTE, "int1", "fp8e5", "fp8e4nv"), tile=False)
    if a is None:
        return None
    choices = list(COMPUTE)
    if is_float(a.dtype):
        if not a.exact:
            choices = list(REAL)
        if a.dtype.startswith("fp8"):
            choices = ["fp16", "fp32"]  # e5m2 to bf16 makes infinity finite, on the GPU and here
        elif a.dtype != "fp64":
            choices += ["fp8e5", "fp8e4nv"]
    target = dtype or build.random.choice([choice for choice in choices if choice != a.dtype])
    if target not in choices:
        return None
    exact = a.exact and not (is_float(target) and not a.exact)
    return build.add(f"{a.name}.to(tl.{TRITON_NAMES.get(target, target)})", target, a.shape, lambda e: convert(get(e, a), target), exact)


def add_source(build: Builder) -> Variable:
    """A range or a constant."""
    shape = random_shape(build.random)
    if build.chance(0.5):
        axis = build.random.randrange(len(shape))
        start = build.random.choice((0, 0, 1, 5))
        others = " + ".join(f"0 * {axis_text(other, shape)}" for other in range(len(shape)) if other != axis)
        text = f"{axis_text(axis, shape)} + {start}" + (f" + {others}" if others else "")
        return build.add(text, "int32", shape, lambda e: Tile("int32", (axis_index(axis, shape) + start).astype(object)))
    dtype = build.random.choice(COMPUTE)
    if is_float(dtype):
        value = build.random.choice((0.0, 1.0, -1.5, 0.1, 3.25, float("inf")))
        text = f'float("{value}")' if value == float("inf") else repr(value)
        constant = rounded(np.array(value), dtype)
    else:
        value = build.random.choice((0, 1, 3, 100, 127))
        text, constant = repr(value), np.array(value, object)
    full = f"tl.full({list(shape)}, {text}, tl.{TRITON_NAMES.get(dtype, dtype)})"
    return build.add(full, dtype, shape, lambda e: Tile(dtype, np.broadcast_to(constant, shape)))


def add_shape(build: Builder) -> Variable | None:
    """Transpose, reshape, broadcast, new dimensions, join, split, interleave, flip."""
    a = build.pick(dtypes=(*COMPUTE, "int1"))
    if a is None:
        return None
    size = int(np.prod(a.shape))
    kind = build.random.choice(("trans", "reshape", "expand", "broadcast", "join", "split", "interleave", "flip", "ravel"))

    def moved(text: str, shape: tuple[int, ...], function) -> Variable:
        return build.add(text, a.dtype, shape, lambda e: get(e, a).like(function), a.exact)

    if kind == "trans" and len(a.shape) > 1:
        order = list(range(len(a.shape)))
        build.random.shuffle(order)
        return moved(f"tl.permute({a.name}, {order})", tuple(a.shape[axis] for axis in order), lambda x: x.transpose(order))
    if kind == "reshape":
        shape = build.random.choice(
            [shape for shape in ((size,), (size // 2, 2), (2, size // 2), (1, size), (size, 1)) if np.prod(shape) == size]
        )
        return moved(f"tl.reshape({a.name}, {list(shape)})", shape, lambda x: x.reshape(shape))
    if kind == "ravel":
        return moved(f"tl.ravel({a.name})", (size,), lambda x: x.reshape(-1))
    if kind == "expand" and len(a.shape) < 3:
        axis = build.random.randrange(len(a.shape) + 1)
        return moved(f"tl.expand_dims({a.name}, {axis})", a.shape[:axis] + (1,) + a.shape[axis:], lambda x: np.expand_dims(x, axis))
    if kind == "broadcast" and 1 in a.shape and size <= 64:
        shape = tuple(4 if n == 1 else n for n in a.shape)
        return moved(f"tl.broadcast_to({a.name}, {list(shape)})", shape, lambda x: np.broadcast_to(x, shape))
    if kind == "split" and a.shape[-1] == 2 and len(a.shape) > 1:
        return _split(build, a)
    if kind == "flip" and a.dtype != "int1" and a.shape[-1] > 1:
        return moved(f"tl.flip({a.name}, {len(a.shape) - 1})", a.shape, lambda x: x[..., ::-1])
    b = build.pick(dtypes=(a.dtype,), test=lambda other: other.shape == a.shape)
    if kind not in ("join", "interleave") or b is None or size > 128 or len(a.shape) > 2:
        return None
    shape = (*a.shape, 2) if kind == "join" else (*a.shape[:-1], 2 * a.shape[-1])

    def together(environment: Environment) -> Tile:
        x, y = get(environment, a), get(environment, b)
        errors = [np.zeros(tile.shape) if tile.error is None else tile.error for tile in (x, y)]
        exact = x.error is None and y.error is None
        data = np.stack([x.data, y.data], axis=-1).reshape(shape)
        return Tile(a.dtype, data, None if exact else np.stack(errors, axis=-1).reshape(shape))

    return build.add(f"tl.{kind}({a.name}, {b.name})", a.dtype, shape, together, a.exact and b.exact)


def _split(build: Builder, a: Variable) -> Variable:
    """Both halves of a tile whose last dimension is 2."""
    names = (build.fresh("half"), build.fresh("half"))
    build.line(f"{names[0]}, {names[1]} = tl.split({a.name})")

    def run(environment: Environment) -> None:
        for side, name in enumerate(names):
            environment[name] = get(environment, a).like(lambda x, side=side: x[..., side])

    build.statements.append(run)
    halves = [Variable(name, a.dtype, a.shape[:-1], a.exact) for name in names]
    build.variables += halves
    return halves[0]


def add_bitcast(build: Builder) -> Variable | None:
    """The same bits as another type of the width."""
    a = build.pick(exact=True)
    pairs = {"fp16": "int16", "fp32": "int32", "fp64": "int64", "int16": "bf16", "int32": "fp32", "int64": "fp64", "bf16": "uint16"}
    if a is None or a.dtype not in pairs:
        return None
    target = pairs[a.dtype]
    native = {name: np.dtype(name) for name in INTEGERS} | FLOATS

    def cast(environment: Environment) -> Tile:
        data = get(environment, a).data
        with np.errstate(all="ignore"):
            raw = data.astype(np.float32).astype(native[a.dtype]) if a.dtype == "bf16" else data.astype(native[a.dtype])
        bits = np.ascontiguousarray(raw).view(native[target])
        return Tile(target, bits.astype(np.float64) if is_float(target) else bits.astype(object))

    if is_float(a.dtype):  # a NaN's bits are free, so it becomes 0 first
        a = build.add(
            f"tl.where({a.name} == {a.name}, {a.name}, 0.0)",
            a.dtype,
            a.shape,
            lambda e, b=a: Tile(b.dtype, np.where(np.isnan(get(e, b).data), 0, get(e, b).data)),
        )
    return build.add(f"{a.name}.to(tl.{TRITON_NAMES.get(target, target)}, bitcast=True)", target, a.shape, cast)


def add_call(build: Builder) -> Variable | None:
    """A call that is not inlined and returns early, on two scalars."""
    a = build.pick(dtypes=("int32",), tile=False, test=lambda variable: not variable.shape)
    if a is None:
        return None
    b = second(build, a)

    def call(environment: Environment) -> Tile:
        x, y = int(get(environment, a).data), int(get(environment, b).data)
        return Tile("int32", wrap(np.array(x - y if x > y else x * y if x == 3 else y, object), "int32"))

    return build.add(f"early({a.name}, {b.name})", "int32", (), call)
