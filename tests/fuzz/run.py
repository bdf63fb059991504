"""``python -m tests.fuzz.run --cases 2000``: many random kernels, each made from its number, with a progress line.

``--only 1234`` runs one case again and prints its kernel.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.fuzz.case import HEADER, Mismatch, run_case
from tests.fuzz.kernels import build_kernel
from tests.gpu.programs import simulated


def case_random(number: int) -> random.Random:
    """The choices of a case."""
    return random.Random(f"case {number}")


def run_many(first: int, cases: int, stop_after: int) -> int:
    """Run cases and print each failure. Returns how many failed."""
    begin, failed = time.time(), 0
    for number in range(first, first + cases):
        try:
            run_case(case_random(number))
        except Mismatch as mismatch:
            failed += 1
            print(f"\ncase {number}: {mismatch}", flush=True)
            if failed >= stop_after:
                break
        done = number - first + 1
        if done % 20 == 0 or done == cases:
            print(f"\r{done} of {cases} cases, {failed} failed, {time.time() - begin:.0f} s", end="", flush=True)
    print()
    return failed


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many kernels")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--stop-after", type=int, default=5, help="stop after so many failures")
    parser.add_argument("--only", type=int, help="run this case alone, and print its kernel")
    arguments = parser.parse_args()
    with simulated():
        if arguments.only is not None:
            print(HEADER + build_kernel(case_random(arguments.only)).source())
            run_case(case_random(arguments.only))
            print("the outputs are right")
            return
        sys.exit(run_many(arguments.first, arguments.cases, arguments.stop_after) > 0)


if __name__ == "__main__":
    main()
