"""Builds a random kernel: its source text, and beside each statement a function that computes the same with ``reference``.

A kernel is a list of statements over named tiles. Text and meaning are made together, so the reference needs no parser.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.reference import FLOATS, INTEGERS, Tile, is_float

Environment = dict[str, object]
Statement = Callable[[Environment], None]

TRITON_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e5": "float8e5", "fp8e4nv": "float8e4nv"}
COMPUTE = (*INTEGERS, "fp16", "bf16", "fp32", "fp64")
"""Types with arithmetic; ``int1`` and the 8-bit floats only appear on the way."""


@dataclass(frozen=True)
class Variable:
    """A tile in the kernel. exact: its bits are known, so that it may be compared, truncated or sorted."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    exact: bool = True


@dataclass
class Buffer:
    """A pointer parameter. role: how to fill it ("values", "indices", "small"), or "output"."""

    name: str
    dtype: str
    size: int
    role: str
    below: int = 0


@dataclass
class Builder:
    """State while a kernel is built."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    indent: int = 1
    counter: int = 0
    depth: int = 0
    programs: int = 1

    def fresh(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *, dtypes: tuple[str, ...] = COMPUTE, exact: bool = False, tile: bool = True, test: Callable = lambda _: True):
        """A random variable of one of some types, or None. tile: not a scalar."""
        found = [
            variable
            for variable in self.variables
            if variable.dtype in dtypes and (variable.exact or not exact) and (variable.shape or not tile) and test(variable)
        ]
        return self.random.choice(found) if found else None

    def partner(self, variable: Variable, exact: bool = False) -> Variable | None:
        """Another variable that can stand beside one: of the same type and shape, or of size 1 in places, or a scalar."""

        def fits(other: Variable) -> bool:
            if other.dtype != variable.dtype or other == variable:
                return False
            same_rank = len(other.shape) == len(variable.shape)
            return not other.shape or (same_rank and all(n in (1, m) for n, m in zip(other.shape, variable.shape, strict=True)))

        return self.pick(dtypes=(variable.dtype,), exact=exact, tile=False, test=fits)

    def add(self, text: str, dtype: str, shape: tuple[int, ...], meaning: Callable[[Environment], Tile], exact: bool = True) -> Variable:
        """``name = text``, converted to ``dtype`` in case Triton's promotion thinks otherwise."""
        name = self.fresh()
        suffix = f".to(tl.{TRITON_NAMES.get(dtype, dtype)})" if dtype != "int1" else ""
        self.line(f"{name} = ({text}){suffix}")

        def assign(environment: Environment) -> None:
            tile = meaning(environment)
            data = np.broadcast_to(tile.data, shape)
            environment[name] = Tile(dtype, data, None if tile.error is None else np.broadcast_to(tile.error, shape))

        self.statements.append(assign)
        variable = Variable(name, dtype, shape, exact)
        self.variables.append(variable)
        return variable

    def buffer(self, dtype: str, size: int, role: str, below: int = 0) -> Buffer:
        """A new pointer parameter."""
        made = Buffer(self.fresh("p"), dtype, size, role, below)
        self.buffers.append(made)
        return made

    @contextmanager
    def block(self, header: str):
        """Statements of an indented block; yields the list they go to. Variables made inside are forgotten after."""
        outer, known = self.statements, list(self.variables)
        self.statements = []
        self.line(header)
        self.indent += 1
        self.depth += 1
        try:
            yield self.statements
        finally:
            self.indent -= 1
            self.depth -= 1
            self.statements, self.variables = outer, known

    def source(self) -> str:
        """The kernel's text."""
        parameters = ", ".join(buffer.name for buffer in self.buffers)
        return f"@triton.jit\ndef kernel({parameters}):\n" + "\n".join(self.lines) + "\n"


def random_shape(rng: random.Random) -> tuple[int, ...]:
    """A tile's shape: one to three dimensions, at most 256 elements."""
    rank = rng.choice((1, 1, 2, 2, 2, 3))
    largest = {1: (2, 8, 16, 32, 64, 128, 256), 2: (1, 2, 4, 8, 16), 3: (1, 2, 4, 8)}[rank]
    shape = tuple(rng.choice(largest) for _ in range(rank))
    return shape if np.prod(shape) > 1 else (4,) * rank


def random_data(buffer: Buffer, seed: int) -> np.ndarray:
    """Content of an input buffer, as numpy's or ml_dtypes' own type."""
    rng = np.random.default_rng(seed)
    if buffer.role == "indices":
        return rng.integers(0, buffer.below, buffer.size).astype(np.int32)
    if buffer.role == "permutation":
        return rng.permutation(buffer.size).astype(np.int32)
    if buffer.dtype == "int1":
        return rng.integers(0, 2, buffer.size).astype(bool)
    moderate = rng.normal(0, 3, buffer.size)
    if is_float(buffer.dtype):
        dtype = FLOATS[buffer.dtype]
        with np.errstate(all="ignore"):
            values = moderate.astype(dtype)
            if buffer.role == "small":
                return values
            special = np.array([*[0.0, -0.0, np.nan] * 3, 1.0, 0.5, 300.0, 6e4, 1e-6, np.inf, -np.inf, 1e-40, 3e38]).astype(dtype)
            bits = rng.integers(0, 1 << 8 * dtype.itemsize, buffer.size, np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
        choice = rng.random(buffer.size)
        values = np.where(choice < 0.25, rng.choice(special, buffer.size), values)
        return np.where(choice > 0.92, bits, values)
    info = np.iinfo(buffer.dtype)
    values = np.clip((moderate * 5).astype(np.int64), info.min if info.min < 0 else 0, info.max if info.max < 2**62 else 2**62)
    values = values.astype(buffer.dtype)
    if buffer.role == "small":
        return values
    bits = rng.integers(info.min, info.max, buffer.size, dtype=buffer.dtype, endpoint=True)
    edges = np.array([info.min, info.max, 0, 1, info.max - 1], buffer.dtype)
    choice = rng.random(buffer.size)
    return np.where(choice < 0.3, bits, np.where(choice < 0.45, rng.choice(edges, buffer.size), values))


def to_tile(data: np.ndarray, dtype: str) -> Tile:
    """Buffer content as the reference holds it."""
    if dtype == "int1":
        return Tile(dtype, data.astype(bool))
    with np.errstate(invalid="ignore"):
        return Tile(dtype, data.astype(np.float64) if is_float(dtype) else data.astype(object))
