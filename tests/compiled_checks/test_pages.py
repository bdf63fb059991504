"""The pages of docs/lints: the right form of each example has nothing to report, the wrong one what is printed there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import triton

from tests.compiled_checks.test_right_and_wrong import VERSION
from tests.kernel_text import load_module
from tests.primitives.compile_targets import source_of
from triton_dist.compiled_checks.verify import verify
from triton_dist.lints import LINTS, Finding
from triton_dist.lints.compiled import COMPILED

PAGES = Path(__file__).parents[2] / "docs" / "lints"
IMPORTS = "import triton\nimport triton.language as tl\n\nimport triton_dist.language as dl\n\n"

PRODUCT = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "words": "*i32", "K": "i32"}
BOXES = {"a": "tensordesc<fp16[128,64]>", "b": "tensordesc<fp16[128,64]>", "c": "tensordesc<fp16[128,128]>"}
GEMM = {**BOXES, "words": "*i32", "m_tiles": "i32", "tiles": "i32", "K": "i32"}


@dataclasses.dataclass(frozen=True)
class Case:
    """How the example of a page is launched. since: Triton version that compiles the wrong form so."""

    types: dict[str, str]
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)
    aligned: tuple[str, ...] = ()
    arch: int = 90
    since: tuple[int, int] = (3, 6)


CASES = {
    "TD201": Case(PRODUCT, aligned=("a", "b", "c", "K")),
    "TD202": Case({"words": "*i32", "out": "*fp32", "n": "i32"}, {"TILE": 128}),
    "TD203": Case(GEMM, aligned=("K",), arch=100, since=(3, 7)),
    "TD204": Case(GEMM, aligned=("K",), arch=100, since=(3, 7)),
    "TD205": Case(PRODUCT, aligned=("a", "b", "c", "K")),
    "TD206": Case({"source": "*fp16", "target": "*fp16", "peer": "i32", "stride": "i32"}, {"TILE": 1024}, ("source", "target")),
    "TD207": Case({**BOXES, "words": "*i32", "K": "i32"}, aligned=("K",)),
    "TD208": Case({"data": "*fp32", "words": "*i32", "out": "*fp32", "n": "i32"}, {"TILE": 128}),
}  # fmt: skip


def read_page(code: str) -> tuple[str, str, str, str]:
    """The right form, what the wrong one has, in place of what, and the report."""
    text = (PAGES / f"{code}.md").read_text()
    right = re.search(r"```python\n(.*?)\n```", text, re.DOTALL)
    change = re.search(
        r"Wrong is\s(?:`([^`]*)`|\s*```python\n(.*?)\n```)\s+in\splace\sof\s`([^`]*)`:\n\n```\n([^`]*)\n```", text, re.DOTALL
    )
    return right[1], change[1] or change[2], change[3], change[4]


def wrong_form(code: str) -> str:
    """The example with the wrong lines, indented as the right one."""
    right, wrong, instead, _ = read_page(code)
    assert right.count(instead) == 1, f"{instead!r} stands once in the example"
    line = next(line for line in right.splitlines() if instead in line)
    indentation = line[: len(line) - len(line.lstrip())]
    return right.replace(instead, wrong.replace("\n", "\n" + indentation))


def findings_of(text: str, case: Case) -> list[Finding]:
    module = load_module(IMPORTS + text + "\n")
    kernel = next(
        value for value in vars(module).values() if isinstance(value, triton.runtime.JITFunction) and value.__module__ == module.__name__
    )
    found = verify(source_of(kernel, case.types, case.constants, case.aligned), {"num_stages": 3}, (case.arch,))
    return [
        dataclasses.replace(one, file="example.py", message=one.message.replace(module.__file__, "example.py")) for one in found
    ]  # fmt: skip


def compiled_page(code: str) -> tuple[list[Finding], list[Finding]]:
    """Findings of the right form and of the wrong one."""
    return findings_of(read_page(code)[0], CASES[code]), findings_of(wrong_form(code), CASES[code])


def test_every_code_has_a_page_and_a_case():
    assert {lint.code for lint in COMPILED} == set(CASES)
    for code in CASES:
        text = (PAGES / f"{code}.md").read_text()
        assert text.startswith(f"# {code} {LINTS[code].name}\n\n{LINTS[code].summary}\n")
        assert f"`# td: ignore[{code}]`" in text


@pytest.mark.parametrize("code", CASES)
def test_the_example_of_a_page(code):
    if CASES[code].since > VERSION:
        pytest.skip(f"Triton {triton.__version__} does not compile it so")
    right, wrong = compiled_page(code)
    assert right == []
    assert " ".join(read_page(code)[3].split()) == " ".join(" ".join(map(str, wrong)).split())


@pytest.mark.parametrize("code", CASES)
def test_the_example_can_be_silenced(code):
    if CASES[code].since > VERSION:
        pytest.skip(f"Triton {triton.__version__} does not compile it so")
    text = wrong_form(code)
    lines = (IMPORTS + text).splitlines()
    found = findings_of(text, CASES[code])
    for line in {one.line for one in found}:
        lines[line - 1] += f"  # td: ignore[{', '.join(one.code for one in found)}]"
    assert findings_of("\n".join(lines).removeprefix(IMPORTS), CASES[code]) == []
