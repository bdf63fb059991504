"""A clone in another folder shares Triton's cache with the first one, and its errors name its own files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HELPER = """
import triton
import triton.language as tl


@triton.jit
def read(x, offset):
    return tl.load(x + offset)
"""

PROGRAM = """
import sys
import torch
import triton
import triton.language as tl
import triton_dist
from helper import read


@triton.jit
def direct_kernel(x):
    tl.store(x + 100, 1.0)


@triton.jit
def through_helper_kernel(x):
    tl.store(x, read(x, 100))


def run(kernel):
    kernel[(1,)](torch.zeros(4))


for kernel in (direct_kernel, through_helper_kernel):
    try:
        triton_dist.simulate(run, 1, args=(kernel,))
    except triton_dist.errors.OutOfBoundsError as error:
        print(error)
"""


def run_in(folder, cache) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "helper.py").write_text(HELPER)
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, folder / "program.py"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("second", ["elsewhere/deep", "b"])
def test_errors_name_the_files_of_this_clone(tmp_path, second):
    cache = tmp_path / "cache"
    for folder in (tmp_path / "a", tmp_path / second):
        said = run_in(folder, cache)
        compiled = sorted(path.name for path in cache.iterdir())
        assert f"{folder}/program.py:12" in said and f"{folder}/helper.py:8" in said
    assert sorted(path.name for path in cache.iterdir()) == compiled
    # The other way round, too: the first clone, from the cache alone.
    assert f"{tmp_path}/a/program.py:12" in run_in(tmp_path / "a", cache)
