"""Helion's examples at small shapes, against torch: those whose own shapes are too large for the simulator.

    triton-dist run --ranks 4 tests/outside/helion_shapes.py FILE

FILE: the example. Prints one line on rank 0.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem


def all_gather_matmul(example) -> None:
    a = symm_mem.empty(256, 128, dtype=torch.bfloat16, device="cuda").normal_()
    torch.manual_seed(0)
    b = torch.randn((256, 128), device="cuda", dtype=torch.bfloat16).T
    gathered, product = example.helion_all_gather_matmul(a, b)
    wanted, products = torch.ops.symm_mem.fused_all_gather_matmul(a.clone(), [b], gather_dim=0, group_name=dist.group.WORLD.group_name)
    torch.testing.assert_close(gathered, wanted)
    torch.testing.assert_close(product, products[0], rtol=1e-1, atol=1e-1)


def main() -> int:
    path = Path(sys.argv[1]).resolve()
    sys.path.append(str(path.parents[2]))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(42 + dist.get_rank())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    globals()[path.stem](module)
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{path.stem} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
