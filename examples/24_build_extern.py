"""A function of a user's own library in a kernel: LLVM code becomes a stub that kernels call, with a twin for the simulator.

Run it on simulated ranks with ``python examples/24_build_extern.py``, or on GPUs, where the library's own code runs, by
``torchrun --nproc-per-node 2 examples/24_build_extern.py``. From CUDA C++ the same comes of ``triton-dist build-extern norms.cu``, which
needs clang; here the library is written in LLVM's text, so that nothing is needed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.ops import barrier
from triton_dist.tools import read_library

LIBRARY = """\
target triple = "nvptx64-nvidia-cuda"

define float @squared_norm(float %x, float %y) {
  %xx = fmul float %x, %x
  %yy = fmul float %y, %y
  %sum = fadd float %xx, %yy
  ret float %sum
}
"""


def stubs(folder: Path):
    """The module of stubs that ``read_library`` writes for the library."""
    path = folder / "norms.ll"
    path.write_text(LIBRARY)
    library = read_library(path, pure=["squared_norm"], stubs=True)
    print(f"functions of {path.name}: {', '.join(function.text() for function in library.functions)}", flush=True)
    spec = importlib.util.spec_from_file_location("norms_extern", library.stubs)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["norms_extern"] = module
    return module


norms_extern = stubs(Path(tempfile.mkdtemp()))


@triton_dist.extern_twin("squared_norm")
def squared_norm_twin(x, y):
    return x * x + y * y


@triton_dist.jit
def norms_kernel(points, norms):
    """One program a point; the norms of this rank's points go to the next rank."""
    point = tl.program_id(0)
    norm = norms_extern.squared_norm(tl.load(points + 2 * point), tl.load(points + 2 * point + 1))
    tl.store(dl.symm_at(norms, (dl.rank() + 1) % dl.num_ranks()) + point, norm)


def run() -> float:
    """The largest error of the norms that the rank before sent."""
    rank, size, count = triton_dist.rank(), triton_dist.world_size(), 64
    points = [torch.randn(count, 2, generator=torch.Generator().manual_seed(each)) for each in range(size)]
    norms = triton_dist.symm_zeros((count,), torch.float32)
    norms_kernel[(count,)](points[rank].to(triton_dist.device()), norms)
    barrier()
    triton_dist.synchronize()
    return (norms.cpu() - (points[(rank - 1) % size] ** 2).sum(1)).abs().max().item()


def main() -> None:
    if "RANK" in os.environ:
        triton_dist.initialize()
        errors = {triton_dist.rank(): run()}
        triton_dist.finalize()
    else:
        errors = dict(enumerate(triton_dist.simulate(run, 2)))
    for rank, error in errors.items():
        print(f"rank {rank}: the largest error is {error:.1e}", flush=True)
        assert error < 1e-5


if __name__ == "__main__":
    main()
