"""What the installed package adds to ``import triton``, and ``import triton_dist`` to that.

Compares fresh interpreters in turn: ``import triton`` with the entry point, the same with the entry point hidden, and both
``import triton`` and ``import triton_dist``. Prints the median of each and the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

_HIDDEN = """
import importlib.metadata as metadata
found = metadata.entry_points
class Hidden:
    def select(self, **choice):
        return [entry for entry in found(**choice) if 'triton_dist' not in entry.value]
metadata.entry_points = Hidden
"""
_CLOCK = "import time; begin = time.perf_counter()\n{}\nprint(time.perf_counter() - begin)"
CASES = {
    "import triton, without the package": _HIDDEN + _CLOCK.format("import triton"),
    "import triton, with the package installed": "import importlib.metadata\n" + _CLOCK.format("import triton"),
    "import triton, import triton_dist": "import importlib.metadata\n" + _CLOCK.format("import triton, triton_dist"),
    "import triton_dist": _CLOCK.format("import triton_dist"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=21)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(runs + 1):
        for name, code in CASES.items():
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            times[name].append(float(done.stdout) * 1e3)
    base = statistics.median(times["import triton, without the package"][1:])
    for name, values in times.items():
        median = statistics.median(values[1:])
        print(f"{name:45} {median:8.1f} ms   {median / base:6.3f} of `import triton` alone")


if __name__ == "__main__":
    main()
