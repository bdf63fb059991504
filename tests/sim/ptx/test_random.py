"""Random blocks: what all lanes compute together is what each computes alone, and the program for GPUs finds a difference."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.gpu import ptx_compiler, ptx_program
from tests.gpu.programs import run, simulated
from tests.gpu.ptx_cases import FAMILIES, Case, bits_type, control_cases, operand, programs_of, random_case, width
from tests.gpu.ptx_memory_cases import FAMILIES as MEMORY_FAMILIES
from tests.gpu.ptx_warp_cases import FAMILIES as WARP_FAMILIES


def arrays_of(case, count):
    operands = [operand(kind, 10 * place + 1)[:count] for place, kind in enumerate(case.takes)]
    return [array.view(f"u{array.dtype.itemsize}") for array in operands]


@pytest.mark.parametrize("case", [*(random_case(seed) for seed in range(100, 120)), *control_cases()], ids=str)
def test_lanes_together_and_alone(case, evaluate):
    """Branches and predicates that lanes take differently change nothing for any of them."""
    arrays = arrays_of(case, 48)
    gives = [width(kind) for kind in case.gives]
    together = evaluate(case.text, gives, *arrays)
    for lane in range(48):
        alone = evaluate(case.text, gives, *(array[lane : lane + 1] for array in arrays))
        assert [one[0] for one in alone] == [one[lane] for one in together]


def _collatz(start):
    steps = 0
    while start > 1:
        start = start * 3 + 1 if start % 2 else start // 2
        steps += 1
    return steps


def test_loops_with_a_known_result(evaluate):
    first, second, *_ = control_cases()
    (a,), (x, y) = arrays_of(first, 64), arrays_of(second, 64)
    assert evaluate(first.text, [32], a)[0].tolist() == [_collatz(value & 0xFFF) for value in a.tolist()]
    assert evaluate(second.text, [32], x, y)[0].tolist() == [int(np.gcd(u | 1, v)) for u, v in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("family", [*FAMILIES, *MEMORY_FAMILIES, *WARP_FAMILIES, "random"])
def test_programs_for_a_gpu_run_here(family):
    """A few of each family, as ``tests.gpu.ptx_program`` runs them: nothing differs from itself, and one changed bit does."""
    chosen, listed = ptx_program.programs(family)
    for program in random.Random(family).sample(listed, min(2, len(listed))):
        with simulated():
            found = run(program, "cpu")
        assert not ptx_program.differences(program, found, found, chosen.close)
        name = next(iter(found))
        other = {key: array.copy() for key, array in found.items()}
        raw = other[name].view(f"u{other[name].dtype.itemsize}")
        raw[3] ^= 1 << 8 * raw.itemsize - 2
        assert len(ptx_program.differences(program, other, found, chosen.close)) == 1


def test_the_fault_of_an_assembler_is_told_from_others(capsys):
    program = ptx_compiler.products()
    with simulated():
        ours = run(program, "cpu")
    assert ptx_compiler.verdict(ours, ours, program.inputs)[1]
    a, b, c = (array.view(np.uint64) for array in program.inputs.values())
    assert all(
        int(found) == (int(x) * int(y) + int(z)) % (1 << 64) for x, y, z, found in zip(a, b, c, ours["out0_0"].view(np.uint64), strict=True)
    )
    wrong = {**ours, "out0_0": ptx_compiler.faulty(a, b, c).view(np.int64)}
    text, known = ptx_compiler.verdict(ours, wrong, program.inputs)
    assert known and "with the fault" in text and int(text.split()[5]) < a.size // 2
    assert not ptx_compiler.verdict(ours, {**wrong, "out0_0": wrong["out0_0"] ^ 1}, program.inputs)[1]
    assert ptx_program.check_compiler("cpu")
    assert "compiler: ptxas" in capsys.readouterr().out


def test_a_pair_is_compared_as_two_numbers():
    case = next(iter(programs_of("pairs", [Case("add.f16x2 $0, $1, $1;", ("f16x2",), ("f16x2",))])))
    nan, other = np.array([0x7FFF3C00], np.uint32).view(np.int32), np.array([0x7E003C00], np.uint32).view(np.int32)
    assert case.outputs["out0_0"].dtype == bits_type("f16x2")
    assert not ptx_program.differences(case, {"out0_0": nan}, {"out0_0": other}, False)
