"""Tensor parallelism written with torch's collectives, on this package's operators: the Inductor pass finds the products beside them.

On GPUs, ``torchrun --nproc-per-node 2 examples/25_inductor_pass.py``: ``torch.compile`` uses the pass. Without a GPU, by the same command
or by ``python examples/25_inductor_pass.py`` on simulated ranks, ``torch.compile`` runs functions as they are; there the example traces
the function, runs the pass on the graph, and the graph on the ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.fx.experimental.proxy_tensor import make_fx

import triton_dist
from triton_dist.ops import InductorPass, inductor_pass

# Newer torch has new names for them.
all_gather = getattr(funcol, "all_gather_single", None) or funcol.all_gather_tensor
reduce_scatter = getattr(funcol, "reduce_scatter_single", None) or funcol.reduce_scatter_tensor

ROWS, HIDDEN, INNER = 64, 128, 256
"""Rows of the sequence on each rank; columns of the model; columns of the MLP on each rank."""


def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """A column-parallel and a row-parallel linear layer. x: (ROWS, HIDDEN), this rank's rows of the sequence; as is the result."""
    hidden = torch.relu(all_gather(x, 0, dist.group.WORLD) @ up.t())
    return reduce_scatter(hidden @ down.t(), "sum", 0, dist.group.WORLD)


def compiled(function: Callable, *inputs: torch.Tensor) -> tuple[torch.Tensor, InductorPass]:
    """The function's result by Inductor, with the pass."""
    with torch.no_grad(), inductor_pass() as used:
        return torch.compile(function)(*inputs), used


def traced(function: Callable, *inputs: torch.Tensor) -> tuple[torch.Tensor, InductorPass]:
    """The function's result by its graph, after the pass."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    used = InductorPass()
    used(module.graph)
    module.recompile()
    return module(*inputs), used


def inputs_of(rank: int, device: torch.device) -> list[torch.Tensor]:
    """``x``, ``up`` and ``down`` of a rank."""
    generator = torch.Generator().manual_seed(rank)
    shapes = [(ROWS, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)]
    return [torch.randn(shape, generator=generator).to(device) / shape[1] ** 0.5 for shape in shapes]


def main() -> None:
    if not dist.is_initialized():
        dist.init_process_group("gloo")  # simulated ranks: processes have theirs from initialize()
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    everyone = [inputs_of(other, device) for other in range(size)]
    result, used = (compiled if device.type == "cuda" else traced)(mlp, *everyone[rank])
    sequence = torch.cat([x for x, _, _ in everyone])
    expected = sum(torch.relu(sequence @ up.t()) @ down.t() for _, up, down in everyone)[ROWS * rank :][:ROWS]
    error = ((result - expected).abs().max() / expected.abs().max()).item()
    if rank == 0:
        print(used.report)
    print(f"rank {rank}: relative error {error:.1e}, {len(used.report.matched)} of {len(used.report)} collectives are part of an operator")


if __name__ == "__main__":
    if "RANK" in os.environ:
        triton_dist.initialize()
        main()
        triton_dist.finalize()
    else:
        triton_dist.simulate(main, world_size=2)
