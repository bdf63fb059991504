"""How the programs here run their parts: one line each, and a part that fails on one rank leaves the others to be run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence

import torch.distributed as dist

import triton_dist


def run_parts(parts: Sequence[Callable[[], bool]], names: Sequence[str]) -> int:
    """Run the parts with these names, or all if there is none, on every rank, and leave the world. Returns the exit code."""
    wrong_parts = 0
    for part in parts:
        if names and part.__name__ not in names:
            continue
        right, begun = False, time.monotonic()
        try:
            right = part()
        except Exception:
            print(f"rank {triton_dist.rank()}, {part.__name__}:\n{traceback.format_exc()[-3000:]}", flush=True)
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, right)
        wrong = [rank for rank, there in enumerate(everyone) if not there]
        wrong_parts += bool(wrong)
        if triton_dist.rank() == 0:
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}", flush=True)
            print(f"  {time.monotonic() - begun:.1f} s", flush=True)
    triton_dist.finalize()
    return min(wrong_parts, 1)
