"""Statements that touch memory: loads by strides or by gathered indices, with and without masks; stores; atomics."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import COMPUTE, Builder, Environment, Variable, random_shape, to_tile
from tests.fuzz.reference import INTEGERS, Tile, float_binary, integer_binary, is_float, wrap

AXES = ("[:, None, None]", "[None, :, None]", "[None, None, :]")


def axis_text(axis: int, shape: tuple[int, ...]) -> str:
    """``tl.arange`` along one axis of a tile."""
    places = {1: ("",), 2: ("[:, None]", "[None, :]"), 3: AXES}[len(shape)]
    return f"tl.arange(0, {shape[axis]}){places[axis]}"


def axis_index(axis: int, shape: tuple[int, ...]) -> np.ndarray:
    """The same as an array of the tile's shape."""
    return np.indices(shape)[axis]


def layout(build: Builder, shape: tuple[int, ...]) -> tuple[str, np.ndarray, int]:
    """A random strided layout of distinct places: (text of the offsets, their values, how many places)."""
    order = list(range(len(shape)))
    build.random.shuffle(order)
    strides, size = [0] * len(shape), build.random.choice((1, 1, 2, 3))
    for axis in order:
        strides[axis] = size
        size = size * shape[axis] + build.random.choice((0, 0, 1, 5))
    reversed_axes = [build.chance(0.2) for _ in shape]
    terms, values = [], np.zeros(shape, int)
    for axis, stride in enumerate(strides):
        position = axis_text(axis, shape)
        index = axis_index(axis, shape)
        if reversed_axes[axis]:
            position, index = f"({shape[axis] - 1} - {position})", shape[axis] - 1 - index
        terms.append(f"{position} * {stride}")
        values = values + index * stride
    return " + ".join(terms), values, int(values.max()) + 1


def random_mask(build: Builder, shape: tuple[int, ...]) -> tuple[str, np.ndarray] | None:
    """A mask of odd bounds, a parity, or none."""
    kind = build.random.choices(("none", "bound", "box", "parity", "false"), (8, 4, 3, 2, 1))[0]
    axis = build.random.randrange(len(shape))
    text, index = axis_text(axis, shape), axis_index(axis, shape)
    if kind == "none":
        return None
    if kind == "false":
        return f"({text} < 0) & ({axis_text(0, shape)} >= 0)", np.zeros(shape, bool)
    bound = build.random.randint(0, shape[axis])
    if kind == "parity":
        return f"({text} % 3 != {bound % 3})", index % 3 != bound % 3
    mask, values = f"({text} < {bound})", index < bound
    if kind == "box":
        other = build.random.randrange(len(shape))
        low = build.random.randint(0, shape[other])
        mask, values = f"{mask} & ({axis_text(other, shape)} >= {low})", values & (axis_index(other, shape) >= low)
    return mask, values


def add_load(build: Builder, dtype: str | None = None, shape: tuple[int, ...] | None = None, role: str = "") -> Variable:
    """A tile from memory."""
    dtype = dtype or build.random.choice((*COMPUTE, "int1", "fp8e5", "fp8e4nv"))
    shape = shape or random_shape(build.random)
    role = role or build.random.choice(("values", "values", "small"))
    if build.chance(0.3):
        size = int(np.prod(shape))
        where = build.random.choice((size, 7, 100))
        indices = build.buffer("int32", size, "indices", where)
        source = build.buffer(dtype, where, role)
        flat, places, _ = layout_contiguous(shape)
        text = f"{source.name} + tl.load({indices.name} + {flat})"

        def addresses(environment: Environment) -> np.ndarray:
            return environment[indices.name].astype(int)[places]
    else:
        offsets, places, size = layout(build, shape)
        stride = size if build.programs > 1 and build.chance(0.5) else 0
        source = build.buffer(dtype, size + stride * (build.programs - 1), role)
        text = f"{source.name} + pid * {stride} + {offsets}" if stride else f"{source.name} + {offsets}"

        def addresses(environment: Environment) -> np.ndarray:
            return places + environment["pid"] * stride

    mask = random_mask(build, shape)
    other = build.random.choice((None, 0, 1)) if mask and not dtype.startswith("fp8") else None
    if mask:
        text += f", {mask[0]}" + ("" if other is None else f", other={other}")

    def meaning(environment: Environment) -> Tile:
        tile = to_tile(environment[source.name][addresses(environment)], dtype)
        if mask:
            blank = np.zeros(shape, tile.data.dtype) + (other or 0) if dtype != "int1" else np.full(shape, bool(other))
            tile.data = np.where(mask[1], tile.data, blank)
        return tile

    return build.add(f"tl.load({text})", dtype, shape, meaning)


def add_descriptor_load(build: Builder) -> Variable:
    """A block of a matrix by a tensor descriptor, perhaps partly outside: there it reads 0."""
    dtype = build.random.choice(("int8", "int32", "fp16", "bf16", "fp32", "fp64"))
    itemsize = {"int8": 1, "int32": 4, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}[dtype]
    rows, columns = build.random.randint(1, 20), build.random.randint(1, 40)
    pitch = -(-columns * itemsize // 16) * 16 // itemsize
    shape = (build.random.choice((1, 2, 8, 16)), max(build.random.choice((4, 8, 16)), 16 // itemsize))
    place = (build.random.randint(-3, 20), build.random.randint(-5, 40))
    source = build.buffer(dtype, rows * pitch, "values")
    made = f"tl.make_tensor_descriptor({source.name}, [{rows}, {columns}], [{pitch}, 1], {list(shape)})"

    def meaning(environment: Environment) -> Tile:
        matrix = to_tile(environment[source.name].reshape(rows, pitch), dtype).data
        block = np.zeros(shape, matrix.dtype)
        for row, column in np.ndindex(*shape):
            if 0 <= row + place[0] < rows and 0 <= column + place[1] < columns:
                block[row, column] = matrix[row + place[0], column + place[1]]
        return Tile(dtype, block)

    return build.add(f"{made}.load([{place[0]}, {place[1]}])", dtype, shape, meaning)


def layout_contiguous(shape: tuple[int, ...]) -> tuple[str, np.ndarray, int]:
    """Row-major offsets."""
    size = int(np.prod(shape))
    strides = np.array([int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))])
    text = " + ".join(f"{axis_text(axis, shape)} * {stride}" for axis, stride in enumerate(strides))
    return text, np.arange(size).reshape(shape), size


def add_scalar(build: Builder, dtype: str | None = None) -> Variable:
    """A scalar from memory."""
    dtype = dtype or build.random.choice((*COMPUTE, "int32", "int32"))
    source = build.buffer(dtype, 5, build.random.choice(("values", "small")))
    place = build.random.randrange(5)
    return build.add(
        f"tl.load({source.name} + {place})", dtype, (), lambda environment: to_tile(environment[source.name][place], dtype).like(np.asarray)
    )


def add_store(build: Builder, variable: Variable) -> None:
    """Write a tile to a buffer of its own, a part for each program."""
    shape = variable.shape
    if not shape:
        target = build.buffer(variable.dtype, build.programs, "output")
        build.line(f"tl.store({target.name} + pid, {variable.name})")

        def store_scalar(environment: Environment) -> None:
            put(environment, target.name, np.array(environment["pid"]), environment[variable.name], np.array(True))

        build.statements.append(store_scalar)
        return
    scattered = build.chance(0.2)
    if scattered:
        size = int(np.prod(shape))
        indices = build.buffer("int32", size, "permutation")
        flat, places, _ = layout_contiguous(shape)
        offsets = f"tl.load({indices.name} + {flat})"
    else:
        offsets, places, size = layout(build, shape)
    target = build.buffer(variable.dtype, size * build.programs, "output")
    mask = random_mask(build, shape) if build.chance(0.35) else None
    build.line(f"tl.store({target.name} + pid * {size} + {offsets}, {variable.name}{', ' + mask[0] if mask else ''})")

    def store(environment: Environment) -> None:
        where = environment[indices.name].astype(int)[places] if scattered else places
        put(
            environment,
            target.name,
            where + environment["pid"] * size,
            environment[variable.name],
            mask[1] if mask else np.full(shape, True),
        )

    build.statements.append(store)


def put(environment: Environment, name: str, places: np.ndarray, tile: Tile, mask: np.ndarray) -> None:
    """Write into the reference's copy of an output: values, and error bounds beside them."""
    data, error = environment[name]
    data[places[mask]] = tile.data[mask]
    error[places[mask]] = 0.0 if tile.error is None else tile.error[mask]


_ATOMICS = {"add": "+", "max": "max", "min": "min", "and": "&", "or": "|", "xor": "^"}


def add_atomic(build: Builder) -> None:
    """An atomic on few words (many elements a word), or on one word for each element with the old value kept."""
    variable = build.pick(dtypes=("int32", "uint32", "int64", "uint64", "fp32"), exact=True)
    if variable is None or build.depth:
        return
    kind = "add" if is_float(variable.dtype) else build.random.choice(tuple(_ATOMICS))
    shape, size = variable.shape, int(np.prod(variable.shape))
    unique = build.chance(0.5)
    words = size if unique else build.random.choice((1, 3, 8))
    target = build.buffer(variable.dtype, words * build.programs, "output")
    flat, places, _ = layout_contiguous(shape)
    mask = random_mask(build, shape) if build.chance(0.5) else None
    call = f"tl.atomic_{kind}({target.name} + pid * {words} + ({flat}) % {words}, {variable.name}{', mask=' + mask[0] if mask else ''})"
    old = build.fresh("old") if unique and not mask else None
    build.line(f"{old} = {call}" if old else call)
    chosen = (mask[1] if mask else np.full(shape, True)).reshape(-1)

    def run(environment: Environment) -> None:
        data, error = environment[target.name]
        values = environment[variable.name].data.reshape(-1)
        before = []
        for place, value, on in zip((places % words + environment["pid"] * words).reshape(-1), values, chosen, strict=True):
            before.append(data[place])
            if on:
                data[place], error[place] = _update(variable.dtype, kind, data[place], value, error[place], words < size)
        if old:
            kept = np.empty(size, object)
            kept[:] = before
            environment[old] = Tile(variable.dtype, kept.astype(np.float64 if is_float(variable.dtype) else object).reshape(shape))

    build.statements.append(run)
    if old:
        build.variables.append(Variable(old, variable.dtype, shape))


def _update(dtype: str, kind: str, before, value, error: float, shared: bool) -> tuple:
    """One word after one atomic: (content, error bound)."""
    if is_float(dtype):
        tiles = [Tile(dtype, np.array(float(item))) for item in (before, value)]
        total = float_binary("+", *tiles)
        tiny = any(0 < abs(float(item)) < 2.0**-125 for item in (before, value, total.data))
        bad = not np.isfinite(total.data) and np.isfinite(before) and np.isfinite(value)
        magnitude = abs(float(before)) + abs(float(value))
        grown = error + magnitude * 2.0**-23 if shared else error
        return float(total.data), np.inf if bad else grown + (2.0**-125 if tiny else 0.0)
    operands = [Tile(dtype, np.array([item], object)) for item in (before, value)]
    return integer_binary(_ATOMICS[kind], *operands).data[0], error


def blank_output(dtype: str, size: int) -> np.ndarray:
    """What an output holds before the launch."""
    if dtype == "int1":
        return np.arange(size) % 2 == 0
    if is_float(dtype):
        return ((np.arange(size) % 5) * 0.25 - 0.5).astype(np.float64)
    return wrap(np.arange(size) % 7 * 11, dtype) if dtype in INTEGERS else np.zeros(size)
