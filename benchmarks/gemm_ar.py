"""GEMM + all-reduce beside cuBLAS with NCCL's and torch's all-reduces, on the row-parallel projections of known models.

``torchrun --nproc-per-node 4 benchmarks/gemm_ar.py --json out.json --budget 300``; ``--dry-run`` needs no GPU and no launcher.

How the data lie: see harness/row_parallel.py. M counts the rows of A and of the result, which every rank has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem  # defines torch.ops.symm_mem
from harness.machine import Machine, run_on
from harness.row_parallel import Call, Inputs, Operator, heap_size, make_cases, multiply, parse
from harness.run import run_cases

METHODS = ("ours", "nccl+cublas", "torch-one-shot", "torch-two-shot", "cublas", "nccl-all-reduce", "our-all-reduce")
VARIANTS = tuple(f"ours:{name}" for name in ("split", "two_shot", "small", "all_reduce", "pipelined"))
TORCH_ONE_SHOT_BYTES = 8 << 20


def make_calls(machine: Machine, inputs: Inputs) -> dict[str, Call]:
    """The methods by name; each takes the weights to use."""
    from triton_dist.ops import all_reduce, gemm_ar

    a, out = inputs.a, inputs.out
    group = dist.distributed_c10d._get_default_group().group_name
    one = torch.ones((), device=machine.device)

    @functools.cache
    def shared() -> torch.Tensor:
        """The product in torch's symmetric memory."""
        tensor = symm_mem.empty(*out.shape, dtype=out.dtype, device=machine.device)
        symm_mem.rendezvous(tensor, group)
        return tensor

    def nccl_and_cublas(b: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(multiply(a, b, out, one))
        return out

    def torch_one_shot(b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.one_shot_all_reduce(multiply(a, b, shared(), one), "sum", group)

    def torch_two_shot(b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.two_shot_all_reduce_(multiply(a, b, shared(), one), "sum", group)

    def alone(reduce: Callable[[torch.Tensor], object]) -> Call:
        def call(b: torch.Tensor) -> torch.Tensor:
            out.copy_(inputs.fixed)
            reduce(out)
            return out

        return call

    return {
        "ours": lambda b: gemm_ar(a, b, out=out),
        **{name: functools.partial(gemm_ar, a, out=out, method=name.partition(":")[2]) for name in VARIANTS},
        "nccl+cublas": nccl_and_cublas,
        "torch-one-shot": torch_one_shot,
        "torch-two-shot": torch_two_shot,
        "cublas": lambda b: multiply(a, b, inputs.product, one),
        "nccl-all-reduce": alone(dist.all_reduce),
        "our-all-reduce": lambda b: all_reduce(inputs.fixed, out=out),
    }


def fits(name: str, rows: int, columns: int) -> bool:
    """Whether a method is worth a run: one-shot methods move everything to everyone."""
    nbytes = 2 * rows * columns
    ranks = dist.get_world_size()
    limits = {
        "ours:small": rows <= 128,
        "ours:split": nbytes <= 16 << 20,
        "ours:pipelined": rows >= ranks,
        "torch-one-shot": nbytes <= TORCH_ONE_SHOT_BYTES,
    }
    return limits.get(name, True)


OPERATOR = Operator("gemm_ar", False, make_calls, METHODS, VARIANTS, fits)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parse(OPERATOR, __doc__, words)
    names = arguments.methods or [*METHODS, *(VARIANTS if arguments.variants else ())]

    def act(machine: Machine) -> None:
        run_cases(machine, "gemm_ar", make_cases(OPERATOR, machine, arguments, names), arguments)

    size = heap_size(OPERATOR, arguments)
    run_on(act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=size, timeout_s=arguments.step_limit)


if __name__ == "__main__":
    main()
