"""Code blocks of a page of docs, and a shell to run them in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str, word: str) -> str:
    """The only code block of a language with that word in a page's text; language "" for a block that names none."""
    blocks = re.findall(r"^```(\w*)\n(.*?)\n```$", page, re.DOTALL | re.MULTILINE)
    found = [text for name, text in blocks if name == language and word in text]
    assert len(found) == 1
    return found[0]


def shell(folder: Path, text: str) -> subprocess.CompletedProcess:
    """Run it in a folder, where ``triton-dist``, ``pytest`` and ``python`` are those of this interpreter."""
    commands = {
        "triton-dist": "-m triton_dist.tools.cli", "pytest": "-m pytest -p triton_dist.pytest_plugin -p no:cacheprovider", "python": "",
    }  # fmt: skip
    for name, arguments in commands.items():
        command = folder / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
