"""What works on every machine: simulated ranks, and compiling for GPUs."""

from __future__ import annotations

import tempfile

import torch
import triton
import triton.backends
import triton.language as tl

import triton_dist
import triton_dist.language as dl

from .finding import Finding, Status

GROUP = "without a GPU"
TARGET = 90


@triton_dist.jit
def exchange_kernel(inbox, flags, out, COUNT: tl.constexpr):
    """Send a tile to the next rank, wait for the one from the rank before."""
    after = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.arange(0, COUNT)
    tl.store(dl.symm_at(inbox, after) + offset, dl.rank() * 100 + offset)
    dl.notify(flags, after, signal=1, sig_op="set", comm_scope="intra_node")
    token = dl.wait(flags, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset))


def exchange() -> list[int]:
    """One rank: what came from the rank before."""
    inbox, flags = triton_dist.symm_zeros((16,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(16, dtype=torch.int32, device=triton_dist.device())
    exchange_kernel[(1,)](inbox, flags, out, COUNT=16)
    return out.tolist()


def check_simulator() -> Finding:
    """Two simulated ranks exchange a tile, and Triton finds the simulator by itself."""
    found = "sim" in triton.backends.backends
    results = triton_dist.simulate(exchange, 2)
    if results != [[100 + i for i in range(16)], list(range(16))]:
        advice = "this should not happen: please report it, with your versions"
        return Finding(GROUP, "simulator", Status.MISSING, f"two simulated ranks gave {results}", advice)
    if not found:
        value = "two simulated ranks exchanged a tile; a kernel outside simulate() is not run: Triton looks for installed packages"
        return Finding(GROUP, "simulator", Status.WARN, value, "pip install triton-dist, or pip install -e . in the clone")
    return Finding(GROUP, "simulator", Status.OK, "two simulated ranks exchanged a tile")


def check_compilation() -> Finding:
    """The same kernel becomes PTX and machine code for a GPU that need not be there; nothing is taken from the disk cache."""
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"inbox": "*i32", "flags": "*i32", "out": "*i32", "COUNT": "constexpr"}
    source = ASTSource(exchange_kernel, signature, {"COUNT": 16}, {})
    with tempfile.TemporaryDirectory() as directory, knobs.cache.scope():
        knobs.cache.dir = directory
        compiled = triton.compile(source, target=GPUTarget("cuda", TARGET, 32))
    missing = [text for text in ("ld.acquire.sys", "atom.global.sys.release") if text not in compiled.asm["ptx"]]
    if missing or not compiled.asm["cubin"]:
        return Finding(GROUP, "compilation", Status.MISSING, f"PTX for sm_{TARGET} lacks {missing}", "please report it, with your versions")
    size = len(compiled.asm["cubin"])
    return Finding(GROUP, "compilation", Status.OK, f"a kernel with signals compiles for sm_{TARGET}: {size} bytes of machine code")
