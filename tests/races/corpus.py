"""The cases of ``cases/``: programs that are right, and wrong by one line.

The line has the comment ``# wrong: <what stands there in the wrong program>``, or ``# wrong: <this text> -> <that text>``. ``RACING``
are parts of the two source lines, or of what a stream, a host or a collective does, that race then. ``run()`` is what each rank runs.
``SEEDS`` is there where the race shows only in schedules in which a rank is late: so many seeds find it. ``TRITON_BEFORE`` is there where
later versions of Triton order what the wrong program leaves unordered.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import triton

from triton_dist.sim.check import Race

DIRECTORY = Path(__file__).parent / "cases"
_TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])
_BEFORE = re.compile(r"^TRITON_BEFORE = \((\d+), (\d+)\)$", re.MULTILINE)


def _applies(path: Path) -> bool:
    found = _BEFORE.search(path.read_text(encoding="utf-8"))
    return found is None or tuple(map(int, found.groups())) > _TRITON


CASES = sorted(path.stem for path in DIRECTORY.glob("*.py") if _applies(path))
_WRONG = re.compile(r"^( *)(.*)  # wrong: (.*)$", re.MULTILINE)


def load_case(name: str, directory: Path, *, wrong: bool, cases: Path = DIRECTORY) -> ModuleType:
    """The right or the wrong form of a case, from a file in ``directory`` without the comment that tells of the other one."""
    source = (cases / f"{name}.py").read_text(encoding="utf-8")
    assert len(_WRONG.findall(source)) == 1, f"{name} has to differ in exactly one line"
    source = _WRONG.sub(_wrong_line, source) if wrong else re.sub(r"  # wrong: .*", "", source)
    path = directory / f"{name}_{'wrong' if wrong else 'right'}.py"
    path.write_text(source, encoding="utf-8")
    return load_file(path)


def load_file(path: Path) -> ModuleType:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(f"races_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def _wrong_line(found: re.Match) -> str:
    indent, right, wrong = found.groups()
    this, arrow, that = wrong.partition(" -> ")
    if not arrow:
        return f"{indent}{wrong}"
    assert right.count(this) == 1, f"{this!r} has to stand once in {right!r}"
    return indent + right.replace(this, that)


def names_both(race: Race, racing: tuple[str, str]) -> bool:
    """Whether the two sides of a race are the two that a case tells of."""
    first, second = (_text(side.who, side.line) for side in (race.earlier, race.later))
    return (racing[0] in first and racing[1] in second) or (racing[0] in second and racing[1] in first)


def _text(who: str, line: str) -> str:
    """The source line at ``file:number``, or who it is where there is none."""
    if not line:
        return who
    path, _, number = line.rpartition(":")
    return Path(path).read_text(encoding="utf-8").splitlines()[int(number) - 1]
