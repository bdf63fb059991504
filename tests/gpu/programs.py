"""Small programs that run the same on a GPU with stock Triton and on the simulator, and how to compare what they give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import torch
import triton

from tests.gpu.values import DTYPES, operand_sets
from tests.kernel_text import load_module

HEADER = "import triton\nimport triton.language as tl\nfrom triton.language.extra.cuda import libdevice\n\n\n"

_TORCH = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.float16): torch.float16,
    np.dtype(ml_dtypes.bfloat16): torch.bfloat16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(ml_dtypes.float8_e5m2): torch.float8_e5m2,
    np.dtype(ml_dtypes.float8_e4m3fn): torch.float8_e4m3fn,
    **{np.dtype(f"{sign}int{bits}"): getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@dataclass
class Program:
    """One kernel with its data.

    source: text of a function named ``kernel``; its parameters are the inputs and outputs in order, then ``constants`` by name.
    inputs: read-only arrays by name. outputs: arrays by name with what they hold before the launch.
    labels: for each output, what it is an output of, for reports.
    """

    name: str
    source: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    constants: dict[str, object] = field(default_factory=dict)
    grid: tuple[int, ...] = (1,)
    labels: dict[str, str] = field(default_factory=dict)
    num_warps: int = 4


def to_torch(array: np.ndarray, device: str) -> torch.Tensor:
    """A copy of the bits as a tensor."""
    dtype = _TORCH[array.dtype]
    raw = np.ascontiguousarray(array).view(np.uint8 if array.dtype.itemsize == 1 else f"i{array.dtype.itemsize}")
    return torch.from_numpy(raw.copy()).to(device).view(dtype)


def to_numpy(tensor: torch.Tensor, dtype: np.dtype) -> np.ndarray:
    """The bits of a tensor as an array."""
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return tensor.cpu().view(raw).numpy().view(dtype)


def run(program: Program, device: str) -> dict[str, np.ndarray]:
    """Run a program on the current Triton driver, with its tensors on ``device``."""
    kernel = load_module(HEADER + program.source).kernel
    inputs = [to_torch(array, device) for array in program.inputs.values()]
    outputs = [to_torch(array, device) for array in program.outputs.values()]
    kernel[program.grid](*inputs, *outputs, **program.constants, num_warps=program.num_warps)
    return {name: to_numpy(tensor, array.dtype) for (name, array), tensor in zip(program.outputs.items(), outputs, strict=True)}


@contextmanager
def simulated() -> Iterator[None]:
    """Triton compiles and launches for the simulator while this is open, also on a machine with a GPU."""
    from triton_dist.sim.driver import SimDriver

    triton.runtime.driver.set_active(SimDriver())
    try:
        yield
    finally:
        triton.runtime.driver.reset_active()


_BLOCK = 1024


def elementwise(name: str, operands: tuple[str, ...], results: list[tuple[str, str]], count: int = 8192, seed: int = 1) -> list[Program]:
    """Programs that evaluate expressions of ``a``, ``b``, ``c`` on edge and random operands, up to twelve expressions in one kernel.

    operands: type names. results: pairs of expression and type name of what it gives.
    """
    values = operand_sets(operands, count, seed)
    letters = "abcd"[: len(operands)]
    programs = []
    for start in range(0, len(results), 12):
        part = results[start : start + 12]
        names = [f"out{number}" for number in range(len(part))]
        lines = [f"@triton.jit\ndef kernel({', '.join(f'{letter}_ptr' for letter in letters)}, {', '.join(names)}, BLOCK: tl.constexpr):"]
        lines.append("    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
        lines += [f"    {letter} = tl.load({letter}_ptr + i)" for letter in letters]
        for output, (expression, _) in zip(names, part, strict=True):
            lines.append(f"    tl.store({output} + i, {expression})")
        size = -(-values[0].size // _BLOCK) * _BLOCK
        programs.append(
            Program(
                name=f"{name}.{start // 12}",
                source="\n".join(lines) + "\n",
                inputs={letter: np.resize(array, size) for letter, array in zip(letters, values, strict=True)},
                outputs={output: np.zeros(size, DTYPES[kind]) for output, (_, kind) in zip(names, part, strict=True)},
                constants={"BLOCK": _BLOCK},
                grid=(size // _BLOCK,),
                labels={output: expression for output, (expression, _) in zip(names, part, strict=True)},
            )
        )
    return programs


def canonical_bits(array: np.ndarray) -> np.ndarray:
    """The bits, with one NaN for all."""
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").copy()
    if array.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):
            bits[np.isnan(array.astype(np.float32) if array.dtype.itemsize < 4 else array)] = (1 << 8 * array.dtype.itemsize) - 1
    return bits


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as integers (in fp64, exact enough to count small distances) whose difference counts units in the last place."""
    bits = array.view(f"i{array.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * array.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits) if array.dtype.itemsize < 8 else np.where(bits < 0, np.int64(lowest) - bits, bits)


def ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance of floats of one type in units in the last place; a NaN is infinitely far from a number."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    nan_a, nan_b = np.isnan(wide_a), np.isnan(wide_b)
    left, right = ordered(a), ordered(b)
    distance = (
        np.abs(left.astype(np.float64) - right.astype(np.float64)) if a.dtype.itemsize < 8 else np.abs((left - right).astype(np.float64))
    )
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a | nan_b, np.inf, distance))
