"""Run the outside programs on simulated ranks and record what came of it.

    python -m tests.outside.run CHECKOUT [--source NAME] [--bound SECONDS] [--only PART] [--update]

CHECKOUT is a clone of the programs' repository, which NAME says (a key of SOURCES). Each run ends after the bound. ``--update`` writes
results.json, from which ``python -m tests.compatibility.page`` makes the table in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .programs import PROGRAMS, SOURCES, Program

RESULTS = Path(__file__).with_name("results.json")
_CODE = re.compile(r"\b(TD\d{3}|deadlock)\b(?=[ :])")
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit)\b.*|AssertionError.*)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--source", default="Triton-distributed", choices=SOURCES, help="the repository that CHECKOUT is of")
    parser.add_argument("--bound", type=float, default=600.0, help="seconds for each run")
    parser.add_argument("--only", default="", help="run those whose path has this in it")
    parser.add_argument("--update", action="store_true", help="write results.json; runs that were left out keep their entry")
    options = parser.parse_args()
    found = {}
    for program in PROGRAMS:
        if program.source == options.source and options.only in program.path:
            for ranks in program.ranks:
                result = run(options.checkout, program, ranks, options.bound)
                found[key(program, ranks)] = result
                print(f"{key(program, ranks)}: {result['outcome']}, {result['seconds']} s", flush=True)
                if options.update:
                    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                    RESULTS.write_text(json.dumps(dict(sorted({**before, **found}.items())), indent=1) + "\n")
    return 0 if all(result["good"] for result in found.values()) else 1


def key(program: Program, ranks: int) -> str:
    """What names a run in results.json."""
    nodes = (f"{program.nodes} nodes",) if program.nodes > 1 else ()
    return " ".join((program.path, *program.arguments, f"on {ranks}", *nodes))


def run(checkout: Path, program: Program, ranks: int, bound: float) -> dict[str, Any]:
    """Run one program and say what came of it."""
    command = [sys.executable, "-m", "triton_dist.tools.cli"]
    driver = [str(Path(__file__).with_name(program.driver))] if program.driver else []
    script = [*program.options, *driver, str(checkout / program.path), *program.arguments]
    begin = time.monotonic()
    code, output = _output([*command, "run", "--ranks", str(ranks), "--nodes", str(program.nodes), *script], bound)
    outcome, good = (f"not done after {bound:g} s", False) if code is None else _judge(program, code, output)
    result = {"outcome": outcome, "good": good, "seconds": round(time.monotonic() - begin)}
    if program.checked and ranks == program.ranks[0]:
        code, output = _output([*command, "check", "--ranks", str(ranks), "--seeds", "1", *script], bound)
        codes = sorted(set(_CODE.findall(output)))
        if code is None:
            codes.append(f"not done after {bound:g} s")
        elif "triton-dist check:" not in output:
            codes.append(f"exit code {code}")
        elif "that the script itself ended" in output:
            codes.append("the script failed")
        result["checks"] = ", ".join(codes) or "nothing"
    return result


def _output(command: list[str], bound: float) -> tuple[int | None, str]:
    """Exit code and output of a command; no code for one that is ended after ``bound`` seconds."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        output, _ = process.communicate(timeout=bound)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    return process.returncode, output


def _judge(program: Program, code: int, output: str) -> tuple[str, bool]:
    """(what the table says, whether it is as it should be)"""
    errors = _ERROR.findall(output)
    last = errors[-1].replace("|", "\\|") if errors else f"exit code {code}"
    last = re.sub(r"/\S*/(?=[\w-]+\.py)", "", last)
    if program.fault:
        return (f"fault reported: {last}", True) if program.fault in last else (f"fault not reported: {last}", False)
    return ("passes", True) if code == 0 else (last[:220], False)


if __name__ == "__main__":
    sys.exit(main())
