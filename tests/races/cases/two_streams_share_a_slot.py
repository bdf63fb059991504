"""Two streams use one scratch buffer; an event lets the second one come after the first."""

import torch
import triton.language as tl

import triton_dist

RACING = ("tl.store(scratch", "tl.store(scratch")


@triton_dist.jit
def scratch_kernel(scratch, out, value, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(scratch + offset, offset + value)
    tl.debug_barrier()
    tl.store(out + offset, tl.load(scratch + offset) * 2)


def run():
    main, side = triton_dist.current_stream(), triton_dist.Stream()
    scratch, outs = torch.zeros(64, dtype=torch.int32), torch.zeros(2, 64, dtype=torch.int32)
    side.wait_event(main.record_event())
    scratch_kernel[(1,)](scratch, outs[0], 3, COUNT=64)
    side.wait_event(main.record_event())  # wrong: pass
    with triton_dist.stream(side):
        scratch_kernel[(1,)](scratch, outs[1], 5, COUNT=64)
    main.wait_stream(side)
