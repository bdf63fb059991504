"""The examples of docs/check_command.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "check_command.md").read_text()
RING = Path(__file__).parent / "scripts" / "ring.py"


def block(language: str, word: str) -> str:
    """The only code block of a language with that word."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)\n```", PAGE, re.DOTALL) if word in text]
    assert len(found) == 1
    return found[0]


def shell(tmp_path: Path, text: str) -> subprocess.CompletedProcess:
    """Run it where ``triton-dist``, ``pytest`` and ``python`` are those of this interpreter."""
    commands = {
        "triton-dist": "-m triton_dist.tools.cli", "pytest": "-m pytest -p triton_dist.pytest_plugin -p no:cacheprovider", "python": "",
    }  # fmt: skip
    for name, arguments in commands.items():
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-e", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("how", "code", "said"), [("right", 0, "clean"), ("narrow", 1, "findings: ['TD206']"), ("raise", 3, "not checked")]
)
def test_the_step_for_ci(tmp_path, how, code, said):
    text = RING.read_text().replace('sys.argv[1] if len(sys.argv) > 1 else "right"', repr(how))
    (tmp_path / "ring.py").write_text(text)
    done = shell(tmp_path, block("sh", "triton-dist check"))
    assert (done.returncode, done.stdout.strip()) == (code, said), done.stderr


def test_the_test_with_ranks(tmp_path):
    (tmp_path / "test_gather.py").write_text(block("python", "mark.ranks") + "\n")
    done = shell(tmp_path, block("sh", "--td-seeds"))
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
