"""The examples of docs/check_command.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.page_examples import DOCS, block, shell

pytest.importorskip("typer")

PAGE = (DOCS / "check_command.md").read_text()
RING = Path(__file__).parent / "scripts" / "ring.py"


@pytest.mark.parametrize(
    ("how", "code", "said"), [("right", 0, "clean"), ("narrow", 1, "findings: ['TD206']"), ("raise", 3, "not checked")]
)
def test_the_step_for_ci(tmp_path, how, code, said):
    text = RING.read_text().replace('sys.argv[1] if len(sys.argv) > 1 else "right"', repr(how))
    (tmp_path / "ring.py").write_text(text)
    done = shell(tmp_path, block(PAGE, "sh", "triton-dist check"))
    assert (done.returncode, done.stdout.strip()) == (code, said), done.stderr


def test_the_test_with_ranks(tmp_path):
    (tmp_path / "test_gather.py").write_text(block(PAGE, "python", "mark.ranks") + "\n")
    done = shell(tmp_path, block(PAGE, "sh", "--td-seeds"))
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout + done.stderr


def test_the_report_that_is_shown(tmp_path):
    """The line of the report, up to where it is cut."""
    place, _, rest = PAGE.partition("ring.py:")[2].partition(":")
    line = RING.read_text().splitlines()[int(place) - 1]
    assert "tl.store(dl.symm_at(" in line
    assert rest.lstrip().startswith(
        "TD206 narrow-remote-access (in pass_on_kernel): for sm_90 this writes another rank's memory by 4 bytes a thread"
    )


def test_options_that_the_page_names():
    help_text = subprocess.run(
        [sys.executable, "-m", "triton_dist.tools.cli", "check", "--help"],
        capture_output=True, text=True, timeout=100, env={**os.environ, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"},
    ).stdout  # fmt: skip
    usage = PAGE.partition("```\n")[2].partition("```")[0]
    named = set(re.findall(r"--[a-z-]+", usage))
    assert named and named <= set(re.findall(r"--[a-z-]+", help_text)), named - set(re.findall(r"--[a-z-]+", help_text))
