"""The tables of docs/compatibility.md, made from the names, the tests that are there, and the recorded outside runs.

python -m tests.compatibility.page [--check]
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import sys
from pathlib import Path

from tests.outside.programs import PROGRAMS, SOURCES
from tests.outside.run import RESULTS, key

from .names import EXCEPTIONS, NO, NOTES, SAME, SECTIONS, YES, Section

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
_TABLE = re.compile(r"(<!-- (names|programs) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_of(section: Section, name: str) -> Path | None:
    """The first of the section's test files that uses a name; None if there is none."""
    word = re.compile(rf"(?<![\w]){re.escape(name.rpartition('.')[2])}\b")
    if name.startswith("vector.__"):
        word = re.compile(r"\bmake_vector\b|\bzeros_vector\b")
    return next((path for path in map(ROOT.joinpath, section.tests) if path.exists() and word.search(_text(path))), None)


def exists(section: Section, name: str) -> bool:
    """Whether the name can be imported from its module."""
    try:
        found: object = importlib.import_module(section.module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return True


BODIES = (
    "tests/dialects/bodies.py",
    "tests/language/extra/test_libshmem_device.py",
    "tests/mega_triton_kernel/test_builder.py",
    "tests/mega_triton_kernel/test_ranks.py",
    "tests/mega_triton_kernel/test_tasks.py",
    "tests/sim/test_vectors.py",
    "tests/tools/autotune/bodies.py",
    "tests/tools/compile_bodies.py",
    "tests/tools/profiler/kernels.py",
)
"""What programs of tests/gpu run on GPUs beside their own text."""


def _in_gpu_programs(section: Section, name: str) -> bool:
    """Whether a program of tests/gpu uses the name: as an attribute of its module, or imported from it; or what it runs does."""
    owners = "dl|libshmem_device|language_extra|shmem|utils"
    imported = rf"from {re.escape(section.module)} import (?:\([^)]*|[^\n]*)\b{re.escape(name)}\b"
    word = re.compile(rf"\b(?:{owners})\.{re.escape(name)}\b|{imported}")
    if "." in name:
        method = name.partition(".")[2]
        word = re.compile(r"\bmake_vector\(" if method.startswith("__") else rf"\.{method}\(")
    return any(word.search(_text(path)) for path in [*(ROOT / "tests" / "gpu").glob("*.py"), *map(ROOT.joinpath, BODIES)])


def names_table() -> str:
    """One row a name."""
    lines = ["| name | simulator | GPUs of one host | NVSHMEM | gfx942 | test |", "| --- | --- | --- | --- | --- | --- |"]
    for section in SECTIONS:
        lines.append(f"| **{section.title}** (`{section.module}`) | | | | | |")
        lines += [_row(section, name) for name in section.listed]
    notes = [f"- [{letter}] {text}" for letter, text in NOTES.items() if any(f"[{letter}]" in line for line in lines)]
    return "\n".join([*lines, "", *notes]) + "\n"


WORKS = {"yes", "program", "linked", "as without", "compiled", "-", "host [c]"}
"""What a cell says of a name that works there."""


def unexplained() -> list[str]:
    """Cells that say something else than that the name works, without a note; and names that GPUs only compile."""
    rows = [row.split(" | ") for row in names_table().splitlines() if row.startswith("| `")]
    gaps = [(row[0], cell) for row in rows for cell in row[1:5] if cell.strip("| ") not in (*WORKS, "") and not cell.endswith("]")]
    compiled = [row[0] for row in rows if len(row) > 3 and row[2] == "compiled"]
    return [f"{name}: {cell}" for name, cell in gaps] + [f"{name}: compiled only" for name in compiled]


def _row(section: Section, name: str) -> str:
    if not exists(section, name):
        return f"| `{name}` | not there | | | | |"
    device = section.gfx942 != SAME
    cells = {
        "simulator": {YES: "yes", NO: "no"}[section.simulator],
        "gpus": "no" if section.gpus == NO else "program" if _in_gpu_programs(section, name) else "compiled" if device else "not run",
        "nvshmem": {YES: "yes", NO: "no", SAME: "-"}.get(section.nvshmem, section.nvshmem),
        "gfx942": {YES: "compiled", NO: "no", SAME: "-"}[section.gfx942],
        **EXCEPTIONS.get(name, {}),
    }
    path = test_of(section, name)
    link = f"[{path.name}](../{path.relative_to(ROOT).as_posix()})" if path is not None else ""
    return f"| `{name}` | {cells['simulator']} | {cells['gpus']} | {cells['nvshmem']} | {cells['gfx942']} | {link} |"


def programs_table() -> str:
    """One row a program, for each repository a table."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    tables = []
    for source, url in SOURCES.items():
        programs = [program for program in PROGRAMS if program.source == source]
        checked = any(program.checked for program in programs)
        heads = ["program", "ranks", "on the simulator", *(["the checks said"] if checked else []), "seconds", "on GPUs", "remark"]
        lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
        for program in programs:
            for ranks in program.ranks:
                result = results.get(key(program, ranks), {"outcome": "not run", "seconds": ""})
                name = " ".join((program.path, *program.arguments))
                on = f"{ranks} on {program.nodes} nodes" if program.nodes > 1 else ranks
                said = [result.get("checks", "")] if checked else []
                there = results.get(key(program, ranks, gpus=True))
                gpus = f"{there['outcome']} ({there['card'].removeprefix('NVIDIA ')})" if there else "-" if program.nodes > 1 else "not run"
                cells = (name, on, result["outcome"], *said, result["seconds"], gpus, program.note)
                lines.append(f"| {' | '.join(map(str, cells))} |")
        tables.append("\n".join(lines) + f"\n\nSource: {url}\n")
    return "\n".join(tables)


def rendered(text: str) -> str:
    """The page with its tables made anew."""
    tables = {"names": names_table, "programs": programs_table}
    return _TABLE.sub(lambda match: f"{match[1]}{tables[match[2]]()}{match[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the page is stale")
    check_only = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    if rendered(text) == text:
        return 0
    if check_only:
        print(f"{PAGE.name} is stale; run python -m tests.compatibility.page")
        return 1
    PAGE.write_text(rendered(text), encoding="utf-8")
    print(f"{PAGE.name} is made anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
