"""``triton_dist.jit``: what it rewrites, what stays as it is, its cache key, and the lines that errors name."""

from __future__ import annotations

import ast
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist import errors, jit_function
from triton_dist.language import extract
from triton_dist.primitives import region
from triton_dist.primitives.source_rewrite import needs_rewrite, rewrite

from .kernel_text import load_module

SCOPE = {"dl": dl, "tl": tl, "region": dl.simt_exec_region, "extract": extract}


def rewritten(body: str) -> ast.FunctionDef:
    tree = ast.parse("def kernel(t, u, n):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    "))
    function = rewrite(tree, SCOPE, "kernel.py", 11).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def calls(function: ast.AST) -> list[tuple[str, int]]:
    """Name and line of each builtin that a rewritten tree calls."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Constant)]
    return sorted(((node.func.value.__name__, node.lineno) for node in found), key=lambda call: call[1])


def test_a_region_becomes_statements_on_their_own_lines():
    function = rewritten(
        """
        with dl.simt_exec_region() as (i, m):
            t[i] = u[i, 0]
            t[0] += 1
        n = t[:, None]
        """
    )
    assert calls(function) == [("enter_region", 2), ("exit_region", 2), ("set_element", 3), ("get_element", 3), ("update_element", 4)]
    entry = function.body[0]
    assert isinstance(entry, ast.Assign) and ast.unparse(entry.targets[0]) == "(i, m)"
    assert entry.value.args[0].value == ("t", "u"), "the names of which elements are taken, in order"
    assert [statement.lineno for statement in function.body] == [2, 3, 4, 2, 5]


@pytest.mark.parametrize("text", ["with region():\n    extract(t, [0])", "with region():\n    extract(input=t, indices=[0])"])
def test_names_are_looked_up_in_the_scope(text):
    function = rewritten(text)
    assert function.body[0].value.args[0].value == ("t",)


def test_subscripts_are_assigned_outside_of_a_region_too():
    assert calls(rewritten("t[0] = t[1] + 1")) == [("set_element", 2)], "reading one is stock Triton's outside"


@pytest.mark.parametrize("text", ["u = t[:, None] + n", "with tl.something():\n    u = t[0]", "for i in range(n):\n    u = t[i]"])
def test_everything_else_stays(text):
    tree = ast.parse(f"def kernel(t, u, n):\n{textwrap.indent(text, '    ')}")
    before = ast.dump(tree, include_attributes=True)
    assert ast.dump(rewrite(tree, SCOPE), include_attributes=True) == before
    assert needs_rewrite(tree) == text.startswith("with")


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("with region() as i:\n    pass", 12, "gives two values: write 'as \\(thread_idx, num_threads\\)'"),
        ("with region() as (i, m, k):\n    pass", 12, "gives two values"),
        ("with region(1):\n    pass", 12, "takes no argument"),
        ("with region(), tl.other():\n    pass", 12, "stands alone"),
        ("with region():\n    n = 1\n    with dl.simt_exec_region():\n        pass", 14, "inside another one"),
        ("with region():\n    for i in range(3):\n        return", 14, "return inside simt_exec_region"),
        ("t[0], u = n, n", 12, "assign them one after the other"),
        ("t[0] = u = n", 12, "assign them one after the other"),
        ("t[0]: tl.tensor = n", 12, "no annotation"),
        ("t[0:2] = n", 12, "a slice can't be assigned"),
        ("t[None] = n", 12, "a slice can't be assigned"),
        ("t.u[0] = n", 12, "what a variable names"),
        ("t[0][1] = n", 12, "what a variable names"),
        ("t[0] **= n", 12, "can't update an element"),
    ],
)
def test_what_has_no_meaning_is_named_with_file_and_line(text, line, message):
    with pytest.raises(errors.KernelSourceError, match=rf"kernel.py:{line}: .*{message}"):
        rewritten(text)


KERNEL = """
import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl


@triton_dist.jit(
    do_not_specialize=["value"],
)
def element_kernel(out, value):
    tile = tl.zeros((4,), tl.int32)
    with dl.simt_exec_region():
        tile[INDEX] = value
    tl.store(out + tl.arange(0, 4), tile)


@triton.jit
def user_kernel(out):
    element_kernel(out, 1)


@triton_dist.jit
def plain_kernel(out):
    tl.store(out, 1)
"""


def test_the_text_is_the_users():
    module = load_module(KERNEL.replace("INDEX", "2"))
    assert "with dl.simt_exec_region():" in module.element_kernel.src and "enter_region" not in module.element_kernel.src
    assert isinstance(module.element_kernel, triton.runtime.jit.JITFunction)
    assert [parameter.do_not_specialize for parameter in module.element_kernel.params] == [False, True]
    out = torch.zeros(4, dtype=torch.int32)
    module.element_kernel[(1,)](out, 1)
    assert out.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("kernel", ["element_kernel", "user_kernel"])
def test_the_cache_key_covers_the_rewriting(kernel, monkeypatch):
    def key(text):
        return getattr(load_module(text), kernel).cache_key

    text = KERNEL.replace("INDEX", "2")
    before, unchanged = key(text), load_module(text).plain_kernel.cache_key
    assert key(text) == before
    assert key(KERNEL.replace("INDEX", "3")) != before
    monkeypatch.setattr(jit_function, "_stamp", lambda: "of other lowerings")
    assert key(text) != before
    assert load_module(text).plain_kernel.cache_key == unchanged, "what is not rewritten has Triton's own key"


def test_a_wrong_region_names_the_users_file_and_line():
    module = load_module(KERNEL.replace("tile[INDEX] = value", "return"))
    with pytest.raises(errors.KernelSourceError, match=rf"{module.__file__}:14: return inside"):
        module.element_kernel[(1,)](torch.zeros(4, dtype=torch.int32), 1)


def test_a_compile_error_points_at_the_users_text():
    module = load_module(KERNEL.replace("INDEX", "7"))
    with pytest.raises(CompilationError) as caught:
        module.element_kernel[(1,)](torch.zeros(4, dtype=torch.int32), 1)
    text = str(caught.value)
    assert "at 4:8:" in text and "tile[7] = value\n        ^" in text
    assert "index 7 is outside dimension 0, which has 4 elements" in text


def test_a_changed_text_is_compiled_again():
    """``_unsafe_update_src`` is how Triton's own tests and tools replace a kernel's text."""
    module = load_module(KERNEL.replace("INDEX", "2"))
    before = module.element_kernel.cache_key
    module.element_kernel._unsafe_update_src(module.element_kernel.src.replace("tile[2]", "tile[3]"))
    assert module.element_kernel.cache_key != before
    out = torch.zeros(4, dtype=torch.int32)
    module.element_kernel[(1,)](out, 1)
    assert out.tolist() == [0, 0, 0, 1]


def test_a_name_of_the_kernel_may_be_that_of_a_helper():
    @triton_dist.jit
    def kernel(out, enter_region):
        set_element = tl.zeros((4,), tl.int32)
        with dl.simt_exec_region():
            set_element[1] = enter_region
        tl.store(out + tl.arange(0, 4), set_element)

    out = torch.zeros(4, dtype=torch.int32)
    kernel[(1,)](out, 6)
    assert out.tolist() == [0, 6, 0, 0]


def test_the_region_is_found_in_a_closure():
    exec_region, size = region.simt_exec_region, tl.constexpr(8)

    @triton_dist.jit
    def kernel(out):
        tile = tl.zeros((size,), tl.int32)
        with exec_region():
            tile[5] = 4
        tl.store(out + tl.arange(0, size), tile)

    out = torch.zeros(8, dtype=torch.int32)
    kernel[(1,)](out)
    assert out.tolist() == [0, 0, 0, 0, 0, 4, 0, 0]


def test_every_kernel_that_is_compiled_is_prepared(monkeypatch):
    """Once for each compilation, before Triton loads it; also where Triton compiles in another thread."""
    prepared = []
    monkeypatch.setattr(jit_function, "prepare_kernel", lambda kernel, backend: prepared.append((kernel.metadata.name, backend)))
    module = load_module(KERNEL.replace("INDEX", "1") + "# prepared\n")
    out = torch.zeros(4, dtype=torch.int32)
    for value in (3, 4):
        module.element_kernel[(1,)](out, value)
    assert [name for name, _ in prepared] == ["element_kernel"] and hasattr(prepared[0][1], "pack_metadata")
    assert out.tolist() == [0, 4, 0, 0]
