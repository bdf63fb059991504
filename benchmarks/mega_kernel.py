"""A decoding step of some transformer layers in one kernel (``ModelBuilder``), beside the same step by torch's kernels.

``python -m torch.distributed.run --standalone --nproc-per-node 1 benchmarks/mega_kernel.py --json out.json``; ``--dry-run`` needs no GPU
and no launcher.

The world is the tensor-parallel group: each rank has its heads, its part of the MLP and all of the hidden features, and an all-reduce
stands behind both row-parallel projections. A step is one token for each of M sequences of ``--context`` tokens,
through ``--layers`` layers:
RMS norm, q, k and v in one projection, RMS norm of the heads and rotary embedding, new keys and values, attention, projection, residual,
RMS norm, gate and up in one projection, silu, down projection, residual.

"torch" is that by cuBLAS, torch's own kernels and NCCL; "torch-compiled" the same through ``torch.compile``, which fuses what stands
between the products. "products" is cuBLAS's products alone. The bound is a kernel that does nothing but read what
a step has to read, the weights and the keys and values.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import triton
import triton.language as tl
from harness.correctness import relative_error, tolerance_of
from harness.machine import Machine, run_on
from harness.results import MethodResult
from harness.run import LINK_BYTES, Case, add_arguments, run_cases
from harness.timing import Method

from triton_dist.mega_triton_kernel import ModelBuilder

METHODS = ("ours", "torch", "torch-compiled", "products", "read")
VARIANTS = ("ours:taken", "ours:in_order")
KINDS = {"torch": "peer", "torch-compiled": "peer", "products": "part", "read": "part", "ours": "ours"}
"""See ``MethodResult.kind``."""
EPS = 1e-6
PAGE = 64


@dataclass(frozen=True)
class Model:
    """Sizes of a layer, of all ranks together."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int = 128


MODELS = {
    "llama3-8b": Model(4096, 14336, 32, 8),
    "qwen3-8b": Model(4096, 12288, 32, 8),
    "qwen3-32b": Model(5120, 25600, 64, 8),
    "llama3-70b": Model(8192, 28672, 64, 8),
    "dry": Model(64, 96, 4, 4, 16),
}


@dataclass(frozen=True)
class Layer:
    """One rank's part of a layer. keys, values: (sequences, positions, heads of k, head_dim), whole pages."""

    norm: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    def weights(self) -> list[torch.Tensor]:
        return [self.qkv, self.out, self.gate_up, self.down]

    def streamed(self) -> list[torch.Tensor]:
        """What a step reads from memory."""
        return [*self.weights(), self.keys, self.values]


def make_layer(device: torch.device, model: Model, rows: int, context: int, ranks: int, seed: int, dtype: torch.dtype) -> Layer:
    generator = torch.Generator(device).manual_seed(seed)

    def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape, generator=generator, device=device) * scale).to(dtype)

    heads, kv_heads, dim, inner = model.heads // ranks, model.kv_heads // ranks, model.head_dim, model.intermediate // ranks
    positions = -(-context // PAGE) * PAGE
    return Layer(
        random(model.hidden), random((heads + 2 * kv_heads) * dim, model.hidden, scale=model.hidden**-0.5), random(dim), random(dim),
        random(model.hidden, heads * dim, scale=(model.heads * dim) ** -0.5), random(model.hidden),
        random(2 * inner, model.hidden, scale=model.hidden**-0.5), random(model.hidden, inner, scale=model.intermediate**-0.5),
        random(rows, positions, kv_heads, dim), random(rows, positions, kv_heads, dim),
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What the methods of one case share. x: (M, hidden), every rank's. cos, sin: fp32 (positions, head_dim)."""

    model: Model
    context: int
    ranks: int
    x: torch.Tensor
    layers: list[Layer]
    cos: torch.Tensor
    sin: torch.Tensor

    @property
    def heads(self) -> int:
        return self.model.heads // self.ranks

    @property
    def kv_heads(self) -> int:
        return self.model.kv_heads // self.ranks


def angles(device: torch.device, positions: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 1e6 ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angle = torch.outer(torch.arange(positions, device=device, dtype=torch.float32), frequencies).repeat(1, 2)
    return angle.cos(), angle.sin()


def build(machine: Machine, step: Step, **options: Any) -> tuple[ModelBuilder, torch.Tensor]:
    """The step as a program, and where it leaves its result."""
    builder = ModelBuilder(machine.rank, machine.world_size, machine.world_size, **options)
    x, rows, dim, device = step.x, step.x.shape[0], step.model.head_dim, machine.device
    pages = step.layers[0].keys.shape[1] // PAGE
    tables = torch.arange(rows * pages, dtype=torch.int32, device=device).view(rows, pages)
    kv_lens = torch.full((rows,), step.context, dtype=torch.int32, device=device)

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=x.dtype, device=device)

    def row_parallel(make: Callable[..., None], value: torch.Tensor, weight: torch.Tensor, layer_id: int) -> torch.Tensor:
        """The projection's sum over all ranks. Each has memory of its own, so no rank waits until the others have read it."""
        if step.ranks == 1:
            make(value, weight, result := empty(rows, step.model.hidden), layer_id)
            return result
        make(value, weight, part := builder.create_symm_tensor((rows, step.model.hidden), x.dtype), layer_id)
        builder.make_allreduce(part, result := empty(rows, step.model.hidden), double_input_buffer=True, layer_id=layer_id)
        return result

    for number, layer in enumerate(step.layers):
        builder.make_rms_norm(x, layer.norm, normed := torch.empty_like(x), EPS, number)
        builder.make_qkv_proj(normed, layer.qkv, qkv := empty(rows, layer.qkv.shape[0]), number)
        query, attended = empty(rows, 1, step.heads, dim), empty(rows, 1, step.heads, dim)
        keys, values = (cache.view(rows * pages, PAGE, step.kv_heads, dim) for cache in (layer.keys, layer.values))
        builder.make_qk_norm_rope_update_kvcache(
            qkv.view(rows, 1, -1, dim), keys, values, tables, kv_lens, layer.q_norm, layer.k_norm, step.cos, step.sin, query, EPS, EPS,
            layer_id=number,
        )  # fmt: skip
        builder.make_flash_decode(query, keys, values, tables, kv_lens, attended, layer_id=number)
        projected = row_parallel(builder.make_o_proj, attended.view(rows, -1), layer.out, number)
        builder.make_add(x, projected, middle := torch.empty_like(x), number)
        builder.make_rms_norm(middle, layer.mlp_norm, normed := torch.empty_like(x), EPS, number)
        builder.make_fc1(normed, layer.gate_up, hidden := empty(rows, layer.gate_up.shape[0]), number)
        builder.make_silu_mul_up(hidden, active := empty(rows, layer.down.shape[1]), number)
        down = row_parallel(builder.make_fc2, active, layer.down, number)
        builder.make_add(middle, down, x := torch.empty_like(x), number)
    builder.compile()
    return builder, x


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: (M, heads, head_dim). cos, sin: (head_dim,)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def torch_layer(step: Step, layer: Layer, x: torch.Tensor, reduce: Callable[[torch.Tensor], torch.Tensor], *, store: bool) -> torch.Tensor:
    """A layer by torch's functions, in x's dtype. store: new keys and values go into the caches; else into copies."""
    rows, dim, last = x.shape[0], step.model.head_dim, step.context - 1
    as_x = functools.partial(torch.Tensor.to, dtype=x.dtype)
    normed = F.rms_norm(x, x.shape[1:], as_x(layer.norm), EPS)
    q, k, v = F.linear(normed, as_x(layer.qkv)).view(rows, -1, dim).split([step.heads, step.kv_heads, step.kv_heads], 1)
    cos, sin = step.cos[last].to(x.dtype), step.sin[last].to(x.dtype)
    q = rotated(F.rms_norm(q, (dim,), as_x(layer.q_norm), EPS), cos, sin)
    k = rotated(F.rms_norm(k, (dim,), as_x(layer.k_norm), EPS), cos, sin)
    keys, values = (layer.keys, layer.values) if store else (as_x(layer.keys.clone()), as_x(layer.values.clone()))
    keys[:, last].copy_(k)
    values[:, last].copy_(v)
    seen = (cache[:, : step.context].transpose(1, 2) for cache in (keys, values))
    attended = F.scaled_dot_product_attention(q.unsqueeze(2), *seen, enable_gqa=True).reshape(rows, -1)
    x = x + reduce(F.linear(attended, as_x(layer.out)))
    normed = F.rms_norm(x, x.shape[1:], as_x(layer.mlp_norm), EPS)
    gate, up = F.linear(normed, as_x(layer.gate_up)).chunk(2, 1)
    return x + reduce(F.linear(F.silu(gate) * up, as_x(layer.down)))


def expected_of(machine: Machine, step: Step, make_layers: Callable[[int], list[Layer]]) -> torch.Tensor:
    """The step in fp64. Each rank's part is computed here, from weights made again."""
    x = step.x.double()
    of_ranks = [step.layers if rank == machine.rank else make_layers(rank) for rank in range(step.ranks)]
    for number in range(len(step.layers)):
        parts: list[torch.Tensor] = []
        # Both halves of a layer end in a sum over the ranks, so ranks go through a half together.
        for half in range(2):
            parts.clear()
            for layers in of_ranks:
                _half(step, layers[number], x, half, parts.append)
            x = x + sum(parts)
    return x


def _half(step: Step, layer: Layer, x: torch.Tensor, half: int, keep: Callable[[torch.Tensor], None]) -> None:
    """A rank's part of what attention (0) or MLP (1) adds."""
    taken: list[torch.Tensor] = []

    def take(part: torch.Tensor) -> torch.Tensor:
        taken.append(part)
        # The MLP has to see x as it is given.
        return torch.zeros_like(part)

    torch_layer(step, layer, x, take, store=False)
    keep(taken[half])


def products(step: Step) -> torch.Tensor:
    """The library's products of a step, of whatever is in memory; returns the last one."""
    result = step.x
    for layer in step.layers:
        for weight in layer.weights():
            result = F.linear(step.x.new_empty((step.x.shape[0], weight.shape[1])), weight)
    return result


@triton.jit
def read_kernel(addresses, sizes, out, count, BLOCK: tl.constexpr):
    """Reads ``sizes[i]`` 16-byte words at ``addresses[i]``, of all i, and adds them up so that nothing is left out."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    total = tl.zeros((BLOCK,), tl.int32)
    for index in range(count):
        words = tl.multiple_of(tl.load(addresses + index).to(tl.pointer_type(tl.int32)), 16)
        size = tl.load(sizes + index) * 4
        for block in tl.range(program * BLOCK, size, programs * BLOCK, num_stages=3):
            at = block + tl.arange(0, BLOCK)
            total ^= tl.load(words + at, mask=at < size, other=0)
    tl.store(out + program * BLOCK + tl.arange(0, BLOCK), total)


def reader(machine: Machine, tensors: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A call that reads all tensors once."""
    block, programs = (4096, 264) if not machine.dry else (128, 4)
    addresses = torch.tensor([tensor.data_ptr() for tensor in tensors], device=machine.device)
    sizes = torch.tensor([tensor.numel() * tensor.element_size() // 16 for tensor in tensors], device=machine.device)
    out = torch.empty(programs * block, dtype=torch.int32, device=machine.device)

    def read() -> torch.Tensor:
        read_kernel[(programs,)](addresses, sizes, out, len(tensors), BLOCK=block, num_warps=8)
        return out

    return read


@contextlib.contextmanager
def inputs_and_methods(machine: Machine, model: Model, rows: int, arguments: argparse.Namespace) -> Iterator[list[Method]]:
    """The methods of one case. Every rank calls it."""
    dtype, ranks = torch.bfloat16 if not machine.dry else torch.float32, machine.world_size

    def make_layers(rank: int) -> list[Layer]:
        seeds = [arguments.seed + 1000 * number + rank for number in range(arguments.layers)]
        return [make_layer(machine.device, model, rows, arguments.context, ranks, seed, dtype) for seed in seeds]

    generator = torch.Generator(machine.device).manual_seed(arguments.seed)
    x = torch.randn((rows, model.hidden), generator=generator, device=machine.device).to(dtype)
    layers = make_layers(machine.rank)
    step = Step(model, arguments.context, ranks, x, layers, *angles(machine.device, arguments.context, model.head_dim))
    programs: list[ModelBuilder] = []
    expected = functools.cache(lambda: expected_of(machine, step, make_layers))
    everything = list(range(rows))

    def reduce(part: torch.Tensor) -> torch.Tensor:
        if ranks > 1:
            dist.all_reduce(part)
        return part

    def by_torch() -> torch.Tensor:
        value = step.x
        for layer in layers:
            value = torch_layer(step, layer, value, reduce, store=True)
        return value

    def ours(**options: Any) -> Callable[[int], torch.Tensor]:
        if machine.dry:
            options["num_sms"] = 8
        builder, result = build(machine, step, **options)
        programs.append(builder)

        def call(turn: int) -> torch.Tensor:
            builder.run()
            return result

        return call

    def compiled() -> Callable[[int], torch.Tensor]:
        torch._dynamo.reset()
        function = torch.compile(by_torch, dynamic=False)
        return lambda turn: function()

    read = reader(machine, [tensor for layer in layers for tensor in layer.streamed()])
    makers: dict[str, Callable[[], Callable[[int], torch.Tensor]]] = {
        "ours": ours,
        "ours:taken": lambda: ours(enable_runtime_scheduler=True),
        "ours:in_order": lambda: ours(enable_dep_opt=False),
        "torch": lambda: lambda turn: by_torch(),
        "torch-compiled": compiled,
        "products": lambda: lambda turn: products(step),
        "read": lambda: lambda turn: read(),
    }
    if machine.dry:
        del makers["torch-compiled"]

    def error(result: torch.Tensor, turn: int) -> float:
        return relative_error(result, everything, expected())

    def nothing(result: torch.Tensor, turn: int) -> float:
        return 0.0

    # Each layer rounds some ten times, and what it adds is about as large as what it gets.
    tolerance = 4 * arguments.layers**0.5 * tolerance_of(dtype)
    names = [name for name in arguments.methods or METHODS if name in makers]
    made = []
    for name in names:
        kind = KINDS.get(name, "variant")
        made.append(Method(name, kind, makers[name](), nothing if kind == "part" else error, tolerance))
    yield made
    machine.align(ahead=False)
    machine.synchronize()
    for builder in programs:
        builder.finalize()


def bounds(results: Sequence[MethodResult], link: dict[str, float]) -> dict[str, float | None]:
    """What only reads."""
    return {"memory": next((result.median_us for result in results if result.name == "read" and result.counts), None)}


def make_cases(machine: Machine, arguments: argparse.Namespace) -> Iterator[Case]:
    for name in arguments.models:
        model = MODELS[name]
        if model.kv_heads % machine.world_size:
            continue
        for rows in arguments.rows:
            build_case = functools.partial(inputs_and_methods, model=model, rows=rows, arguments=arguments)
            sizes = {"M": rows, "layers": arguments.layers, "context": arguments.context}
            yield Case(name, sizes, "bf16" if not machine.dry else "fp32", build_case, bounds)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), help="default: all but dry; dry where it is a dry run")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 32], help="sequences, one token of each (default %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the step (default %(default)s)")
    parser.add_argument("--context", type=int, default=512, help="tokens of a sequence, the new one among them (default %(default)s)")
    arguments = parser.parse_args(words)
    if arguments.models is None:
        arguments.models = ["dry"] if arguments.dry_run else [name for name in MODELS if name != "dry"]
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    arguments = parse(list(words) if words is not None else None)

    def act(machine: Machine) -> None:
        with torch.no_grad():
            run_cases(machine, "mega_kernel", make_cases(machine, arguments), arguments)

    heap = int(arguments.heap_gib * 2**30) if arguments.heap_gib is not None else 2 * LINK_BYTES + (1 << 28)
    run_on(act, dry_ranks=arguments.dry_ranks if arguments.dry_run else None, heap_size=heap, timeout_s=arguments.step_limit)


if __name__ == "__main__":
    main()
