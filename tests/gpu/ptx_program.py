"""Inline PTX on one GPU beside the simulator: the same blocks on the same operands, compared bit by bit.

``python -m tests.gpu.ptx_program`` runs all families of instructions, or those that are named as arguments, and prints one line a family:
``integers: 63 blocks, right``, or which blocks differ. No loop waits for another block, and nothing hangs.
"""

from __future__ import annotations

import sys
import time

import ml_dtypes
import numpy as np
import torch
import triton

from tests.gpu import ptx_compiler
from tests.gpu.programs import Program, canonical_bits, run, simulated
from tests.gpu.ptx_cases import FAMILIES, Family, family, programs_of
from tests.gpu.ptx_memory_cases import FAMILIES as MEMORY_FAMILIES
from tests.gpu.ptx_warp_cases import FAMILIES as WARP_FAMILIES

NAMES = (*FAMILIES, *MEMORY_FAMILIES, *WARP_FAMILIES, "random", "compiler")
_RELATIVE, _ABSOLUTE = 2.0**-10, 2.0**-21
"""How far an approximate instruction may be off: PTX promises tanh 11 bits, and lg2 near 1 an absolute error."""

_PAIRS = {"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)}


def programs(name: str) -> tuple[Family, list[Program]]:
    """The programs of a family."""
    chosen = family(name)
    return chosen, [*programs_of(name, chosen.cases), *chosen.programs]


def differences(program: Program, simulator: dict[str, np.ndarray], gpu: dict[str, np.ndarray], close: bool) -> list[str]:
    """The outputs that are not the same, with an example."""
    found = []
    for output, ours in simulator.items():
        label = program.labels.get(output, output)
        pair = _PAIRS.get(label.partition(":")[0])
        left, right = (array if pair is None else array.view(pair) for array in (ours, gpu[output]))
        if close and left.dtype.kind == "f":
            wrong = ~np.isclose(left, right, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
        else:
            wrong = canonical_bits(left) != canonical_bits(right)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            each = left.size // ours.size
            taken = ", ".join(f"{array.reshape(-1)[place // each]}" for array in program.inputs.values() if place // each < array.size)
            found.append(
                f"{program.name} {label}: {int(wrong.sum())} of {wrong.size} differ; number {place}, of {taken}: "
                f"GPU {right.reshape(-1)[place]}, simulator {left.reshape(-1)[place]}"
            )
    return found


def check(name: str, device: str = "cuda") -> bool:
    """Run one family both ways; print the line. Whether all is the same."""
    if name == "compiler":
        return check_compiler(device)
    begin = time.time()
    chosen, listed = programs(name)
    wrong: list[str] = []
    blocks = 0
    for program in listed:
        blocks += len(program.labels) or 1
        try:
            gpu = run(program, device)
        except Exception as error:  # noqa: BLE001  (the others are still wanted)
            wrong.append(f"{program.name} does not run: {' | '.join(str(error).splitlines()[:6])}")
            continue
        with simulated():
            ours = run(program, "cpu")
        wrong += differences(program, ours, gpu, chosen.close)
    print(f"{name}: {blocks} blocks, {'right' if not wrong else f'{len(wrong)} differ'} ({time.time() - begin:.0f} s)", flush=True)
    for line in wrong[:40]:
        print(f"  {line[:400]}", flush=True)
    return not wrong


def check_compiler(device: str) -> bool:
    """Whether the assembler has the fault that ``ptx_compiler`` tells of, and no other."""
    program = ptx_compiler.products()
    gpu = run(program, device)
    with simulated():
        ours = run(program, "cpu")
    text, known = ptx_compiler.verdict(ours, gpu, program.inputs)
    version = ptx_compiler.ptxas_version(10 * torch.cuda.get_device_capability()[0]) if torch.cuda.is_available() else "none"
    print(f"compiler: ptxas {version}, {text}", flush=True)
    runs = sorted(set(run(ptx_compiler.twice(), device)["words"].tolist()))
    print(f"compiler: Triton {triton.__version__}, an impure block whose result is stored runs {runs} times an element", flush=True)
    return known and runs in ([1], [2])


def main() -> int:
    """All families, or those of the command line."""
    names = sys.argv[1:] or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no family {unknown[0]!r}; there are {', '.join(NAMES)}")
        return 2
    results = [check(name) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
