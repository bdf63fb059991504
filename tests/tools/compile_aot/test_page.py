"""The example of docs/aot.md, as it stands there."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from tests.tools.page_examples import DOCS, block, shell
from triton_dist.tools.compile_aot.dispatch import CODES

PAGE = (DOCS / "aot.md").read_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_example(tmp_path):
    pytest.importorskip("typer")
    (tmp_path / "kernels.py").write_text(block(PAGE, "python", "push_kernel") + "\n")
    (tmp_path / "main.c").write_text(block(PAGE, "c", "int main") + "\n")
    done = shell(tmp_path, block(PAGE, "sh", "triton-dist aot"))
    if not os.path.exists("/dev/nvidiactl"):
        assert done.returncode == 1 and done.stdout.splitlines()[-1] == block(PAGE, "", "load_push: -1"), done.stderr
    assert "push: 2 algorithms" in done.stdout


def test_the_codes():
    rows = dict(re.findall(r"^\| (-\d+) `(\w+)` \|", PAGE, re.MULTILINE))
    assert rows == {str(value): name for name, (value, _) in CODES.items()}
