"""Runs one of Triton-distributed's programs for its ModelBuilder: ``mega_ops.py PROGRAM``.

They import helpers from their own folder, under the name of the package, and flashinfer, of which they use two functions: here by torch.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import types
from pathlib import Path

import torch


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def apply_rope_with_cos_sin_cache_inplace(
    positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor, head_size: int, cos_sin_cache: torch.Tensor, is_neox: bool = True
) -> None:
    """query, key: (tokens, heads * head_size). cos_sin_cache: (positions, head_size), cosines first. Halves of a head turn together."""
    assert is_neox
    cos, sin = cos_sin_cache[positions.flatten()].float().chunk(2, -1)
    for heads in (query, key):
        first, second = heads.view(len(heads), -1, head_size).float().chunk(2, -1)
        turned = torch.cat((first * cos[:, None] - second * sin[:, None], second * cos[:, None] + first * sin[:, None]), -1)
        heads.copy_(turned.view_as(heads))


def main() -> None:
    program = Path(sys.argv[1]).resolve()
    flashinfer = types.ModuleType("flashinfer")
    flashinfer.norm = types.SimpleNamespace(rmsnorm=rmsnorm)
    flashinfer.apply_rope_with_cos_sin_cache_inplace = apply_rope_with_cos_sin_cache_inplace
    sys.modules["flashinfer"] = flashinfer
    helpers = types.ModuleType("triton_dist.mega_triton_kernel.test")
    helpers.__path__ = []
    sys.modules[helpers.__name__] = helpers
    for name in ("torch_impl_utils", "triton_impl_utils"):
        # Not of the package by its own name, whose tensors are all the host's on the simulator.
        spec = importlib.util.spec_from_file_location(name, program.parents[1] / f"{name}.py")
        module = sys.modules[f"{helpers.__name__}.{name}"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.argv = sys.argv[1:]
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
