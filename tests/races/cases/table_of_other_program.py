"""Programs meet those of their own number only, so each of them tells its peers where its rows are, though all tell the same."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

RACING = ("tl.store(table", "tl.load(told)")


@triton_dist.jit
def exchange_kernel(rows, table, arrived, out, splits, COUNT: tl.constexpr):
    program, size, offset = tl.program_id(0), dl.num_ranks(), tl.arange(0, COUNT)
    peer = (dl.rank() + 1) % size
    tl.store(table + program, tl.load(splits))
    tl.store(rows + program * COUNT + offset, offset + program)
    for other in range(size):
        dl.notify(arrived + program * size + dl.rank(), other, signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(arrived + program * size, size, "sys", "acquire", waitValue=1, cmp="ge")
    told = dl.symm_at(table, peer) + program  # wrong: told = dl.symm_at(table, peer)
    sent = tl.load(told)
    staged = tl.load(dl.symm_at(rows, peer) + program * COUNT + offset, mask=offset < sent, other=0)
    tl.store(out + program * COUNT + offset, staged)


def run():
    rows, table = triton_dist.symm_zeros((2 * 64,), torch.int32), triton_dist.symm_zeros((2,), torch.int32)
    arrived = triton_dist.symm_zeros((2 * triton_dist.world_size(),), torch.int32)
    splits = torch.tensor([40], dtype=torch.int32)
    exchange_kernel[(2,)](rows, table, arrived, torch.zeros(2 * 64, dtype=torch.int32), splits, COUNT=64)
