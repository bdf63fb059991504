"""All-gather + GEMM beside NCCL + cuBLAS and torch's fused operator, on the column-parallel projections of known models.

``torchrun --nproc-per-node 4 benchmarks/ag_gemm.py --json out.json --budget 300``; ``--dry-run`` needs no GPU and no launcher.

The world is the tensor-parallel group: each rank holds (M / W, K) of A and its own (K, N) of the weights, as the transpose of a contiguous
(N, K) tensor, the way a linear layer keeps it. M counts the rows of all ranks; one that W does not divide is rounded up, so M = 1 is one
row a rank, and the results say so. Between two uses of the same weights at least ``--rotate-mib`` MiB of others are read, as between the
layers of a model: else the small ones would stay in the L2 cache.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory  # defines torch.ops.symm_mem
from harness.correctness import reference_rows, relative_error, sample_rows, tolerance_of
from harness.link import transfer_us
from harness.machine import Machine, run_on
from harness.models import COLUMN_PARALLEL, Projection
from harness.results import MethodResult
from harness.run import LINK_BYTES, Case, add_arguments, run_cases
from harness.timing import Method

import triton_dist

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
ROWS = (1, 8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)
SAMPLED_ROWS_PER_SHARD = 16
SHAPES = {**COLUMN_PARALLEL, "dry": Projection(48, 96)}
"""By name; "dry" is for dry runs."""
METHODS = ("ours", "nccl+cublas", "torch-fused", "cublas", "nccl-all-gather", "copy-all-gather")


@dataclass(frozen=True)
class Inputs:
    """What the methods of one case share. weights: (K, N) each; they take turns. complete: A as it should be gathered."""

    shard: torch.Tensor
    weights: list[torch.Tensor]
    complete: torch.Tensor
    gathered: torch.Tensor
    source: torch.Tensor
    out: torch.Tensor


def our_variants() -> tuple[str, ...]:
    """Ways that the operator can be told to go, besides its own choice."""
    operator = importlib.import_module("triton_dist.ops.gemm.ag_gemm")
    takes_method = "method" in inspect.signature(operator.ag_gemm).parameters
    return tuple(f"ours:{name}" for name in getattr(operator, "METHODS", ()) if name != "auto") if takes_method else ()


def make_calls(machine: Machine, inputs: Inputs) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """The methods by name; each takes the weights to use. All but the gatherings return the product."""
    from triton_dist.ops import ag_gemm

    shard, gathered, out, source = inputs.shard, inputs.gathered, inputs.out, inputs.source
    raw_shard, raw_gathered = (tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor for tensor in (shard, gathered))
    rows, ranks = shard.shape[0], machine.world_size
    peers = [triton_dist.symm_peer(source, (machine.rank + step) % ranks) for step in range(ranks)]
    places = [gathered[(machine.rank + step) % ranks * rows :][:rows] for step in range(ranks)]
    group = dist.distributed_c10d._get_default_group().group_name
    # One collective; the older name of it warns at every call where there is a new one.
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    one = torch.ones((), device=machine.device)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.element_size() == 1:
            return torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, out=out)
        return torch.matmul(a, b, out=out)

    def nccl_gather(b: torch.Tensor | None = None) -> torch.Tensor:
        all_gather(raw_gathered, raw_shard)
        return gathered

    def copy_gather(b: torch.Tensor) -> torch.Tensor:
        for place, peer in zip(places, peers, strict=True):
            triton_dist.copy_async(place, peer)
        return gathered

    def torch_fused(b: torch.Tensor) -> torch.Tensor:
        if shard.element_size() == 1:
            return torch.ops.symm_mem.fused_all_gather_scaled_matmul(
                shard, [b], one, [one], 0, group, [None], [None], [out.dtype], [False]
            )[1][0]
        # Ours does not return the gathered rows either.
        return torch.ops.symm_mem.fused_all_gather_matmul(shard, [b], gather_dim=0, group_name=group, return_A=False)[1][0]

    return {
        "ours": lambda b: ag_gemm(shard, b, out=out),
        **{name: functools.partial(ag_gemm, shard, out=out, method=name.partition(":")[2]) for name in our_variants()},
        "nccl+cublas": lambda b: product(nccl_gather(), b),
        "torch-fused": torch_fused,
        "cublas": lambda b: product(inputs.complete, b),
        "nccl-all-gather": nccl_gather,
        "copy-all-gather": copy_gather,
    }


def kind_of(name: str) -> str:
    """See ``MethodResult.kind``."""
    if name.startswith("ours"):
        return "ours" if name == "ours" else "variant"
    return "peer" if name in ("nccl+cublas", "torch-fused") else "part"


@contextlib.contextmanager
def inputs_and_methods(machine: Machine, rows: int, weights: list[torch.Tensor], names: Sequence[str], seed: int) -> Iterator[list[Method]]:
    """The methods called ``names`` for ``rows`` rows a rank. Every rank calls it."""
    depth, columns = weights[0].shape
    dtype, ranks = weights[0].dtype, machine.world_size
    # Every rank knows all shards from their seeds, so that the reference needs no communication.
    shards = [random_matrix(machine, rows, depth, dtype, seed + 1 + rank) for rank in range(ranks)]
    inputs = Inputs(
        shards[machine.rank].clone(),
        weights,
        torch.cat([shard.view(torch.uint8) for shard in shards]).view(dtype),
        torch.empty((ranks * rows, depth), dtype=dtype, device=machine.device),
        triton_dist.symm_empty((rows, depth * dtype.itemsize), torch.uint8, name="source").view(dtype),
        torch.empty((ranks * rows, columns), dtype=dtype if dtype.itemsize > 1 else torch.bfloat16, device=machine.device),
    )
    inputs.source.copy_(inputs.shard)
    del shards
    machine.align(ahead=False)  # the sources are there before a peer reads them
    sampled = sample_rows(rows, ranks, SAMPLED_ROWS_PER_SHARD, seed)
    sampled_a = inputs.complete.view(torch.uint8)[sampled].view(dtype)

    @functools.cache
    def expected(turn: int) -> torch.Tensor:
        return reference_rows(sampled_a, weights[turn])

    def product_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, sampled, expected(turn % len(weights)))

    def gather_error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result.to(inputs.out.dtype), sampled, sampled_a.double())

    def method(name: str, call: Callable[[torch.Tensor], Any]) -> Method:
        gathers = name.endswith("all-gather")
        outputs = {"cublas": (inputs.out,), "nccl+cublas": (inputs.out, inputs.gathered)}.get(
            name, (inputs.gathered if gathers else inputs.out,)
        )
        error, tolerance = (gather_error, 0.0) if gathers else (product_error, tolerance_of(inputs.out.dtype))
        return Method(name, kind_of(name), lambda turn: call(weights[turn % len(weights)]), error, tolerance, outputs)

    calls = make_calls(machine, inputs)
    yield [method(name, calls[name]) for name in names]
    machine.align(ahead=False)
    machine.synchronize()
    triton_dist.symm_free(inputs.source)


def random_matrix(machine: Machine, rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal random numbers, the same on every rank for a seed."""
    generator = torch.Generator(machine.device).manual_seed(seed)
    made = dtype if dtype.itemsize > 1 else torch.bfloat16
    return torch.randn((rows, columns), dtype=made, device=machine.device, generator=generator).to(dtype)


def bounds_of(shard_bytes: int, results: Sequence[MethodResult], link: dict[str, float], ranks: int) -> dict[str, float | None]:
    """The product alone by cuBLAS; the other ranks' rows through the link at the measured rate."""
    product = next((result for result in results if result.name == "cublas"), None)
    bounds = {"cublas": product.median_us if product is not None and product.counts else None}
    if ranks > 1:
        bounds["link"] = transfer_us(link, (ranks - 1) * shard_bytes)
    return bounds


def make_cases(machine: Machine, arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Case]:
    """All cases, shape by shape; the weights of a shape serve all its rows."""
    dtype, ranks = DTYPES[arguments.dtype], machine.world_size
    for name in arguments.shapes:
        projection = SHAPES[name]
        depth, columns = projection.depth, projection.columns // ranks
        turns = max(1, math.ceil(arguments.rotate_mib * 2**20 / (depth * columns * dtype.itemsize))) if not machine.dry else 2
        make_weights = functools.cache(
            # Each rank's own, as a shard of a layer is.
            lambda depth=depth, columns=columns, turns=turns: [
                random_matrix(machine, columns, depth, dtype, arguments.seed + 1000 * (turn + 1) + machine.rank).t()
                for turn in range(turns)
            ]
        )
        for rows in dict.fromkeys(-(-rows // ranks) for rows in arguments.rows):
            yield Case(
                name,
                {"M": rows * ranks, "N": columns, "K": depth},
                arguments.dtype,
                lambda machine, rows=rows, make=make_weights: inputs_and_methods(machine, rows, make(), names, arguments.seed),
                functools.partial(bounds_of, rows * depth * dtype.itemsize, ranks=ranks),
                turns,
            )


def heap_size(arguments: argparse.Namespace) -> int:
    """Bytes of each rank's heap: an operator keeps its gathered A for every shape that it has seen, some methods one of their own."""
    if arguments.heap_gib is not None:
        return int(arguments.heap_gib * 2**30)
    depths = {SHAPES[name].depth for name in arguments.shapes}
    gathered = sum(rows + 128 for rows in arguments.rows) * sum(depths) * DTYPES[arguments.dtype].itemsize
    return 4 * gathered + 2 * LINK_BYTES + (256 << 20)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, help="default all models' (in a dry run: dry)")
    parser.add_argument("--rows", nargs="+", type=int, help=f"M of all ranks together; default {ROWS} (in a dry run: 8)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of A and the weights; an fp8 product is bf16")
    parser.add_argument("--variants", action="store_true", help="also every way that the operator can be told to go")
    parser.add_argument("--rotate-mib", type=float, default=100, help="MiB of weights that take turns; 0: the same ones always")
    arguments = parser.parse_args(words)
    arguments.shapes = arguments.shapes or (["dry"] if arguments.dry_run else list(COLUMN_PARALLEL))
    arguments.rows = arguments.rows or ([8] if arguments.dry_run else list(ROWS))
    if min(arguments.rows) < 1:
        parser.error(f"--rows {min(arguments.rows)}: there is at least one row")
    unknown = set(arguments.methods or ()) - {*METHODS, *our_variants()}
    if unknown:
        parser.error(f"--methods {' '.join(sorted(unknown))}: not one of {' '.join([*METHODS, *our_variants()])}")
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    arguments = parse(words)
    names = arguments.methods or [*METHODS, *(our_variants() if arguments.variants else ())]

    def act(machine: Machine) -> None:
        run_cases(machine, "ag_gemm", make_cases(machine, arguments, names), arguments)

    run_on(
        act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=heap_size(arguments), timeout_s=arguments.step_limit
    )


if __name__ == "__main__":
    main()
