"""GEMM + reduce-scatter beside NCCL + cuBLAS and torch's fused operator, on the row-parallel projections of known models.

``torchrun --nproc-per-node 4 benchmarks/gemm_rs.py --json out.json --budget 300``; ``--dry-run`` needs no GPU and no launcher.

How the data lie: see harness/row_parallel.py. M counts the rows of A, which every rank has; one that W does not divide is rounded up, so
M = 1 is one row a rank, and the results say so.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # defines torch.ops.symm_mem
from harness.machine import Machine, run_on
from harness.row_parallel import Call, Inputs, Operator, heap_size, make_cases, multiply, parse
from harness.run import run_cases

METHODS = ("ours", "nccl+cublas", "torch-fused", "cublas", "nccl-reduce-scatter")
VARIANTS = tuple(f"ours:{name}" for name in ("pipelined", "two_pieces", "direct", "fused", "split", "small"))


def make_calls(machine: Machine, inputs: Inputs) -> dict[str, Call]:
    """The methods by name; each takes the weights to use."""
    from triton_dist.ops import gemm_rs

    a, out, product = inputs.a, inputs.out, inputs.product
    group = dist.distributed_c10d._get_default_group().group_name
    # One collective; the older name of it warns at every call where there is a new one.
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    one = torch.ones((), device=machine.device)

    def nccl_and_cublas(b: torch.Tensor) -> torch.Tensor:
        reduce_scatter(out, multiply(a, b, product, one))
        return out

    def nccl_alone(b: torch.Tensor) -> torch.Tensor:
        reduce_scatter(out, inputs.fixed)
        return out

    def torch_fused(b: torch.Tensor) -> torch.Tensor:
        if a.element_size() == 1:
            shape = [a.shape[0], b.shape[1]]
            return torch.ops.symm_mem.fused_scaled_matmul_reduce_scatter(a, b, one, one, "sum", 0, 0, group, shape, out_dtype=out.dtype)
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", scatter_dim=0, group_name=group)

    return {
        "ours": lambda b: gemm_rs(a, b, out=out),
        **{name: functools.partial(gemm_rs, a, out=out, method=name.partition(":")[2]) for name in VARIANTS if name != "ours:two_pieces"},
        "ours:two_pieces": functools.partial(gemm_rs, a, out=out, method="pipelined", pieces=2),
        "nccl+cublas": nccl_and_cublas,
        "torch-fused": torch_fused,
        "cublas": lambda b: multiply(a, b, product, one),
        "nccl-reduce-scatter": nccl_alone,
    }


def fits(name: str, rows: int, columns: int) -> bool:
    """Whether a method is worth a run: those for few rows stage everything twice."""
    return {"ours:small": rows <= 128, "ours:split": rows * columns <= 32 << 20}.get(name, True)


OPERATOR = Operator("gemm_rs", True, make_calls, METHODS, VARIANTS, fits)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parse(OPERATOR, __doc__, words)
    names = arguments.methods or [*METHODS, *(VARIANTS if arguments.variants else ())]

    def act(machine: Machine) -> None:
        run_cases(machine, "gemm_rs", make_cases(OPERATOR, machine, arguments, names), arguments)

    size = heap_size(OPERATOR, arguments)
    run_on(act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=size, timeout_s=arguments.step_limit)


if __name__ == "__main__":
    main()
