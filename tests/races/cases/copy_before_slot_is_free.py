"""The copy engine waits until the peer has read the slot before it fills it again."""

import torch

import triton_dist

RACING = ("copy of", "torch.mul")


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    slot, full = triton_dist.symm_zeros((256,), torch.float32), triton_dist.symm_zeros((1,), torch.int32)
    free, source, copier = triton_dist.symm_zeros((1,), torch.int32), torch.ones(256), triton_dist.Stream()
    copier.wait_stream(triton_dist.current_stream())
    after, before = (rank + 1) % size, (rank + size - 1) % size
    for number in range(1, 4):
        triton_dist.wait_value(free[0], number - 1, "ge", copier)  # wrong: pass
        triton_dist.copy_async(triton_dist.symm_peer(slot, after), source, copier)
        triton_dist.write_value(triton_dist.symm_peer(full, after)[0], number, copier)
        triton_dist.wait_value(full[0], number, "ge")
        out = slot * 2
        triton_dist.write_value(triton_dist.symm_peer(free, before)[0], number)
    triton_dist.current_stream().wait_stream(copier)
    return out
