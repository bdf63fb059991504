"""What the benchmarks of GEMM + reduce-scatter and GEMM + all-reduce share: shapes, data, references, and the loop over cases.

The world is the tensor-parallel group: each rank holds (M, K / W) of A and its own (K / W, N) of the weights, as the transpose of a
contiguous (N, K / W) tensor, the way a linear layer keeps it. Between two uses of the same weights at least ``--rotate-mib`` MiB of others
are read, as between the layers of a model: else the small ones would stay in the L2 cache.
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

from .correctness import reference_rows, relative_error, sample_rows, tolerance_of
from .link import transfer_us
from .machine import Machine
from .models import ROW_PARALLEL, Projection
from .results import MethodResult
from .run import LINK_BYTES, Case, add_arguments
from .timing import Method

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
ROWS = (1, 8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)
SAMPLED_ROWS = 64
SHAPES = {**ROW_PARALLEL, "dry": Projection(96, 48)}
"""By name; "dry" is for dry runs."""
Call = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Inputs:
    """What the methods of one case share. a: (M, K / W); weights: (K / W, N) each, which take turns.

    out: (rows, N), the result's. product: (M, N), where a library's product goes. fixed: the same, of the first weights, never overwritten.
    """

    a: torch.Tensor
    weights: list[torch.Tensor]
    out: torch.Tensor
    product: torch.Tensor
    fixed: torch.Tensor


@dataclass(frozen=True)
class Operator:
    """One benchmark. scattered: whether the result's rows are shared out. make_calls: the calls by name, each takes the weights to use.

    fits: whether a method is worth a run for so many rows and columns.
    """

    name: str
    scattered: bool
    make_calls: Callable[[Machine, Inputs], dict[str, Call]]
    methods: tuple[str, ...]
    variants: tuple[str, ...]
    fits: Callable[[str, int, int], bool]


def multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    """The library's product; ``one`` is the scale of both where they are fp8."""
    if a.element_size() == 1:
        return torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, out=out)
    return torch.matmul(a, b, out=out)


def kind_of(name: str) -> str:
    """See ``MethodResult.kind``."""
    if name.startswith("ours"):
        return "ours" if name == "ours" else "variant"
    return "peer" if name == "nccl+cublas" or name.startswith("torch") else "part"


@contextlib.contextmanager
def inputs_and_methods(
    operator: Operator, machine: Machine, rows: int, make_weights: Callable[[int], list[torch.Tensor]], names: Sequence[str], seed: int
) -> Iterator[list[Method]]:
    """The methods called ``names`` for ``rows`` rows of A. make_weights: those of a rank. Every rank calls it."""
    weights, ranks = make_weights(machine.rank), machine.world_size
    depth, columns = weights[0].shape
    dtype = weights[0].dtype
    made = dtype if dtype.itemsize > 1 else torch.bfloat16

    def a_of(rank: int) -> torch.Tensor:
        return random_matrix(machine, rows, depth, dtype, seed + 1 + rank)

    out_rows = rows // ranks if operator.scattered else rows
    inputs = Inputs(
        a_of(machine.rank),
        weights,
        torch.empty((out_rows, columns), dtype=made, device=machine.device),
        torch.empty((rows, columns), dtype=made, device=machine.device),
        torch.empty((rows, columns), dtype=made, device=machine.device),
    )
    multiply(inputs.a, weights[0], inputs.fixed, torch.ones((), device=machine.device))
    # Every rank's inputs come from seeds, so that the reference needs no communication.
    sampled = sample_rows(out_rows, 1, SAMPLED_ROWS, seed)
    first = machine.rank * out_rows if operator.scattered else 0
    sampled_a = [a_of(rank).view(torch.uint8)[[first + row for row in sampled]].view(dtype) for rank in range(ranks)]

    @functools.cache
    def expected(turn: int) -> torch.Tensor:
        total = reference_rows(sampled_a[machine.rank], weights[turn])
        for rank in range(ranks):
            if rank != machine.rank:
                total += reference_rows(sampled_a[rank], make_weights(rank)[turn])
        return total

    def sum_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, sampled, expected(turn % len(weights)))

    def fixed_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, sampled, expected(0))

    def product_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, [0], reference_rows(inputs.a[:1], weights[turn % len(weights)]))

    def method(name: str, call: Callable[[torch.Tensor], Any]) -> Method:
        outputs = {"cublas": (inputs.product,), "nccl+cublas": (inputs.out, inputs.product)}.get(name, (inputs.out,))
        error = product_error if name == "cublas" else fixed_error if kind_of(name) == "part" else sum_error
        return Method(name, kind_of(name), lambda turn: call(weights[turn % len(weights)]), error, tolerance_of(made), outputs)

    calls = operator.make_calls(machine, inputs)
    yield [method(name, calls[name]) for name in names if operator.fits(name, rows, columns)]
    machine.align(ahead=False)
    machine.synchronize()


def random_matrix(machine: Machine, rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal random numbers, the same on every rank for a seed."""
    generator = torch.Generator(machine.device).manual_seed(seed)
    made = dtype if dtype.itemsize > 1 else torch.bfloat16
    return torch.randn((rows, columns), dtype=made, device=machine.device, generator=generator).to(dtype)


def bounds_of(moved: float, results: Sequence[MethodResult], link: dict[str, float], ranks: int) -> dict[str, float | None]:
    """The product alone by cuBLAS; the bytes that each rank has to receive at the measured rate of the link."""
    product = next((result for result in results if result.name == "cublas"), None)
    bounds = {"cublas": product.median_us if product is not None and product.counts else None}
    if ranks > 1:
        bounds["link"] = transfer_us(link, moved)
    return bounds


def make_cases(operator: Operator, machine: Machine, arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Case]:
    """All cases, shape by shape; the weights of a shape serve all its rows."""
    dtype, ranks = DTYPES[arguments.dtype], machine.world_size
    for name in arguments.shapes:
        projection = SHAPES[name]
        depth, columns = projection.depth // ranks, projection.columns
        turns = max(1, math.ceil(arguments.rotate_mib * 2**20 / (depth * columns * dtype.itemsize))) if not machine.dry else 2

        def weights_of(rank: int, depth: int = depth, columns: int = columns, turns: int = turns) -> list[torch.Tensor]:
            # Each rank's own, as a shard of a layer is.
            seeds = [arguments.seed + 1000 * (turn + 1) + rank for turn in range(turns)]
            return [random_matrix(machine, columns, depth, dtype, seed).t() for seed in seeds]

        own = functools.cache(functools.partial(weights_of, machine.rank))

        def make_weights(rank: int, own: Callable = own, weights_of: Callable = weights_of) -> list[torch.Tensor]:
            return own() if rank == machine.rank else weights_of(rank)

        step = ranks if operator.scattered else 1
        for rows in dict.fromkeys(-(-rows // step) * step for rows in arguments.rows):
            moved = (1 if operator.scattered else 2) * (ranks - 1) / ranks * rows * columns * max(2, dtype.itemsize)
            yield Case(
                name,
                {"M": rows, "N": columns, "K": depth},
                arguments.dtype,
                lambda machine, rows=rows, make=make_weights: inputs_and_methods(operator, machine, rows, make, names, arguments.seed),
                functools.partial(bounds_of, moved, ranks=ranks),
                turns,
            )


def heap_size(operator: Operator, arguments: argparse.Namespace) -> int:
    """Bytes of each rank's heap: an operator keeps its staging memory for every shape that it has seen, some methods one of their own."""
    if arguments.heap_gib is not None:
        return int(arguments.heap_gib * 2**30)
    columns = {SHAPES[name].columns for name in arguments.shapes}
    staged = sum(rows + 128 for rows in arguments.rows) * sum(columns) * 2
    return 3 * staged + 2 * LINK_BYTES + (1 << 30 if not arguments.dry_run else 64 << 20)


def parse(
    operator: Operator,
    description: str | None,
    words: Sequence[str] | None,
    shapes: Sequence[str] = tuple(SHAPES),
    dtypes: Sequence[str] = tuple(DTYPES),
    add: Callable[[argparse.ArgumentParser], Any] = lambda parser: None,
) -> argparse.Namespace:
    """The command line. shapes, dtypes: what there is to choose from. add: adds arguments of the benchmark's own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    add(parser)
    parser.add_argument("--shapes", nargs="+", choices=shapes, help="default all models' (in a dry run: dry)")
    parser.add_argument("--rows", nargs="+", type=int, help=f"M; default {ROWS} (in a dry run: 8)")
    parser.add_argument("--dtype", choices=dtypes, default="bf16", help="of A and the weights; an fp8 product is bf16")
    parser.add_argument("--variants", action="store_true", help="also every way that the operator can be told to go")
    parser.add_argument("--rotate-mib", type=float, default=100, help="MiB of weights that take turns; 0: the same ones always")
    arguments = parser.parse_args(words)
    arguments.shapes = arguments.shapes or (["dry"] if arguments.dry_run else [shape for shape in shapes if shape != "dry"])
    arguments.rows = arguments.rows or ([8] if arguments.dry_run else list(ROWS))
    if min(arguments.rows) < 1:
        parser.error(f"--rows {min(arguments.rows)}: there is at least one row")
    known = [*operator.methods, *operator.variants]
    unknown = set(arguments.methods or ()) - set(known)
    if unknown:
        parser.error(f"--methods {' '.join(sorted(unknown))}: not one of {' '.join(known)}")
    return arguments
