"""Programs of ``cases/`` that are right, and wrong by one line: the lint whose code the case names finds the wrong one in any schedule.

The form is that of tests/races. ``CODE`` is what is found at a line that has ``LINE`` in it, ``CHECK`` what is asked for ("lint" if
it is left out), ``WORLD_SIZES`` by how many ranks (2 and 4), ``VERSIONS`` of Triton by which it is wrong (all).
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import triton

from tests.races.corpus import load_case, load_file
from triton_dist import simulate
from triton_dist.errors import DeadlockError, MisuseWarning, SimulationError
from triton_dist.lints.running import RUNNING

DIRECTORY = Path(__file__).parent / "cases"
CASES = sorted(path.stem for path in DIRECTORY.glob("*.py"))
WORLD_SIZES = (2, 4)
SEEDS = 3
NOT_SILENCED = ("TD104", "TD105", "TD111")


def run(module, world_size: int, seed: int, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MisuseWarning)
        simulate(module.run, world_size, check=check, seed=seed)


def found(module, world_size: int, seed: int, check, silenced: bool = False) -> str:
    """What a program is told, "" for nothing."""
    try:
        run(module, world_size, seed, check)
    except DeadlockError as error:
        return str(error) if error.code == module.CODE else ""  # a program that is wrong may hang, found or not
    except SimulationError as error:
        if silenced and error.code in NOT_SILENCED:
            return ""  # what it leads to
        assert error.code == module.CODE, error
        return str(error)
    except MisuseWarning as warning:
        assert module.CODE in str(warning)
        return str(warning)
    return ""


@pytest.mark.parametrize("case", CASES)
def test_the_right_program_is_silent(case, tmp_path):
    right = load_case(case, tmp_path, wrong=False, cases=DIRECTORY)
    for world_size in getattr(right, "WORLD_SIZES", WORLD_SIZES):
        for seed in range(SEEDS):
            run(right, world_size, seed, getattr(right, "CHECK", "all"))


def lines_of(module) -> list[int]:
    """Numbers of the source lines that the case tells of."""
    text = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(text, 1) if module.LINE in line and not line.startswith("LINE =")]


@pytest.mark.parametrize("case", CASES)
def test_the_wrong_program_is_named(case, tmp_path):
    wrong = load_case(case, tmp_path, wrong=True, cases=DIRECTORY)
    if not triton.__version__.startswith(getattr(wrong, "VERSIONS", "")):
        pytest.skip("this Triton does not do it")
    places = [f"{Path(wrong.__file__).name}:{number}" for number in lines_of(wrong)]
    for world_size in getattr(wrong, "WORLD_SIZES", WORLD_SIZES):
        for seed in range(SEEDS):
            text = found(wrong, world_size, seed, getattr(wrong, "CHECK", "lint"))
            assert any(place in text for place in places), (world_size, seed, text)


@pytest.mark.parametrize("case", CASES)
def test_a_comment_silences_it(case, tmp_path):
    wrong = load_case(case, tmp_path, wrong=True, cases=DIRECTORY)
    if wrong.CODE in NOT_SILENCED:
        pytest.skip("there is no memory to access, or no way to run the call")
    path, numbers = Path(wrong.__file__), lines_of(wrong)
    text = path.read_text(encoding="utf-8").splitlines()
    path = path.with_name(f"{case}_silenced.py")
    path.write_text("\n".join(f"{line}  # td: ignore[{wrong.CODE}]" if n in numbers else line for n, line in enumerate(text, 1)))
    module = load_file(path)
    for seed in range(SEEDS):
        text = found(module, getattr(wrong, "WORLD_SIZES", WORLD_SIZES)[0], seed, getattr(wrong, "CHECK", "lint"), silenced=True)
        assert not text


def test_every_lint_has_a_case():
    texts = [(DIRECTORY / f"{case}.py").read_text(encoding="utf-8") for case in CASES]
    assert {match[1] for text in texts for match in re.finditer(r'^CODE, .* = "(TD\d+)"', text, re.MULTILINE)} == {
        lint.code for lint in RUNNING
    }
