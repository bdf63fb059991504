"""Functions of symm-mem-recipes, whose scripts go on to time them by the profiler.

    triton-dist run --ranks 4 tests/outside/recipes.py FILE

FILE: the recipe's, in a folder of its package. Prints one line on rank 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _SymmetricMemory
from torch.distributed._symmetric_memory import enable_symm_mem_for_group


def _tensor(count: int, dtype: torch.dtype) -> torch.Tensor:
    group_name = dist.group.WORLD.group_name
    enable_symm_mem_for_group(group_name)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return _SymmetricMemory.empty_strided_p2p((count,), (1,), dtype, device, group_name)


def triton_one_shot_all_reduce(recipe) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor = _tensor(8192, torch.bfloat16)
    for number in range(3):
        tensor.fill_(rank + number)
        output = recipe.one_shot_all_reduce(tensor)
        assert output.eq(sum(range(number, number + world_size))).all().item()
        dist.barrier()


def triton_barrier(recipe) -> None:
    handle = _SymmetricMemory.rendezvous(_tensor(4096, torch.uint32).fill_(0))
    recipe.barrier_test(handle)
    assert handle.get_signal_pad(handle.rank).view(torch.int32).eq(0).all().item()


def main() -> int:
    path = Path(sys.argv[1]).resolve()
    sys.path.append(str(path.parents[1]))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    globals()[path.stem](importlib.import_module(f"{path.parent.name}.{path.stem}"))
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{path.stem} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
