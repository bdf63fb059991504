"""A copy to a peer is followed by a signal in the same stream, not by one that may overtake it in another."""

import torch

import triton_dist

RACING = ("copy of", "torch.mul")


def run():
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, word = triton_dist.symm_zeros((1 << 16,), torch.float32), triton_dist.symm_zeros((1,), torch.int32)
    source, copier, other = torch.zeros(1 << 16), triton_dist.Stream(), triton_dist.Stream()
    for stream in (copier, other):
        stream.wait_stream(triton_dist.current_stream())
    after = (rank + 1) % size
    triton_dist.copy_async(triton_dist.symm_peer(inbox, after), source, copier)
    triton_dist.write_value(triton_dist.symm_peer(word, after)[0], 1, copier)  # wrong: copier -> other
    triton_dist.wait_value(word[0], 1, "ge")
    return inbox * 2
