"""The simulator gives the bits that an H100 gave, for everything that is the same there on every run: digests in ``tests/gpu/h100.json``.

The recording used Triton 3.6.0. ``tests/gpu/H100.md`` says what was learned, and where the two differ on purpose.
"""

from __future__ import annotations

import re

import pytest
import triton

from tests.gpu.compare import digest, load_recorded
from tests.gpu.programs import run, simulated
from tests.gpu.record import all_programs

KINDS = ("dot", "reduce", "atomic", "libdevice", "random", "int", "uint", "fp8e5", "fp8e4nv", "fp16", "bf16", "fp32", "fp64")
PROGRAMS = all_programs()
# Triton 3.9 negates a float; before it subtracted from +0, so that the opposite of +0 was +0.
CHANGED_SINCE = {"-a"} if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9) else set()


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_those_of_the_gpu(kind):
    recorded = load_recorded()
    chosen = [program for program in PROGRAMS if re.match(rf"{kind}\d*\.", program.name)]
    assert chosen
    wrong = []
    with simulated():
        for program in chosen:
            for output, result in run(program, "cpu").items():
                expected = recorded[f"{program.name}/{output}"]
                changed = expected.expression in CHANGED_SINCE and kind in ("fp16", "bf16", "fp32", "fp64")
                if expected.digest is not None and not changed and digest(program, result) != expected.digest:
                    wrong.append(f"{program.name}: {expected.expression}")
    assert not wrong, "not the bits of the H100: " + "; ".join(wrong)


def test_the_recording_covers_every_program():
    assert {f"{program.name}/{output}" for program in PROGRAMS for output in program.outputs} == set(load_recorded())
