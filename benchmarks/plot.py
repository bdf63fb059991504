"""Draw a report: ``python benchmarks/plot.py results/ag_gemm_h100x4.json --mode graph --output ag_gemm.png``. Needs matplotlib, no GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.plots import draw
from harness.results import load


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--mode", choices=("eager", "graph"), help="default: both, one picture each")
    parser.add_argument("--output", type=Path, help="default: beside the report, with the mode in its name")
    arguments = parser.parse_args(words)
    report = load(arguments.report)
    modes = [arguments.mode] if arguments.mode else list(dict.fromkeys(case.mode for case in report.cases))
    if arguments.output and len(modes) > 1:
        parser.error(f"--output names one picture, but the report has {modes}; choose by --mode")
    for mode in modes:
        output = arguments.output or arguments.report.with_name(f"{arguments.report.stem}_{mode}.png")
        try:
            draw(report, mode, output)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
