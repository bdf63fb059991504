"""The table of primitives beside the page that documents them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from triton.runtime.jit import JITFunction

import triton_dist.language as dl
from triton_dist.language.extra import language_extra
from triton_dist.primitives import shmem_functions, shmem_team_functions
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


ROWS_OF_EXTRA = {
    "multimem_st",
    "multimem_ld_reduce",
    "shfl",
    "ballot",
    "syncwarp",
    *(f"atomic_{name}" for name in ("exch", "min", "max", "and", "or", "xor")),
}
"""Rows of which only ``language_extra`` has functions."""

OF_REGIONS = ("extern_call", "simt_exec_region", "extract", "insert", "vector", "make_vector", "zeros_vector")
"""Names of regions, vectors and libraries, which are made of other rows or of none."""


def row_of(function: str) -> str:
    """The table's row behind a function of ``triton_dist.language``."""
    if function.startswith(("wait_", "fence_")):
        return function.partition("_")[0]
    return function.strip("_")


def test_the_page_names_every_function():
    names = {"wait_eq" if name.startswith("wait_") else name for name in dl.__all__}
    assert names - set(documented()) - set(OF_REGIONS) == set()
    public = {name for name, row in PRIMITIVES.items() if not row.internal} - set(SHMEM_PRIMITIVES)
    assert {row_of(name) for name in dl.__all__ if name not in OF_REGIONS} | ROWS_OF_EXTRA == public


def test_the_page_names_every_function_of_language_extra():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in language_extra.__all__ if not re.search(rf"`{name}\b", text) and name not in dl.__all__] == []
    assert [name for name in OF_REGIONS if not re.search(rf"\b{name}\b", text)] == []


def test_the_page_names_every_shmem_function():
    """By itself, or by the name without its suffix."""
    text = PAGE.read_text(encoding="utf-8")
    stems = {re.sub(r"_(thread|warp|block)$", "", name) for name in shmem_functions_defined()}
    assert {stem for stem in stems if not re.search(rf"`{stem}\b", text)} == set()


def shmem_functions_defined() -> list[str]:
    modules = (shmem_functions, shmem_team_functions)
    return [name for module in modules for name, value in vars(module).items() if isinstance(value, JITFunction)]


@pytest.mark.parametrize("name", [name for name in dl.__all__ if name not in OF_REGIONS])
def test_the_page_and_the_table_agree_on_who_calls(name):
    if name.startswith("wait_"):
        name = "wait_eq"
    assert documented()[name] == CALLED_BY[PRIMITIVES[row_of(name)].caller]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_lowers_every_row(target):
    assert set(TARGETS[target]) == {name for name, row in PRIMITIVES.items() if row.result is not Result.CONSTEXPR}
