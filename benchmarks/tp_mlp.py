"""A tensor-parallel MLP, AG+GEMM, activation, GEMM+RS, beside NCCL + cuBLAS and torch's fused operators, on the MLPs of known models.

``torchrun --nproc-per-node 4 benchmarks/tp_mlp.py --json out.json --budget 300``; ``--dry-run`` needs no GPU and no launcher.

The world is the tensor-parallel group. Each rank holds (M / W, H) of the input and its own part of the weights: (2 I / W, H) of gate and up
((I / W, H) without gates) and (H, I / W) of down, and gets (M / W, H) of the result. M counts the rows of all ranks; one that W does not
divide is rounded up. ``--replicated``: every rank has all M rows, as in decoding; GEMM, activation, GEMM+AR beside NCCL's and torch's
all-reduces. "ours" is ``triton_dist.layers.TPMLP``. All methods have the same activation, one kernel of this package; what differs is
how products and communication go together. "cublas" is the two products and the activation with no communication; the three parts of ours
are measured by themselves, too: what "ours" takes beyond their sum is lost between them. Weights take turns as in the other benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem  # defines torch.ops.symm_mem
from harness.correctness import reference_rows, relative_error, sample_rows, tolerance_of
from harness.machine import Machine, run_on
from harness.models import BLOCKS, Block
from harness.row_parallel import DTYPES, SAMPLED_ROWS, Operator, bounds_of, kind_of, parse, random_matrix
from harness.run import LINK_BYTES, Case, run_cases
from harness.timing import Method

from triton_dist.layers import TPMLP
from triton_dist.ops import activate, ag_gemm, gemm_ar, gemm_rs

SHAPES = {**BLOCKS, "dry": Block(48, 96, True)}
METHODS = ("ours", "nccl+cublas", "torch-fused", "cublas", "ag_gemm", "activation", "gemm_rs")
REPLICATED = ("ours", "nccl+cublas", "torch-one-shot", "torch-two-shot", "cublas", "gemm", "activation", "gemm_ar")
TORCH_ONE_SHOT_BYTES = 8 << 20


@dataclass(frozen=True)
class Inputs:
    """What the methods of one case share. x: this rank's rows; layers take turns; out: like x.

    gathered: (M, H), every rank's rows; hidden: (M, columns of the first product); activated: (M, I / W); product: (M, H).
    """

    block: Block
    x: torch.Tensor
    layers: list[TPMLP]
    out: torch.Tensor
    gathered: torch.Tensor
    hidden: torch.Tensor
    activated: torch.Tensor
    product: torch.Tensor

    @property
    def function(self) -> str:
        """The activation's name."""
        return function_of(self.block)

    def act(self) -> torch.Tensor:
        """The activation of ``hidden``."""
        return activate(self.hidden, function=self.function, gated=self.block.gated, out=self.activated)


def function_of(block: Block) -> str:
    return "silu" if block.gated else "gelu_tanh"


def scattered_calls(machine: Machine, inputs: Inputs) -> dict[str, Callable[[TPMLP], torch.Tensor]]:
    """The methods of the sequence-parallel form by name; each takes the layer whose weights to use."""
    x, out, hidden, activated, product = inputs.x, inputs.out, inputs.hidden, inputs.activated, inputs.product
    group = dist.distributed_c10d._get_default_group().group_name
    # One collective; the older name of it warns at every call where there is a new one.
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def nccl_and_cublas(layer: TPMLP) -> torch.Tensor:
        all_gather(inputs.gathered, x)
        torch.matmul(inputs.gathered, layer.gate_up.weight.t(), out=hidden)
        reduce_scatter(out, torch.matmul(inputs.act(), layer.down.weight.t(), out=product))
        return out

    def torch_fused(layer: TPMLP) -> torch.Tensor:
        operators = torch.ops.symm_mem
        first = operators.fused_all_gather_matmul(x, [layer.gate_up.weight.t()], gather_dim=0, group_name=group, return_A=False)[1][0]
        second = activate(first, function=inputs.function, gated=inputs.block.gated, out=activated)
        return operators.fused_matmul_reduce_scatter(second, layer.down.weight.t(), "sum", scatter_dim=0, group_name=group)

    return {
        "ours": lambda layer: layer(x, out=out),
        "nccl+cublas": nccl_and_cublas,
        "torch-fused": torch_fused,
        "ag_gemm": lambda layer: ag_gemm(x, layer.gate_up.weight.t(), out=hidden),
        "gemm_rs": lambda layer: gemm_rs(activated, layer.down.weight.t(), out=out),
    }


def replicated_calls(machine: Machine, inputs: Inputs) -> dict[str, Callable[[TPMLP], torch.Tensor]]:
    """As ``scattered_calls``, of the replicated form."""
    x, out, hidden = inputs.x, inputs.out, inputs.hidden
    group = dist.distributed_c10d._get_default_group().group_name

    @functools.cache
    def shared() -> torch.Tensor:
        """The second product in torch's symmetric memory."""
        tensor = symm_mem.empty(*out.shape, dtype=out.dtype, device=machine.device)
        symm_mem.rendezvous(tensor, group)
        return tensor

    def chain(layer: TPMLP, into: torch.Tensor) -> torch.Tensor:
        torch.matmul(x, layer.gate_up.weight.t(), out=hidden)
        return torch.matmul(inputs.act(), layer.down.weight.t(), out=into)

    def nccl_and_cublas(layer: TPMLP) -> torch.Tensor:
        dist.all_reduce(chain(layer, out))
        return out

    return {
        "ours": lambda layer: layer(x, sequence_parallel=False, out=out),
        "nccl+cublas": nccl_and_cublas,
        "torch-one-shot": lambda layer: torch.ops.symm_mem.one_shot_all_reduce(chain(layer, shared()), "sum", group),
        "torch-two-shot": lambda layer: torch.ops.symm_mem.two_shot_all_reduce_(chain(layer, shared()), "sum", group),
        "gemm": lambda layer: torch.matmul(x, layer.gate_up.weight.t(), out=hidden),
        "gemm_ar": lambda layer: gemm_ar(inputs.activated, layer.down.weight.t(), out=out),
    }


def make_layer(machine: Machine, block: Block, rank: int, dtype: torch.dtype, seed: int) -> TPMLP:
    """A layer with the part of the weights that ``rank`` has."""
    with torch.no_grad():
        made = TPMLP(block.hidden, block.intermediate, gated=block.gated, activation=function_of(block), dtype=dtype)
        for place, (parameter, depth) in enumerate(((made.gate_up.weight, block.hidden), (made.down.weight, block.intermediate))):
            # Features of about 1 everywhere, as in a model.
            parameter.copy_(random_matrix(machine, *parameter.shape, dtype, seed + 500 * place + rank) / math.sqrt(depth))
    return made.requires_grad_(False)


@contextlib.contextmanager
def inputs_and_methods(
    machine: Machine, block: Block, rows: int, make_layers: Callable[[int], list[TPMLP]], names: Sequence[str], seed: int, replicated: bool
) -> Iterator[list[Method]]:
    """The methods called ``names`` for M = ``rows``. make_layers: those with a rank's weights. Every rank calls it."""
    layers, ranks = make_layers(machine.rank), machine.world_size
    dtype, own_rows = layers[0].down.weight.dtype, rows if replicated else rows // ranks

    def x_of(rank: int) -> torch.Tensor:
        return random_matrix(machine, own_rows, block.hidden, dtype, seed + 1 + (0 if replicated else rank))

    def empty(columns: int, count: int = rows) -> torch.Tensor:
        return torch.empty((count, columns), dtype=dtype, device=machine.device)

    columns, inner = layers[0].gate_up.weight.shape[0], layers[0].down.weight.shape[1]
    gathered = x_of(0) if replicated else torch.cat([x_of(rank) for rank in range(ranks)])
    inputs = Inputs(
        block, x_of(machine.rank), layers, empty(block.hidden, own_rows), gathered, empty(columns), empty(inner), empty(block.hidden)
    )
    torch.matmul(gathered, layers[0].gate_up.weight.t(), out=inputs.hidden)
    inputs.act()
    sampled = sample_rows(own_rows, 1, SAMPLED_ROWS, seed)
    sampled_x = inputs.x[sampled]

    def part_of(layer: TPMLP) -> torch.Tensor:
        """What one rank's weights add to the sampled rows, in fp64."""
        hidden = reference_rows(sampled_x, layer.gate_up.weight.t())
        gate, *up = hidden.chunk(2, dim=1) if block.gated else (hidden,)
        functions = torch.nn.functional
        act = functions.silu(gate) * up[0] if block.gated else functions.gelu(gate, approximate="tanh")
        return reference_rows(act, layer.down.weight.t())

    @functools.cache
    def expected(turn: int) -> torch.Tensor:
        return sum((part_of(make_layers(rank)[turn]) for rank in range(ranks) if rank != machine.rank), part_of(layers[turn]))

    def sum_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, sampled, expected(turn % len(layers)))

    def finite(result: torch.Tensor, turn: int) -> float:
        """Parts are checked by the tests of the operators; here only that all of the result is written."""
        return 0.0 if bool(torch.isfinite(result).all()) else math.nan

    def cublas(layer: TPMLP) -> torch.Tensor:
        torch.matmul(gathered, layer.gate_up.weight.t(), out=inputs.hidden)
        return torch.matmul(inputs.act(), layer.down.weight.t(), out=inputs.product)

    make_calls = replicated_calls if replicated else scattered_calls
    calls = {**make_calls(machine, inputs), "cublas": cublas, "activation": lambda layer: inputs.act()}

    def method(name: str) -> Method:
        call, kind = calls[name], kind_of(name)
        # The parts take what the case has left in hidden and activated, which a check of another method spoils only by its own results.
        outputs = {"cublas": (inputs.product,), "activation": (inputs.activated,)}.get(name, (inputs.out,) if kind != "part" else ())
        # Two roundings more than in one product: of the hidden features and of the activated ones.
        return Method(
            name,
            kind,
            lambda turn: call(layers[turn % len(layers)]),
            finite if kind == "part" else sum_error,
            2 * tolerance_of(dtype),
            outputs,
        )

    yield [method(name) for name in names if name != "torch-one-shot" or rows * block.hidden * dtype.itemsize <= TORCH_ONE_SHOT_BYTES]
    machine.align(ahead=False)
    machine.synchronize()


def make_cases(machine: Machine, arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Case]:
    """All cases, shape by shape; the weights of a shape serve all its rows."""
    dtype, ranks = DTYPES[arguments.dtype], machine.world_size
    for name in arguments.shapes:
        block = SHAPES[name]
        inner = block.intermediate // ranks
        nbytes = (3 if block.gated else 2) * inner * block.hidden * dtype.itemsize
        turns = max(1, math.ceil(arguments.rotate_mib * 2**20 / nbytes)) if not machine.dry else 2

        def layers_of(rank: int, block: Block = block, turns: int = turns) -> list[TPMLP]:
            return [make_layer(machine, block, rank, dtype, arguments.seed + 1000 * (turn + 1)) for turn in range(turns)]

        own = functools.cache(functools.partial(layers_of, machine.rank))

        def make_layers(rank: int, own: Callable = own, layers_of: Callable = layers_of) -> list[TPMLP]:
            return own() if rank == machine.rank else layers_of(rank)

        step = 1 if arguments.replicated else ranks
        for rows in dict.fromkeys(-(-rows // step) * step for rows in arguments.rows):

            def build(machine: Machine, rows: int = rows, block: Block = block, make: Callable = make_layers) -> Any:
                return inputs_and_methods(machine, block, rows, make, names, arguments.seed, arguments.replicated)

            moved = 2 * (ranks - 1) / ranks * rows * block.hidden * dtype.itemsize
            sizes = {"M": rows, "H": block.hidden, "I": inner}
            yield Case(name, sizes, arguments.dtype, build, functools.partial(bounds_of, moved, ranks=ranks), turns)


def heap_size(arguments: argparse.Namespace) -> int:
    """Bytes of each rank's heap: gathered rows, and what GEMM+RS or the all-reduce stages, for every size that was seen."""
    if arguments.heap_gib is not None:
        return int(arguments.heap_gib * 2**30)
    staged = sum(rows + 128 for rows in arguments.rows) * sum(SHAPES[name].hidden for name in arguments.shapes) * 2
    return 4 * staged + 2 * LINK_BYTES + (1 << 30 if not arguments.dry_run else 64 << 20)


def main(words: Sequence[str] | None = None) -> None:
    words = list(words) if words is not None else None
    arguments = parse(OPERATOR, __doc__, words, tuple(SHAPES), ("bf16", "fp16"), add_own)
    names = arguments.methods or list(REPLICATED if arguments.replicated else METHODS)

    def act(machine: Machine) -> None:
        with torch.no_grad():
            run_cases(machine, "tp_mlp replicated" if arguments.replicated else "tp_mlp", make_cases(machine, arguments, names), arguments)

    run_on(
        act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=heap_size(arguments), timeout_s=arguments.step_limit
    )


def add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicated", action="store_true", help="every rank has all rows: GEMM, activation, GEMM+AR")


OPERATOR = Operator("tp_mlp", True, lambda machine, inputs: {}, tuple(dict.fromkeys((*METHODS, *REPLICATED))), (), lambda *case: True)
"""What the command line needs to know."""


if __name__ == "__main__":
    main()
