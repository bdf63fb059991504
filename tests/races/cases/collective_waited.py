"""The result of an asynchronous collective is used before it was waited for."""

import torch

import triton_dist

RACING = ("all_reduce of ranks", "torch.mul")


def run():
    torch.distributed.init_process_group("nccl")
    x = torch.ones(64, device=triton_dist.device())
    work = torch.distributed.all_reduce(x, async_op=True)
    work.wait()  # wrong: pass
    y = x * 2
    work.wait()
    return y
