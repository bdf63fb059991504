"""The example of docs/extern.md, as it stands there."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
import triton

import triton_dist
from tests.primitives.compile_targets import source_of, target_of
from tests.tools.extern_library.test_build import REAL
from tests.tools.page_examples import DOCS, block, shell

PAGE = (DOCS / "extern.md").read_text()


@pytest.mark.skipif(REAL is None, reason="needs clang")
def test_the_example(tmp_path, monkeypatch):
    """Built, listed, compiled for Hopper, and run on the simulator by its twins."""
    pytest.importorskip("typer")
    (tmp_path / "norms.cu").write_text(block(PAGE, "cuda", "squared_norm") + "\n")
    done = shell(tmp_path, block(PAGE, "sh", "triton-dist build-extern"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == block(PAGE, "", "library: norms.bc")
    kernel = load_kernel(tmp_path, monkeypatch)
    compiled = triton.compile(source_of(kernel, {"points": "*fp32", "out": "*fp32", "words": "*u32"}, {}), target=target_of(90))
    ptx = compiled.asm["ptx"]
    assert "fma.rn.f32" in ptx and "atom.add" in ptx.replace("atom.global", "atom") and ".extern" not in ptx

    def run():
        points = torch.tensor([3.0, 4.0, 1.0, 2.0])
        out, words = torch.zeros(2), torch.zeros(1, dtype=torch.uint32)
        kernel[(2,)](points, out, words, num_warps=1)
        return out.tolist(), words.tolist()

    assert triton_dist.simulate(run, world_size=1) == [([25.0, 5.0], [64])], "each of 32 threads of two programs counts"


def load_kernel(folder, monkeypatch):
    """The page's kernel, from a file, with the stubs that were written beside it."""
    (folder / "norms_kernels.py").write_text(block(PAGE, "python", "norms_kernel") + "\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "norms_extern", raising=False)
    spec = importlib.util.spec_from_file_location("norms_kernels", folder / "norms_kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.norms_kernel


def test_the_list_is_told_without_clang(tmp_path):
    """What the page says of libraries that are there."""
    pytest.importorskip("typer")
    (tmp_path / "norms.ll").write_text('source_filename = "x"\ndefine float @squared_norm(float %x, float %y) {\n')
    done = shell(tmp_path, "triton-dist build-extern norms.ll")
    assert done.stdout.splitlines() == ["squared_norm(fp32, fp32) -> fp32", "library: norms.ll", "stubs: norms_extern.py"]
