"""All-gather + GEMM: every rank multiplies the rows of all ranks by its own columns, while the rows still arrive.

Run it on simulated ranks with ``python examples/02_ag_gemm.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 4 examples/02_ag_gemm.py``.
"""

from __future__ import annotations

import math
import os

import torch

import triton_dist
from triton_dist.ops import ag_gemm

ROWS, COLUMNS, DEPTH = 96, 80, 128


def run(calls: int = 3) -> float:
    """One rank's host function; returns the largest error relative to torch in float64, over several calls on the same buffers."""
    rank, world_size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    worst = 0.0
    for call in range(calls):
        a = torch.randn(world_size * ROWS, DEPTH, generator=torch.Generator().manual_seed(call), dtype=torch.bfloat16).to(device)
        b = torch.randn(DEPTH, COLUMNS, generator=torch.Generator().manual_seed(1000 * call + rank), dtype=torch.bfloat16).to(device)
        out = ag_gemm(a[rank * ROWS : (rank + 1) * ROWS], b)
        reference = a.double() @ b.double()
        difference = (out.double() - reference).abs().nan_to_num(nan=math.inf)
        worst = max(worst, (difference.max() / reference.abs().max()).item())
    return worst


def main() -> None:
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        errors = {triton_dist.rank(): run()}
        triton_dist.finalize()
    else:
        errors = dict(enumerate(triton_dist.simulate(run, world_size=4)))
    print("largest relative error:", ", ".join(f"{error:.4f} on rank {rank}" for rank, error in errors.items()))
    assert max(errors.values()) < 0.01


if __name__ == "__main__":
    main()
