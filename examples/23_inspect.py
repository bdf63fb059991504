"""What a compiled kernel does to other ranks' memory, before it runs anywhere: width of remote accesses, waits, registers and spills.

``python examples/23_inspect.py`` compiles for sm_90, or for the GPU that is there, whose driver then tells its registers, too. As a table:
``triton-dist inspect examples/23_inspect.py:send_rows_kernel --signature "*fp32, *fp32, *i32, *i32, i32, i32" --constexpr TILE=1024``.
"""

from __future__ import annotations

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.tools import inspect_kernel

TILE = 1024


@triton_dist.jit
def send_rows_kernel(source, target, ready, arrived, peer, stride, TILE: tl.constexpr):
    """A row a program: once ``ready`` says that it is there, it goes to the peer, whose ``arrived`` is told."""
    row = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    dl.wait(ready + row, 1, "gpu", "acquire")
    tl.store(dl.symm_at(target, peer) + row * stride + lanes, tl.load(source + row * stride + lanes))
    dl.notify(arrived + row, peer, signal=1, sig_op="set", comm_scope="intra_node")


def main() -> None:
    on_gpu = torch.cuda.is_available()
    major, minor = torch.cuda.get_device_capability() if on_gpu else (9, 0)
    for stride, wide in (("i32", 4), ("i32:16", 16)):
        signature = f"*fp32:16, *fp32:16, *i32:16, *i32:16, i32, {stride}"
        report = inspect_kernel(send_rows_kernel, signature, {"TILE": TILE}, target=10 * major + minor)
        registers = report.resources.registers
        print(
            f"sm_{major}{minor}, stride {stride}: narrowest remote access {report.narrowest_remote} bytes, {len(report.spins)} wait, "
            f"{registers} registers, {report.resources.spills} bytes spilt",
            flush=True,
        )
        assert report.narrowest_remote == wide and report.resources.spills in (0, None)
    if on_gpu:
        source, target = torch.zeros(TILE, device="cuda"), torch.zeros(TILE, device="cuda")
        ready, arrived = (torch.zeros(16, dtype=torch.int32, device="cuda") for _ in range(2))
        compiled = send_rows_kernel.warmup(source, target, ready, arrived, 3, TILE, TILE=TILE, grid=(1,))
        compiled._init_handles()
        print(f"the driver says of the loaded kernel: {compiled.n_regs} registers, {compiled.n_spills} bytes spilt", flush=True)
        assert registers in (compiled.n_regs, None)


if __name__ == "__main__":
    main()
