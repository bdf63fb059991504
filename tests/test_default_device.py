"""``torch.set_default_device`` of a program is its own matter: tensors of the package say where they are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from triton_dist.runtime.context_words import first_words
from triton_dist.runtime.cuda import lone_page

SOURCES = Path(__file__).parents[1] / "src" / "triton_dist"
FACTORIES = {
    "arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm",
    "scalar_tensor", "tensor", "zeros",
}  # fmt: skip
FILES = [path for path in sorted(SOURCES.rglob("*.py")) if path.relative_to(SOURCES).parts[0] != "sim"]
"""All but the simulator's, whose default device is the rank's."""


def without_device(text: str) -> list[int]:
    """Lines of calls of torch's factories that take the default device."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func.value) == "torch"
        and call.func.attr in FACTORIES
        and not any(word.arg in ("device", None) for word in call.keywords)
    ]


def test_what_is_found():
    assert without_device(
        "torch.zeros(1, device=d)\ntorch.zeros(1)\nnumpy.zeros(1)\ntorch.ones(2, **options)\nx = [torch.tensor([1])]"
    ) == [2, 5]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_tensors_say_where_they_are(path):
    assert without_device(path.read_text()) == []


@pytest.mark.parametrize("make", [lone_page.lone_words, lambda: first_words(0, 2, 0, 2)])
def test_words_for_kernels_are_on_the_host(make):
    expected = make()
    with torch.device("meta"):
        words = make()
    assert words.device.type == "cpu" and torch.equal(words, expected)
