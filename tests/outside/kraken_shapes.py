"""Kraken's operators at small shapes, against torch: those whose own tests take shapes that are too large for the simulator.

    triton-dist run --ranks 4 tests/outside/kraken_shapes.py FILE NAME

FILE: the operator's, in a folder of Kraken's package. NAME: a function below. Prints one line on rank 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def all_gather_matmul() -> None:
    _all_gather_matmul(splits=1)


def all_gather_matmul_of_two_splits() -> None:
    _all_gather_matmul(splits=2)


def _all_gather_matmul(splits: int) -> None:
    import kraken

    rank, world_size = dist.get_rank(), dist.get_world_size()
    a = symm_mem.empty((256, 128), dtype=torch.bfloat16, device="cuda").normal_()
    symm_mem.rendezvous(a, dist.group.WORLD)
    torch.manual_seed(0)
    b = torch.randn((256, 128), device="cuda", dtype=torch.bfloat16).T
    gathered, product = kraken.fused.all_gather_matmul(a, b, splits_per_rank=splits, block_size_m=64, block_size_n=128, group_size_m=2)
    mine = a.clone()
    wanted, products = torch.ops.symm_mem.fused_all_gather_matmul(mine, [b], gather_dim=0, group_name=dist.group.WORLD.group_name)
    assert gathered.shape == (256 * world_size, 128) and torch.equal(gathered[rank * 256 : (rank + 1) * 256], mine)
    torch.testing.assert_close(gathered, wanted)
    torch.testing.assert_close(product, products[0], rtol=1e-1, atol=1e-1)


def gemm_reduce_scatter_ce_persistent() -> None:
    import kraken

    world_size = dist.get_world_size()
    m, n, k = 256 * world_size, 256, 128
    a = torch.randn((m, k), dtype=torch.bfloat16, device="cuda")
    b = torch.randn((n, k), dtype=torch.bfloat16, device="cuda").t()
    result = kraken.fused.gemm_reduce_scatter_ce_persistent(a, b)
    wanted = torch.empty((m // world_size, n), device="cuda", dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(wanted, torch.matmul(a, b))
    torch.testing.assert_close(result, wanted, atol=1.0, rtol=1e-1)


OPERATORS = {
    function.__name__: function for function in (all_gather_matmul, all_gather_matmul_of_two_splits, gemm_reduce_scatter_ce_persistent)
}


def main() -> int:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(42 + dist.get_rank())
    path, name = sys.argv[1:]
    sys.path.append(str(Path(path).resolve().parents[2]))
    OPERATORS[name]()
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{name} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
