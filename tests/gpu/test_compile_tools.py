"""``compile_tools_program.py`` on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).parent / "compile_tools_program.py"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_the_tools_say():
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[1:] == ["registers_are_the_drivers: right", "functions_of_a_library: right"]
