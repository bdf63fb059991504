"""A kernel for torch's symmetric library, as its page prints it, on this package's heap.

Run it on simulated ranks with ``python examples/21_torch_symm.py``, or with one process a rank, on GPUs or without any, by
``torchrun --nproc-per-node 4 examples/21_torch_symm.py``.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.dialects.torch_symm import (
    BACKEND_DEFAULT,
    BACKEND_NVSHMEM,
    DTYPE_FLOAT32,
    REDUCE_OP_SUM,
    make_context,
    requires_torch_symm,
    symm_all_reduce,
)


def make_my_kernel(backend):
    @requires_torch_symm(backend=backend)
    @triton.jit
    def my_kernel(ctx_ptr, buffer_ptr, status, num_elements: tl.constexpr, backend_hint: tl.constexpr):
        byte_offset: tl.int64 = 0
        n_elems: tl.int64 = num_elements
        result = symm_all_reduce(ctx_ptr, buffer_ptr, byte_offset, n_elems, REDUCE_OP_SUM, DTYPE_FLOAT32, backend_hint)
        tl.store(status, result)

    return my_kernel


my_kernel_dynamic = make_my_kernel(BACKEND_DEFAULT)
my_kernel_nvshmem = make_my_kernel(BACKEND_NVSHMEM)


def run(count: int = 1000) -> list[int]:
    """One rank's host function; returns what ``symm_all_reduce`` returned, after checking the sums."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    codes = []
    for kernel, hint in ((my_kernel_dynamic, BACKEND_DEFAULT), (my_kernel_nvshmem, BACKEND_NVSHMEM)):
        buffer = triton_dist.symm_full((count,), float(rank + 1))
        context = make_context(buffer)  # what torch calls ctx; keep it as long as kernels use it
        status = torch.full((1,), 99, dtype=torch.int32, device=device)
        kernel[(1,)](context, buffer, status, count, hint)
        assert (buffer == sum(range(1, size + 1))).all()
        codes.append(status.item())
    return codes


def main() -> None:
    if "RANK" in os.environ:  # torchrun has started this process, one of several
        triton_dist.initialize()
        codes = {triton_dist.rank(): run()}
        triton_dist.finalize()
    else:
        codes = dict(enumerate(triton_dist.simulate(run, world_size=4)))
    print("; ".join(f"rank {rank}: returned {code}" for rank, code in codes.items()))
    assert all(code == [0, 0] for code in codes.values())


if __name__ == "__main__":
    main()
