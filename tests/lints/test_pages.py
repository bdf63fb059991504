"""Each lint of a running program has a page with its example and report, and a row in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from triton_dist.lints import LINTS
from triton_dist.lints.running import RUNNING

from .test_running import DIRECTORY

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "lints" / "README.md"


@pytest.mark.parametrize("lint", RUNNING, ids=lambda lint: lint.code)
def test_a_page_tells_of_the_lint(lint):
    page = (ROOT / lint.page).read_text(encoding="utf-8")
    assert page.startswith(f"# {lint.code} {lint.name}\n\n{lint.summary}\n")
    for heading in ("## Why it is wrong", "## Example", "## What is reported", "## Silence"):
        assert heading in page
    case = DIRECTORY / re.search(r"tests/lints/cases/(\w+\.py)", page)[1]
    source = re.sub(r"  # wrong: .*", "", case.read_text(encoding="utf-8"))
    assert f'"{lint.code}"' in source
    assert source[source.index("@triton_dist.jit") :].rstrip() in page, "the example is the case"


@pytest.mark.parametrize("lint", RUNNING, ids=lambda lint: lint.code)
def test_the_index_has_a_row(lint):
    assert f"| [{lint.code}]({lint.code}.md) | {lint.name} | {lint.summary} |" in INDEX.read_text(encoding="utf-8")


def test_codes_are_distinct_and_in_order():
    codes = [lint.code for lint in RUNNING]
    assert codes == sorted(set(codes))
    assert all(LINTS[code].code == code for code in codes)


def test_pages_are_of_lints_that_exist():
    assert {path.stem for path in INDEX.parent.glob("TD1*.md")} == {lint.code for lint in RUNNING}
