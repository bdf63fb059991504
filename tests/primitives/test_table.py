"""The table of primitives beside the page that documents them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import triton_dist.language as dl
from triton_dist.primitives.lowering import TARGETS
from triton_dist.primitives.table import PRIMITIVES, SHMEM_PRIMITIVES, Caller, Result

PAGE = Path(__file__).parents[2] / "docs" / "primitives.md"
CALLED_BY = {Caller.ANY: "anyone", Caller.BLOCK: "the block", Caller.THREAD: "each thread"}


def documented() -> dict[str, str]:
    """Who calls each function that the page's first table names."""
    callers = {}
    for line in PAGE.read_text(encoding="utf-8").partition("\n## ")[0].splitlines():
        if line.startswith("| `dl."):
            names, called_by, *_ = (cell.strip() for cell in line.strip("|").split("|"))
            callers |= dict.fromkeys(re.findall(r"dl\.(\w+)", names), called_by)
    return callers


def row_of(function: str) -> str:
    """The table's row behind a function of ``triton_dist.language``."""
    if function.startswith(("wait_", "fence_")):
        return function.partition("_")[0]
    return function.strip("_")


def test_the_page_names_every_function():
    names = {"wait_eq" if name.startswith("wait_") else name for name in dl.__all__}
    assert names - set(documented()) == set()
    assert {row_of(name) for name in dl.__all__} == set(PRIMITIVES) - set(SHMEM_PRIMITIVES)


@pytest.mark.parametrize("name", dl.__all__)
def test_the_page_and_the_table_agree_on_who_calls(name):
    if name.startswith("wait_"):
        name = "wait_eq"
    assert documented()[name] == CALLED_BY[PRIMITIVES[row_of(name)].caller]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_lowers_every_row(target):
    assert set(TARGETS[target]) == {name for name, row in PRIMITIVES.items() if row.result is not Result.CONSTEXPR}
