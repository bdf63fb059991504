"""Run the outside programs, on simulated ranks or on GPUs, and record what came of it.

    python -m tests.outside.run CHECKOUT [--source NAME] [--gpus] [--bound SECONDS] [--only PART] [--jobs N] [--write FILE] [--update]

CHECKOUT is a clone of the programs' repository, which NAME says (a key of SOURCES). Each run ends after the bound. With ``--gpus`` they run
under torchrun, a process and a GPU for each rank: those that this machine has GPUs for. ``--write`` adds the results to a file,
``--update`` to results.json, from which ``python -m tests.compatibility.page`` makes the table in docs/compatibility.md.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from .programs import PROGRAMS, SOURCES, Program

RESULTS = Path(__file__).with_name("results.json")
_CODE = re.compile(r"\b(TD\d{3}|deadlock)\b(?=[ :])")
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit)\b.*|AssertionError.*)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--gpus", action="store_true", help="on this machine's GPUs, by torchrun")
    parser.add_argument("--source", default="Triton-distributed", choices=SOURCES, help="the repository that CHECKOUT is of")
    parser.add_argument("--bound", type=float, default=600.0, help="seconds for each run")
    parser.add_argument("--only", default="", help="run those whose path has this in it")
    parser.add_argument("--jobs", type=int, default=1, help="so many side by side")
    parser.add_argument("--write", type=Path, help="a JSON file; runs that were left out keep their entry there")
    parser.add_argument("--update", action="store_true", help=f"--write {RESULTS.name}")
    options = parser.parse_args()
    target = RESULTS if options.update else options.write
    chosen = [program for program in PROGRAMS if program.source == options.source and options.only in program.path]
    runs = [(program, ranks) for program in chosen for ranks in program.ranks if not options.gpus or _fits(program, ranks)]
    found: dict[str, Any] = {}

    def one(program: Program, ranks: int) -> None:
        name = key(program, ranks, options.gpus)
        result = found[name] = run(options.checkout, program, ranks, options.bound, options.gpus)
        print(f"{name}: {result['outcome']}, {result['seconds']} s", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(one, program, ranks) for program, ranks in runs]:
            done.result()
            if target:
                before = json.loads(target.read_text()) if target.exists() else {}
                target.write_text(json.dumps(dict(sorted({**before, **found}.items())), indent=1) + "\n")
    return 0 if all(result["good"] for result in found.values()) else 1


def _fits(program: Program, ranks: int) -> bool:
    """Whether this machine can run it on GPUs: virtual nodes are the simulator's."""
    return program.nodes == 1 and ranks <= torch.cuda.device_count()


def key(program: Program, ranks: int, gpus: bool = False) -> str:
    """What names a run in results.json."""
    nodes = (f"{program.nodes} nodes",) if program.nodes > 1 else ()
    return " ".join((program.path, *program.arguments, f"on {ranks}", *nodes, *(("GPUs",) if gpus else ())))


def run(checkout: Path, program: Program, ranks: int, bound: float, gpus: bool = False) -> dict[str, Any]:
    """Run one program and say what came of it."""
    command = [sys.executable, "-m", "triton_dist.tools.cli"]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m", "triton_dist.tools.cli"]
    where = ["--ranks", str(ranks), "--nodes", str(program.nodes)]
    driver = [str(Path(__file__).with_name(program.driver))] if program.driver else []
    script = [*program.options, *driver, str(checkout / program.path), *program.arguments]
    begin = time.monotonic()
    code, output = _output([sys.executable, *launcher, "run", *script] if gpus else [*command, "run", *where, *script], bound)
    outcome, good = (f"not done after {bound:g} s", False) if code is None else _judge(program, code, output, gpus)
    result: dict[str, Any] = {"outcome": outcome, "good": good, "seconds": round(time.monotonic() - begin)}
    if gpus:
        return {**result, "card": torch.cuda.get_device_name(0)}
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


def _judge(program: Program, code: int, output: str, gpus: bool) -> tuple[str, bool]:
    """(what the table says, whether it is as it should be); a fault may well go unseen on GPUs."""
    # Under torchrun the program's own error stands before the launcher's, and says "[rank0]: " first.
    errors = [
        error for error in _ERROR.findall(re.sub(r"^\[rank\d+\]: ", "", output, flags=re.MULTILINE)) if "ChildFailedError" not in error
    ]
    last = errors[-1].replace("|", "\\|") if errors else f"exit code {code}"
    last = re.sub(r"/\S*/(?=[\w-]+\.py)", "", last)
    if program.fault and not gpus:
        return (f"fault reported: {last}", True) if program.fault in last else (f"fault not reported: {last}", False)
    return ("passes", True) if code == 0 else (last[:220], False)


if __name__ == "__main__":
    sys.exit(main())
