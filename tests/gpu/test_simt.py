"""Code for single threads: ``simt_program.py`` on one GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu.simt_program import PARTS

PROGRAM = Path(__file__).parent / "simt_program.py"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("part", PARTS)
def test_on_a_gpu(part):
    done = subprocess.run([sys.executable, str(PROGRAM), part], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == f"{part}: right" and done.returncode == 0, done.stdout + done.stderr
