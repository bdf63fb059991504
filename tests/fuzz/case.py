"""Run one random kernel on the simulator and compare every word of its outputs with the reference."""

from __future__ import annotations

import random

import numpy as np

from tests.fuzz.builder import Buffer, Builder, Environment, random_data
from tests.fuzz.kernels import build_kernel
from tests.fuzz.memory_statements import blank_output
from tests.fuzz.reference import FLOATS, is_float
from tests.fuzz.whole_tile_statements import COMBINES
from tests.gpu.programs import to_numpy, to_torch
from tests.kernel_text import load_module

HEADER = "import triton\nimport triton.language as tl\n\n\n" + COMBINES
DATA_SETS = 2
"""Contents of the input buffers that each kernel runs with."""


class Mismatch(AssertionError):
    """The simulator and the reference differ; the message has the kernel."""


def native(buffer: Buffer) -> np.dtype:
    """numpy's or ml_dtypes' type of a buffer."""
    return FLOATS[buffer.dtype] if is_float(buffer.dtype) else np.dtype(bool if buffer.dtype == "int1" else buffer.dtype)


def _inputs(build: Builder, seed: int) -> dict[str, np.ndarray]:
    content = {}
    for number, buffer in enumerate(build.buffers):
        if buffer.role == "constant":
            content[buffer.name] = np.full(buffer.size, buffer.below, np.int32)
        elif buffer.role == "output":
            blank = blank_output(buffer.dtype, buffer.size)
            content[buffer.name] = (
                blank.astype(np.float32).astype(native(buffer)) if buffer.dtype == "bf16" else blank.astype(native(buffer))
            )
        else:
            content[buffer.name] = random_data(buffer, seed * 1000 + number)
    return content


def _expected(build: Builder, content: dict[str, np.ndarray]) -> Environment:
    """Run the reference: one program after the other over one copy of the outputs."""
    environment: Environment = dict(content)
    for buffer in build.buffers:
        if buffer.role == "output":
            data = content[buffer.name]
            wide = data.astype(np.float64) if is_float(buffer.dtype) else data.astype(bool if buffer.dtype == "int1" else object)
            environment[buffer.name] = (wide.copy(), np.zeros(buffer.size))
    outputs = {buffer.name for buffer in build.buffers if buffer.role == "output"}
    for pid in range(build.programs):
        local = {name: value for name, value in environment.items() if name in content or name in outputs}
        local["pid"] = pid
        for statement in build.statements:
            statement(local)
    return environment


def _differences(buffer: Buffer, actual: np.ndarray, expected: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Where an output is wrong. Exact floats must have the sign of a zero right, too."""
    if not is_float(buffer.dtype):
        return actual.astype(object) != expected.astype(object)
    with np.errstate(all="ignore"):
        wide = actual.astype(np.float64)
        nan = np.isnan(wide) & np.isnan(expected)
        near = np.abs(wide - expected) <= error
        same = (wide == expected) & ((error > 0) | (np.signbit(wide) == np.signbit(expected)))
        return ~(nan | near & (error > 0) | same | np.isinf(error))


def run_case(rng: random.Random) -> None:
    """Build a kernel, run it on each set of data, compare. Raises Mismatch."""
    build = build_kernel(rng)
    source = HEADER + build.source()
    kernel = load_module(source).kernel
    seed = rng.getrandbits(30)
    for data_set in range(DATA_SETS):
        content = _inputs(build, seed + data_set)
        tensors = [to_torch(array, "cpu") for array in content.values()]
        try:
            kernel[(build.programs,)](*tensors)
        except Exception as failure:
            raise Mismatch(f"{type(failure).__name__}: {failure.__cause__ or str(failure)[-1500:]}\n{source}") from failure
        expected = _expected(build, content)
        for buffer, tensor in zip(build.buffers, tensors, strict=True):
            if buffer.role != "output":
                continue
            actual = to_numpy(tensor, native(buffer))
            data, error = expected[buffer.name]
            wrong = np.flatnonzero(_differences(buffer, actual, data, error))
            if wrong.size:
                lines = [f"  [{place}] {actual[place]!r}, expected {data[place]!r} +- {error[place]:.3g}" for place in wrong[:6].tolist()]
                inputs = f"data set {data_set} of seed {seed}"
                raise Mismatch(f"{wrong.size} of {buffer.size} words of {buffer.name} ({inputs}):\n" + "\n".join(lines) + f"\n{source}")
