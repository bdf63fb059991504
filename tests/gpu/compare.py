"""What the GPU gave against what the simulator gives, output by output; and ``h100.json``, which keeps the outcome.

``python -m tests.gpu.compare FOLDER`` compares a recording (see ``record``) and prints what differs; with ``--write`` it also rewrites
``h100.json``. There an output that is the same in every bit has a digest of its operands and result, by which any machine can check the
simulator, and every other output says how far apart the two were.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.gpu.programs import Program, canonical_bits, run, simulated, ulps
from tests.gpu.record import all_programs

RECORDED = Path(__file__).with_name("h100.json")


@dataclass
class Outcome:
    """One output of one program.

    digest: of the operands and the result, if both gave the same bits and that is no accident of an order; else None.
    differ, of: elements that differ, and all. furthest: in units in the last place, among elements that are numbers on both sides (for
    integers None). specials: elements that are a NaN on one side only.
    """

    expression: str
    digest: str | None
    differ: int = 0
    of: int = 0
    furthest: float | None = None
    specials: int = 0


def digest(program: Program, result: np.ndarray) -> str:
    """Short hash of a program's operands and one result, with one NaN for all."""
    state = hashlib.sha256(program.source.encode())
    for array in program.inputs.values():
        state.update(np.ascontiguousarray(array).tobytes())
    state.update(canonical_bits(result).tobytes())
    return state.hexdigest()[:16]


def depends_on_order(program: Program, expression: str) -> bool:
    """Whether the bits depend on the order of a float sum, or on which of several NaN a search meets first: that is free."""
    kind, element = program.name.split(".")[:2]
    if kind == "dot":
        return ".int32." not in program.name and ".identity" not in program.name
    is_float = kind == "reduce" and element[0] in "fb"
    return is_float and any(name in expression for name in ("sum", "argm"))


def outcome(program: Program, output: str, simulator: np.ndarray, gpu: np.ndarray) -> Outcome:
    """Compare one output."""
    expression = program.labels.get(output, output)
    differ = canonical_bits(simulator) != canonical_bits(gpu)
    if not differ.any() and not depends_on_order(program, expression):
        return Outcome(expression, digest(program, simulator))
    result = Outcome(expression, None, int(differ.sum()), int(differ.size))
    if simulator.dtype.kind not in "biu":
        distance = ulps(simulator, gpu)
        finite = distance[np.isfinite(distance)]
        result.furthest = float(finite.max()) if finite.size else 0.0
        result.specials = int(np.isinf(distance).sum())
    return result


def table(rows: dict[str, Outcome]) -> str:
    """The outputs that differ, as text."""
    lines = [f"{'program':38} {'expression':44} {'differ':>12} {'ulps':>9} {'NaN on one side':>16}"]
    for name, row in rows.items():
        if row.digest is None and row.differ:
            furthest = "" if row.furthest is None else f"{row.furthest:.4g}"
            lines.append(f"{name:38} {row.expression:44} {row.differ:>6}/{row.of:<6} {furthest:>9} {row.specials or '':>16}")
    same = sum(row.digest is not None or not row.differ for row in rows.values())
    return "\n".join([*lines, f"{same} of {len(rows)} outputs have the same bits"])


def load_recorded() -> dict[str, Outcome]:
    """The kept outcomes by ``program/output``."""
    return {name: Outcome(**row) for name, row in json.loads(RECORDED.read_text()).items()}


def main() -> None:
    """Compare a recording with the simulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="rewrite h100.json")
    arguments = parser.parse_args()
    recorded: dict[str, np.ndarray] = {}
    for path in sorted(arguments.folder.glob("part*.npz")):
        with np.load(path) as part:
            recorded.update({name: part[name] for name in part.files})
    rows: dict[str, Outcome] = {}
    with simulated():
        for program in all_programs():
            for output, result in run(program, "cpu").items():
                name = f"{program.name}/{output}"
                rows[name] = outcome(program, output, result, recorded[name].view(result.dtype).reshape(result.shape))
    print(table(rows))
    if arguments.write:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(asdict(row))}" for name, row in rows.items())
        RECORDED.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
