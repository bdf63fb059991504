"""Programs whose result depends on more than one element: matrix products, reductions, scans, sorting, atomics."""

from __future__ import annotations

import numpy as np

from tests.gpu.programs import Program
from tests.gpu.values import DTYPES, edges, operand_sets, random_bits, random_values

_DOT = """@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    c = tl.load(c_ptr + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(a, b, c, input_precision=PRECISION, out_dtype=OUT))
"""
_SHAPES = {"mma": (16, 16, 32), "wgmma": (64, 32, 64)}


def _uniform(shape: tuple[int, ...], seed: int) -> np.ndarray:
    count = int(np.prod(shape))
    return ((random_bits(count, seed) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1).reshape(shape)


def _dot_operands(kind: str, element: str, result: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands that show one property. kind: random, identity (how A is read), alignment (what is lost beside a large term), special."""
    m, n, k = shape
    dtype, result_dtype = DTYPES[element], DTYPES[result]
    if result == "int32":
        a, b = (random_values("int8", size, seed).reshape(where) for size, where, seed in ((m * k, (m, k), 3), (k * n, (k, n), 4)))
        c = random_values("int32", m * n, 5).reshape(m, n)
        return a, b, c
    a, b, c = _uniform((m, k), 3), _uniform((k, n), 4), _uniform((m, n), 5)
    if kind == "identity":
        b, c = np.eye(k, n), np.zeros((m, n))
        with np.errstate(invalid="ignore"):
            values = random_values(element, m * k, 6).astype(np.float64)
        a = np.where(np.isfinite(values) & (np.abs(values) < 1e30), values, 1.0 / 3).reshape(m, k)
    elif kind == "alignment":
        # Row i: one term 2^(i mod 28), one of +1/3 or -1/3 at each other place, and C alternately zero, large or minus the large term.
        large = 2.0 ** (np.arange(m) % 14)
        a = np.where(np.arange(m) % 3 == 1, -1.0, 1.0)[:, None] * np.ones((m, k)) * 0.333251953125
        a[np.arange(m), np.arange(m) % k] = large
        b = np.ones((k, n))
        b[:, 1::2] = 2.0 ** (np.arange(k) % 5)[:, None]
        c = np.zeros((m, n))
        c[:, 2::4] = 2.0**14
        c[:, 3::4] = -large[:, None]
    elif kind == "special":
        pool = edges(element).astype(np.float64)
        a = np.where(
            random_bits(m * k, 7).reshape(m, k) % np.uint64(61) == 0, pool[random_bits(m * k, 8).reshape(m, k) % np.uint64(pool.size)], a
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return a.astype(dtype), b.astype(dtype), c.astype(result_dtype)


def dot_programs() -> list[Program]:
    """Products of each operand type, accumulator type and precision, small enough for mma and large enough for wgmma."""
    kinds = [("fp32", "fp32", precision) for precision in ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")]
    kinds += [
        ("fp16", "fp32", "tf32"),
        ("fp16", "fp16", "tf32"),
        ("bf16", "fp32", "tf32"),
        ("fp8e5", "fp32", "tf32"),
        ("fp8e4nv", "fp32", "tf32"),
    ]
    kinds += [("int8", "int32", "tf32"), ("fp64", "fp64", "ieee")]
    programs = []
    for element, result, precision in kinds:
        for unit, shape in _SHAPES.items():
            for probe in ("random",) if result == "int32" else ("random", "identity", "alignment", "special"):
                a, b, c = _dot_operands(probe, element, result, shape)
                type_name = {"fp32": "float32", "fp16": "float16", "fp64": "float64"}.get(result, result)
                constants = {"M": shape[0], "N": shape[1], "K": shape[2], "PRECISION": precision}
                text = _DOT.replace("OUT: tl.constexpr, ", "").replace("OUT", f"tl.{type_name}")
                out = np.zeros((shape[0], shape[1]), DTYPES[result])
                name = f"dot.{unit}.{element}.{result}.{precision}.{probe}"
                programs.append(Program(name, text, {"a": a, "b": b, "c": c}, {"out": out}, constants, labels={"out": name}))
    return programs


_REDUCE = """@triton.jit
def larger(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kernel(x_ptr, {outputs}, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R), tl.arange(0, C)
    x = tl.load(x_ptr + r[:, None] * C + c[None, :])
"""


def _rows(name: str, rows: int, columns: int, seed: int, special: bool) -> np.ndarray:
    raw = random_bits(rows * columns, seed)
    moderate = random_values(name, 2 * rows * columns, seed + 1)[rows * columns :]
    if special:
        pool = edges(name)
        chosen = pool[raw % np.uint64(pool.size)]
        moderate = np.where((raw >> np.uint64(20)) % np.uint64(3) == 0, chosen, moderate)
        if name[0] in "fb":
            half = rows // 2  # rows of nothing but zeros of both signs, some with a NaN
            zeros = np.where(raw >> np.uint64(40) & np.uint64(1), -0.0, 0.0).astype(DTYPES[name])
            zeros[::37] = np.nan
            moderate[half * columns :] = zeros[half * columns :]
    return moderate.reshape(rows, columns)


def reduce_programs() -> list[Program]:
    """Reductions, scans and sorts of rows, along the last axis."""
    programs = []
    for name in ("fp16", "bf16", "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"):
        for special in (False, True):
            rows, columns = 32, 16
            x = _rows(name, rows, columns, 11, special)
            is_float = name[0] in "fb"
            small = name in ("int8", "int16", "uint8")
            total = {"uint8": "uint32"}.get(name, "int32") if small else name
            listed = [("tl.max(x, 1)", name if not small else total), ("tl.min(x, 1)", name if not small else total)]
            if name in ("fp16", "bf16"):
                listed = [("tl.max(x, 1)", "fp32"), ("tl.min(x, 1)", "fp32")]
            listed += [("tl.argmax(x, 1)", "int32"), ("tl.argmin(x, 1)", "int32"), ("tl.sum(x, 1)", total)]
            if is_float and name != "bf16":
                listed += [("tl.reduce(x, 1, larger)", name), ("tl.reduce(x, 1, smaller)", name)]
            elif not is_float:
                listed += [("tl.xor_sum(x, 1)", name)]
            wide = [
                ("tl.cumsum(x, 1)", total if not is_float else name),
                ("tl.cumsum(x, 1, reverse=True)", total if not is_float else name),
            ]
            wide += [("tl.sort(x)", name), ("tl.sort(x, descending=True)", name)]
            outputs, lines, labels = {}, [], {}
            for number, (expression, kind) in enumerate([*listed, *wide]):
                output = f"out{number}"
                place = "r" if number < len(listed) else "r[:, None] * C + c[None, :]"
                lines.append(f"    tl.store({output} + {place}, {expression})")
                outputs[output] = np.zeros(rows if number < len(listed) else (rows, columns), DTYPES[kind])
                labels[output] = expression
            text = _REDUCE.format(outputs=", ".join(outputs)) + "\n".join(lines) + "\n"
            title = f"reduce.{name}.{'special' if special else 'plain'}"
            programs.append(Program(title, text, {"x": x}, outputs, {"R": rows, "C": columns}, labels=labels))
    return programs


_ATOMIC = """@triton.jit
def kernel(value_ptr, {extra}memory, old, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(value_ptr + i)
    {prepare}
    before = {call}
    tl.store(old + i, before)
"""
_UNUSED = """@triton.jit
def kernel(value_ptr, memory, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.{function}(memory + i, tl.load(value_ptr + i))
"""


def atomic_programs() -> list[Program]:
    """Each atomic of each type, on one word for each element, with edge operands; the old value used or not."""
    programs = []
    functions = {name: ["atomic_add"] for name in ("fp16", "bf16")}
    functions |= {name: ["atomic_add", "atomic_max", "atomic_min", "atomic_xchg"] for name in ("fp32", "fp64")}
    functions |= {
        name: [f"atomic_{kind}" for kind in ("add", "max", "min", "and", "or", "xor", "xchg", "cas")]
        for name in ("int32", "uint32", "int64", "uint64")
    }
    for name, kinds in functions.items():
        content, value = operand_sets((name, name), 4096, 21)
        for kind in kinds:
            extra = "compare_ptr, " if kind == "atomic_cas" else ""
            prepare = "compare = tl.load(compare_ptr + i)" if kind == "atomic_cas" else ""
            call = "tl.atomic_cas(memory + i, compare, value)" if kind == "atomic_cas" else f"tl.{kind}(memory + i, value)"
            inputs = {"value": value}
            if kind == "atomic_cas":
                inputs["compare"] = np.where(np.arange(content.size) % 2, content, value)
            text = _ATOMIC.format(extra=extra, prepare=prepare, call=call)
            outputs = {"memory": content.copy(), "old": np.zeros_like(content)}
            grid = (content.size // 1024,)
            labels = {"memory": f"{kind}: memory", "old": f"{kind}: old"}
            programs.append(Program(f"atomic.{name}.{kind}", text, inputs, outputs, {"BLOCK": 1024}, grid, labels))
            if kind in ("atomic_add", "atomic_max"):
                text = _UNUSED.format(function=kind)
                label = {"memory": f"{kind}, old value unused: memory"}
                programs.append(
                    Program(
                        f"atomic.{name}.{kind}.unused", text, {"value": value}, {"memory": content.copy()}, {"BLOCK": 1024}, grid, label
                    )
                )
    return programs
