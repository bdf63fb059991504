"""Kernels that the tests build ahead of time."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.tools import aot_compile_spaces


@aot_compile_spaces(
    {
        "push": {
            "signature": ["*fp32:16, *i32:16, i32:16, %BLOCK", "*fp32:16, *i32, i32, %BLOCK"],
            "grid": ["cdiv(count, %BLOCK)", "1", "1"],
            "triton_algo_infos": [{"BLOCK": 1024, "num_warps": 4}, {"BLOCK": 256, "num_warps": 2}],
        },
        "push_of_four": {"signature": "*fp32, *i32, i32, 64", "grid": ["cdiv(count, BLOCK)", "1", "1"], "world_size": 4},
    }
)
@triton_dist.jit
def push_kernel(data, flags, count, BLOCK: tl.constexpr):
    """Each program copies a block of ``data`` to the next rank and sets the word of the block there to 1."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    tl.store(dl.symm_at(data, peer) + lanes, tl.load(data + lanes, mask=mask), mask=mask)
    dl.notify(flags + tl.program_id(0), peer, signal=1, sig_op="set", comm_scope="intra_node")


@aot_compile_spaces({"fill": {"signature": "*i32:16, *i64, i32, i32, 32", "grid": ["cdiv(scratch, stream)", "1", "1"]}})
@triton_dist.jit
def fill_kernel(arguments, kernel, scratch, stream, default: tl.constexpr):
    """Its arguments have names that mean something in C."""
    lanes = tl.program_id(0) * default + tl.arange(0, default)
    tl.store(arguments + lanes, stream + tl.load(kernel).to(tl.int32), mask=lanes < scratch)


@aot_compile_spaces(
    {"scale": {"signature": "*fp32, *fp32, i32, fp32, %BLOCK", "grid": ["%BLOCK / %BLOCK", "count % 7", "1"],
               "triton_algo_infos": [{"BLOCK": 128, "num_warps": 1, "num_ctas": 2, "launch_cooperative_grid": True}]}}
)  # fmt: skip
@triton.autotune([triton.Config({"BLOCK": 128})], key=[])
@triton.jit
def scale_kernel(x, out, count, factor, BLOCK: tl.constexpr):
    """No part of it needs the symmetric heap; its output goes through a descriptor that it makes itself."""
    lanes = tl.arange(0, BLOCK)
    target = tl.make_tensor_descriptor(out, [count], [1], [BLOCK])
    target.store([0], tl.load(x + lanes, mask=lanes < count, other=0.0) * factor)
