"""DTensor's tensor parallelism of torch.nn modules, forward and backward, and fp8 products."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from tests.ops.inductor.models import gather, scatter
from tests.ops.inductor.test_numerics import worst
from tests.ops.inductor.traced import called, changed, pretended, results, traced

HIDDEN, INNER, SEQUENCE = 12, 24, 12
FP8 = torch.float8_e4m3fn


class Block(nn.Module):
    """Columns of the first layer and rows of the second are split over the ranks; with a bias in both."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


def parallel_graphs(size: int, batch: int, sequence: bool) -> list[torch.fx.GraphModule]:
    """The forward's and the backward's. Inside ``pretended(size)``."""
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if sequence:
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
    module = parallelize_module(Block(), init_device_mesh("cpu", (size,)), plan)
    rows = SEQUENCE // size if sequence else SEQUENCE
    return traced(module, torch.randn(batch, rows, HIDDEN).requires_grad_())


def arguments(graph: torch.fx.GraphModule, size: int) -> list[tuple]:
    """For each rank; what has one dimension, biases among others, is the same on all of them."""
    generator = torch.Generator().manual_seed(size)
    examples = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    # What DTensor keeps besides tensors in a graph is not used by it.
    shared = [torch.randn(each.shape, generator=generator) if torch.is_tensor(each) else None for each in examples]

    def own(example, same):
        if same is None or same.dim() == 1:
            return same
        made = torch.randn(example.shape, generator=generator)
        values = made > 0 if example.dtype == torch.bool else made
        return torch.empty_strided(example.shape, example.stride(), dtype=example.dtype).copy_(values)

    return [tuple(own(example, same) for example, same in zip(examples, shared, strict=True)) for _ in range(size)]


def in_float64(inputs: list[tuple]) -> list[tuple]:
    return [tuple(each.double() if torch.is_tensor(each) and each.is_floating_point() else each for each in of_rank) for of_rank in inputs]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("sequence", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_a_parallel_block(size, sequence, batch):
    with pretended(size):
        graphs = parallel_graphs(size, batch, sequence)
        both = [changed(graph) for graph in graphs]
    assert not any(used.report.skipped for _, used in both), [used.report for _, used in both]
    forward, backward = [called(graph) for graph, _ in both]
    if sequence:
        assert forward == ["ag_gemm_gathered", "gemm_rs"]
        assert backward.count("ag_gemm_gathered") == 1 and backward.count("gemm_rs") == 1 and backward.count("mm") == 2
    else:
        assert forward == ["addmm", "gemm_ar"] and backward.count("gemm_ar") == 1
    for graph, (after, _) in zip(graphs, both, strict=True):
        inputs = arguments(graph, size)
        found, expected = results((after,), inputs), results((graph,), in_float64(inputs))
        assert worst([rank[0] for rank in found], [rank[0] for rank in expected]) < 1e-4


def multiplied(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, **options) -> torch.Tensor:
    return torch._scaled_mm(a, b.t(), scale_a, scale_b, **{"out_dtype": torch.bfloat16, **options})


def fp8_gathered(a, b, scale_a, scale_b):
    return multiplied(gather(a), b, scale_a, scale_b)


def fp8_gathered_as_bytes(a, b, scale_a, scale_b):
    return multiplied(gather(a.view(torch.uint8)).view(FP8), b, scale_a, scale_b)


def fp8_scattered(a, b, scale_a, scale_b):
    return scatter(multiplied(a, b, scale_a, scale_b))


@pytest.mark.parametrize("function", [fp8_gathered, fp8_gathered_as_bytes, fp8_scattered])
def test_fp8(function):
    """With a scale for each tensor. The graph before can't be run in float64, so the products are written out."""
    size = 2
    generator = torch.Generator().manual_seed(0)
    inputs = [
        (
            torch.randn(32, 48, generator=generator).to(FP8),
            torch.randn(16, 48, generator=generator).to(FP8),
            torch.tensor(0.5 + rank),
            torch.tensor(2.0),
        )
        for rank in range(size)
    ]
    with pretended(size):
        (graph,) = traced(function, *inputs[0])
        after, used = changed(graph)
    assert called(after) == [used.report.matched[0].operator] == ["gemm_rs" if function is fp8_scattered else "ag_gemm"]
    rank_inputs = [arguments_in_order(graph, inputs[0], each) for each in inputs]
    found = [rank[0] for rank in results((after,), rank_inputs)]
    wide = [tuple(each.double() for each in of_rank) for of_rank in inputs]
    if function is fp8_scattered:
        total = sum(a @ b.t() * scale_a * scale_b for a, b, scale_a, scale_b in wide)
        expected = [[part] for part in total.chunk(size)]
    else:
        rows = torch.cat([of_rank[0] for of_rank in wide])
        expected = [[rows @ b.t() * scale_a * scale_b] for _, b, scale_a, scale_b in wide]
    assert worst(found, expected) < 2e-2


def arguments_in_order(graph, traced_with: tuple, inputs: tuple) -> tuple:
    """dynamo orders a graph's inputs by their first use."""
    places = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    shapes = [(each.shape, each.dtype) for each in traced_with]
    order, scales = [], [place for place, (shape, _) in enumerate(shapes) if not shape]
    for value in places:
        order.append(shapes.index((value.shape, value.dtype)) if value.shape else scales.pop(0))
    return tuple(inputs[place] for place in order)


@pytest.mark.parametrize(
    ("options", "scales", "reason"),
    [
        pytest.param(
            {},
            (torch.ones(32, 1), torch.ones(1, 16)),
            "scales of rows or blocks",
            marks=pytest.mark.skipif(torch.__version__ < (2, 13), reason="torch's CPU multiplies with one scale a matrix only"),
        ),
        ({"out_dtype": FP8}, (torch.ones(()), torch.ones(()) * 2), "gives fp8"),
    ],
)
def test_fp8_that_no_operator_gives(options, scales, reason):
    a, b = torch.zeros(16, 48).to(FP8), torch.zeros(16, 48).to(FP8)
    with pretended(2):
        (graph,) = traced(lambda a, b, *scales: multiplied(gather(a), b, *scales, **options), a, b, *scales)
        after, used = changed(graph)
    assert called(after) == called(graph) and reason in used.report[0].reason


def test_numbers_of_other_sizes_than_a_byte():
    with pretended(2):
        (graph,) = traced(lambda a, b: gather(a.view(torch.uint8)).view(torch.bfloat16) @ b, *(torch.zeros(8, 8).bfloat16(),) * 2)
        assert "of another size" in changed(graph)[1].report[0].reason
