"""``python -m tests.gpu.record FOLDER``: run every program on this machine's GPU and keep what it gave, to compare elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tests.gpu.elementwise_cases import elementwise_programs
from tests.gpu.libdevice_cases import libdevice_programs
from tests.gpu.programs import Program, run
from tests.gpu.tile_cases import atomic_programs, dot_programs, reduce_programs

_FILES = 7


def all_programs() -> list[Program]:
    """Every program of this folder."""
    return [*dot_programs(), *reduce_programs(), *atomic_programs(), *elementwise_programs(), *libdevice_programs()]


def record(folder: Path, device: str = "cuda") -> None:
    """Write ``part0.npz`` ... with an array of bits for each output; a program that fails is named and left out."""
    parts: list[dict[str, np.ndarray]] = [{} for _ in range(_FILES)]
    begin = time.time()
    for number, program in enumerate(all_programs()):
        try:
            results = run(program, device)
        except Exception as error:  # noqa: BLE001  (the others are still wanted)
            print(f"FAILED {program.name}: {' | '.join(str(error).splitlines()[:12])}", flush=True)
            continue
        for name, array in results.items():
            parts[number % _FILES][f"{program.name}/{name}"] = array.view(f"u{array.dtype.itemsize}")
        if number % 20 == 0:
            print(f"{number} {program.name} {time.time() - begin:.0f} s", flush=True)
    for number, part in enumerate(parts):
        np.savez_compressed(folder / f"part{number}.npz", **part)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
