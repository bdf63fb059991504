"""Runs the example of each tool on the GPUs that are there and writes what they printed: ``python tests/gpu/record_tools.py`` to
``$OUT/tools.md`` (default out), a copy of docs/tools.md with the recording in it. Prints one line an example; names choose some of them.

Two ranks, one a GPU, or both on the only one. Each example is ended after ``LIMIT`` seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tools.md"
PART = re.compile(r"(<!-- recorded -->\n).*?(<!-- end of recorded -->)", re.DOTALL)
LIMIT = 240
RANKS = 2
MOST_LINES = 24

EXAMPLES = {
    "autotune": ("20_autotune.py", RANKS),
    "profiler": ("04_profiler.py", RANKS),
    "aot": ("22_aot.py", RANKS),
    "inspect": ("23_inspect.py", 0),
    "build_extern": ("24_build_extern.py", RANKS),
    "torch_symm": ("21_torch_symm.py", RANKS),
    "inductor_pass": ("25_inductor_pass.py", RANKS),
}
"""By tool its example, and the ranks that it is run with; 0 for a process without torchrun."""


def command(file: str, ranks: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    return [sys.executable, *launcher, str(ROOT / "examples" / file)]


def shown(file: str, ranks: int) -> str:
    """The command as a user types it."""
    return f"torchrun --nproc-per-node {ranks} examples/{file}" if ranks else f"python examples/{file}"


def run(file: str, ranks: int) -> tuple[bool, list[str]]:
    """Whether the example ended well, and the lines that it printed; those of errors if it did not."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_DIST_AUTOTUNE_DIR": folder, "OMP_NUM_THREADS": "4"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        try:
            done = subprocess.run(command(file, ranks), cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return False, [f"not done after {LIMIT} s"]
    text = done.stdout if done.returncode == 0 else done.stdout + done.stderr
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return done.returncode == 0, lines


def reasons(lines: list[str]) -> list[str]:
    """Of what a failed example printed the lines that name an error, without those of torchrun about its processes."""
    named = [
        line for line in lines if re.match(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception|Exit): ", line) and "ChildFailedError" not in line
    ]
    return named[:4] or lines[-4:]


def section(tool: str, lines: list[str]) -> str:
    file, ranks = EXAMPLES[tool]
    kept = [*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])]
    return "\n".join([f"### {tool}", "", "```", f"$ {shown(file, ranks)}", *kept, "```", ""])


def main(names: list[str]) -> int:
    gpus = torch.cuda.device_count()
    machine = f"{min(gpus, RANKS)} x {torch.cuda.get_device_name()}" if gpus else "no GPU: CPU processes"
    how = "" if gpus != 1 else ", whose ranks take turns"
    python = ".".join(map(str, sys.version_info[:2]))
    parts = [f"{machine}{how}, Python {python}, torch {torch.__version__}, triton {triton.__version__}:", ""]
    wrong = 0
    for tool, (file, ranks) in EXAMPLES.items():
        if names and tool not in names:
            continue
        right, lines = run(file, ranks)
        wrong += not right
        parts.append(section(tool, lines if right else reasons(lines)))
        print(f"{tool}: {'right' if right else 'wrong: ' + ' | '.join(reasons(lines))[:500]}", flush=True)
    out = Path(os.environ.get("OUT", "out"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "tools.md").write_text(recorded(PAGE.read_text(encoding="utf-8"), "\n".join(parts)), encoding="utf-8")
    print(f"written: {out / 'tools.md'}", flush=True)
    return min(wrong, 1)


def recorded(page: str, text: str) -> str:
    """The page with a recording in place of the one before."""
    made, count = PART.subn(lambda match: f"{match[1]}{text.rstrip()}\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE} has {count} places for a recording; it needs one, between the two comments")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
