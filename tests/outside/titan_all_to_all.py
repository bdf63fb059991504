"""torchtitan's all-to-all of rows whose numbers lie in device memory, forward and backward, against torch's.

    triton-dist run --ranks 4 tests/outside/titan_all_to_all.py FILE

FILE: the operator's, in a folder of its package. Prints one line on rank 0.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

DIM, MOST = 512, 24
"""Elements of a row, and the most rows that a rank sends to another one."""


def all_to_all(operator) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    numbers = torch.randint(1, MOST, (world_size,), dtype=torch.int64, device="cuda")
    rows = symm_mem.empty(MOST * world_size, DIM, dtype=torch.bfloat16, device="cuda")
    rows = rows.normal_().detach().requires_grad_(True)
    operator.OnDeviceAllToAllV.max_output_len = MOST * world_size
    output, got = operator.on_device_all_to_all_v(rows, numbers, dist.group.WORLD)

    wanted_numbers = torch.empty_like(numbers)
    dist.all_to_all_single(wanted_numbers, numbers)
    assert torch.equal(got, wanted_numbers)
    sent, received = int(numbers.sum()), int(wanted_numbers.sum())
    wanted = torch.empty(received, DIM, dtype=torch.bfloat16, device="cuda")
    dist.all_to_all_single(wanted, rows.detach()[:sent].clone(), wanted_numbers.tolist(), numbers.tolist())
    assert torch.equal(output[:received], wanted)

    gradient = torch.zeros_like(output)
    gradient[:received] = torch.randn(received, DIM, device="cuda").to(torch.bfloat16) + rank
    output.backward(gradient)
    back = torch.empty(sent, DIM, dtype=torch.bfloat16, device="cuda")
    dist.all_to_all_single(back, gradient[:received].clone(), numbers.tolist(), wanted_numbers.tolist())
    assert torch.equal(rows.grad[:sent], back)


def main() -> int:
    path = Path(sys.argv[1]).resolve()
    sys.path.append(str(path.parents[1]))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(42 + dist.get_rank())
    all_to_all(importlib.import_module(f"{path.parent.name}.{path.stem}"))
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{path.stem} passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
