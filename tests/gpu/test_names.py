"""``names_program.py`` on one GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).parent / "names_program.py"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_names_on_a_gpu():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": right") == 10, done.stdout
