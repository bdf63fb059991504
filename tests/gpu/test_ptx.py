"""Inline PTX: ``ptx_program.py`` on one GPU."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.ptx_program import NAMES, check


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name, capsys):
    assert check(name), capsys.readouterr().out
