"""The examples of docs/inspect.md, as they stand there."""

from __future__ import annotations

import re

import pytest

from tests.tools.page_examples import DOCS, block, shell

PAGE = (DOCS / "inspect.md").read_text()


def test_the_example(tmp_path):
    """The tables that are shown are the first ones printed, with the version of Triton aside."""
    pytest.importorskip("typer")
    (tmp_path / "rows.py").write_text(block(PAGE, "python", "def send_rows_kernel") + "\n")
    done = shell(tmp_path, block(PAGE, "sh", "triton-dist inspect"))
    assert done.returncode == 0, done.stderr
    version = re.compile(r"triton \d+\.\d+\.\d+")
    shown = version.sub("triton", block(PAGE, "", "send_rows_kernel for sm_90")).splitlines()
    printed = [line.rstrip() for line in version.sub("triton", done.stdout).splitlines()]
    assert printed[: len(shown)] == shown
    rest = "\n".join(printed[len(shown) :])
    assert "spill instructions 0" in rest and "STG.E" in rest and "barrier of the block" in rest


def test_the_same_in_python(tmp_path):
    (tmp_path / "rows.py").write_text(block(PAGE, "python", "def send_rows_kernel") + "\n")
    (tmp_path / "check.py").write_text(block(PAGE, "python", "inspect_kernel(") + "\n")
    done = shell(tmp_path, "python check.py")
    assert done.returncode == 0, done.stderr
