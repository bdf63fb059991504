"""Two peers signal by one word that is reset between; each group of ranks needs a word of its own."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

CODE, LINE = "TD110", "dl.notify(word, 0, signal=1"
WORLD_SIZES = (3, 4)


@triton_dist.jit
def gather_kernel(ready, WORDS: tl.constexpr):
    me = dl.rank()
    for peer in range(1, 3):
        word = ready + peer % WORDS
        if me == peer:
            dl.notify(word, 0, signal=1, sig_op="set", comm_scope="intra_node")
        if me == 0:
            dl.wait(word, 1, "sys", "acquire", waitValue=1)
            dl.notify(word, 0, signal=0, sig_op="set", comm_scope="intra_node")


def run():
    gather_kernel[(1,)](triton_dist.symm_zeros((4,), torch.int32), WORDS=4)  # wrong: WORDS=4 -> WORDS=1
