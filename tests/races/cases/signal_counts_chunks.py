"""Chunks that are put at once need a signal each: a count says how many have come, not which (as in NVIDIA/nvshmem issue 84)."""

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device as shmem

RACING = ("putmem_signal_nbi_block", "tl.load(data")


@triton_dist.jit
def chunks_kernel(data, flag, out, COUNT: tl.constexpr, WORDS: tl.constexpr):
    place, after = tl.arange(0, COUNT), (shmem.my_pe() + 1) % shmem.n_pes()
    for chunk in range(3):
        start, word = chunk * COUNT, flag + chunk % WORDS
        shmem.putmem_signal_nbi_block(data + start, out + start, COUNT * 4, word, 1, shmem.NVSHMEM_SIGNAL_ADD, after)
    for chunk in range(3):
        if dl.tid(0) == 0:
            shmem.signal_wait_until(flag + chunk % WORDS, shmem.NVSHMEM_CMP_GE, chunk // WORDS + 1)
        dl.__syncthreads()
        tl.store(out + 3 * COUNT + place, tl.load(data + chunk * COUNT + place))


def run():
    data, flag = triton_dist.symm_zeros((192,), torch.int32), triton_dist.symm_zeros((4,), torch.int64)
    out = torch.zeros(256, dtype=torch.int32, device=triton_dist.device())
    chunks_kernel[(1,)](data, flag, out, COUNT=64, WORDS=3)  # wrong: WORDS=3 -> WORDS=1
