"""A kernel ahead of time: C source, header and shared library, built without a GPU, and a C program that runs it without Triton or Python.

``python examples/22_aot.py`` builds all of it into a folder, which an argument may name, and starts the C program: on a machine with no
NVIDIA driver it says so and ends. On GPUs ``torchrun --nproc-per-node 2 examples/22_aot.py`` starts it beside each rank, on its heap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.tools import aot_compile_spaces, build_library, lend_heap

COUNT = 4096

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "pushes.h"

int main(int argc, char **argv) {
    if (argc < 5) { /* alone: load the kernel, which needs a driver and a heap */
        int code = load_push();
        printf("load_push: %d, %s\n", code, pushes_last_error());
        return 0;
    }
    int code = pushes_join(argv[1], atoi(argv[2]));
    if (!code)
        code = push_default(NULL, strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0), 4096);
    if (!code)
        code = pushes_synchronize(NULL);
    printf("rank %s: the C program pushed, code %d %s\n", argv[2], code, pushes_last_error());
    unload_push();
    pushes_leave();
    return code != 0;
}
"""


@aot_compile_spaces(
    {
        "push": {
            "signature": ["*fp32:16, *i32:16, i32:16, %BLOCK", "*fp32, *i32, i32, %BLOCK"],
            "grid": ["cdiv(count, %BLOCK)", "1", "1"],
            "triton_algo_infos": [{"BLOCK": 1024, "num_warps": 4}],
        }
    }
)
@triton_dist.jit
def push_kernel(data, flags, count, BLOCK: tl.constexpr):
    """To the upper half of ``data`` of the next rank, with a word for each block."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < count
    tl.store(dl.symm_at(data, peer) + count + lanes, tl.load(data + lanes, mask=mask), mask=mask)
    dl.notify(flags + tl.program_id(0), peer, signal=1, sig_op="set", comm_scope="intra_node")


def build(folder: Path, target: str) -> Path:
    """The library, and the C program that links it."""
    library = build_library([push_kernel], folder, "pushes", target=target)
    print(f"built {library.shared.name} for {target}: {len(library.sources)} C files, {library.functions}", flush=True)
    source, program = folder / "main.c", folder / "main"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-o", program, source, f"-I{folder}", f"-L{folder}", "-lpushes", f"-Wl,-rpath,{folder}"], check=True)
    return program


def push_from_c(folder: Path) -> bool:
    """On a rank: its own C program, beside it on its heap. Whether the rank before has pushed."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    major, minor = torch.cuda.get_device_capability()
    program = build(folder, f"sm_{major}{minor}")
    data, flags = triton_dist.symm_zeros((2 * COUNT,), torch.float32), triton_dist.symm_zeros((COUNT // 1024,), torch.int32)
    data[:COUNT] = rank + 1
    triton_dist.synchronize()
    lent = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(lent)
    with lend_heap(lent[0]):
        command = [program, lent[0], str(rank), hex(data.data_ptr()), hex(flags.data_ptr())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        print((done.stdout + done.stderr).strip(), flush=True)
        everyone: list = [None] * size
        dist.all_gather_object(everyone, done.returncode)  # until all C programs have left
    return data[COUNT:].eq((rank - 1) % size + 1).all().item() and flags.tolist() == [1] * (COUNT // 1024)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).absolute()
    if "RANK" in os.environ:
        triton_dist.initialize()
        if triton_dist.device().type != "cuda":
            sys.exit("the C program needs GPUs; without torchrun this example builds it and says what is missing")
        right = push_from_c(folder / f"rank{triton_dist.rank()}")
        print(f"rank {triton_dist.rank()}: {'the rank before has pushed' if right else 'wrong'}", flush=True)
        triton_dist.finalize()
        assert right
    else:
        print(subprocess.run([build(folder, "sm_90")], check=True, capture_output=True, text=True).stdout, end="")


if __name__ == "__main__":
    main()
