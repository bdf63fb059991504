"""The source of a copy is overwritten while the copy engine may still read it."""

import torch

import triton_dist

RACING = ("copy of", "torch.fill_")


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, source = triton_dist.symm_zeros((1 << 16,), torch.float32), torch.zeros(1 << 16)
    main, copier = triton_dist.current_stream(), triton_dist.Stream()
    copier.wait_stream(main)
    triton_dist.copy_async(triton_dist.symm_peer(inbox, (rank + 1) % size), source, copier)
    main.wait_stream(copier)  # wrong: pass
    source.fill_(1.0)
