"""What the tools say of compiled kernels, beside a GPU: ``name: right`` for each part. One process, no torchrun, no waits."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.tools import inspect_kernel, read_library

LIBRARY = Path(__file__).parents[1] / "tools" / "extern_library" / "norms.bc"
"""Bitcode of norms.cu beside it, as clang 19 made it by build-extern."""


@triton_dist.jit
def copy_kernel(source, target, stride, TILE: tl.constexpr):
    lanes = tl.program_id(0) * stride + tl.arange(0, TILE)
    tl.store(target + lanes, tl.load(source + lanes))


@triton_dist.jit
def sort_kernel(source, target, TILE: tl.constexpr):
    lanes = tl.arange(0, TILE)
    tl.store(target + lanes, tl.sort(tl.load(source + lanes)))


def registers_are_the_drivers() -> bool:
    """Registers and spills of ``inspect_kernel`` are those that the driver tells of the loaded kernel."""
    major, minor = torch.cuda.get_device_capability()
    x, out = torch.randn(4096, device="cuda"), torch.empty(4096, device="cuda")
    right = True
    for kernel, arguments, signature, options in (
        (copy_kernel, (x, out, 1024, 1024), "*fp32:16, *fp32:16, i32:16, 1024", {"num_warps": 4}),
        (sort_kernel, (x, out, 4096), "*fp32:16, *fp32:16, 4096", {"num_warps": 4}),
        (sort_kernel, (x, out, 4096), "*fp32:16, *fp32:16, 4096", {"num_warps": 4, "maxnreg": 24}),
    ):
        compiled = kernel[(1,)](*arguments, **options)
        compiled._init_handles()
        found = inspect_kernel(kernel, signature, target=major * 10 + minor, **options).resources
        known = found.registers == compiled.n_regs and (found.spills == 0) == (compiled.n_spills == 0)
        if not known:
            print(
                f"{kernel.__name__} {options}: inspect {found}; driver {compiled.n_regs} registers, {compiled.n_spills} spills", flush=True
            )
        right = right and known and found.shared == compiled.metadata.shared
    return right


def stubs():
    """The stubs of the library, in a folder of their own."""
    folder = Path(tempfile.mkdtemp(prefix="triton_dist_extern_"))
    shutil.copy(LIBRARY, folder / "norms.bc")
    written = read_library(folder / "norms.bc", pure=["squared_norm"], stubs=True).stubs
    spec = importlib.util.spec_from_file_location("norms_extern", written)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["norms_extern"] = module
    return module


norms_extern = stubs()


@triton_dist.jit
def norms_kernel(points, out, words, n):
    point = tl.program_id(0)
    norm = norms_extern.squared_norm(tl.load(points + 2 * point), tl.load(points + 2 * point + 1))
    tl.store(out + point, norm)
    norms_extern.put(words + 2 * point, norms_extern.shifted(n + point, 3), norm > 20.0)


def functions_of_a_library() -> bool:
    points = torch.randn(64, 2, device="cuda") * 4
    out, words = torch.zeros(64, device="cuda"), torch.zeros(64, 2, dtype=torch.int32, device="cuda")
    n = (1 << 34) + 5
    norms_kernel[(64,)](points, out, words, n)
    expected = (points.double() ** 2).sum(1)
    shifted = ((n + torch.arange(64)) >> 3).to(torch.int32)
    right = torch.allclose(out.double(), expected, rtol=1e-6) and torch.equal(words[:, 0].cpu(), shifted)
    return right and torch.equal(words[:, 1].cpu(), torch.where(out.cpu() > 20.0, shifted, 0))


PARTS = [registers_are_the_drivers, functions_of_a_library]


def main() -> None:
    print(f"triton {triton.__version__}, {torch.cuda.get_device_name()}", flush=True)
    for part in PARTS:
        print(f"{part.__name__}: {'right' if part() else 'wrong'}", flush=True)


if __name__ == "__main__":
    main()
