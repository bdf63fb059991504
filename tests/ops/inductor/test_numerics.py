"""Graphs before and after the pass, on simulated ranks: what they call, and their results against the graph before in float64."""

from __future__ import annotations

import pytest
import torch

from tests.differences import relative_error
from tests.ops.inductor import models
from tests.ops.inductor.traced import called, changed, pretended, results, traced

ROWS, DEPTH, COLUMNS = 12, 24, 20
SIZES = [2, 3, 4]
OLD = torch.__version__ < (2, 13)
"""Its scatter takes no "avg" while it is traced."""
X, W, WT = (ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS, DEPTH)
SEQUENCE, ONE, SQUARE = (2, ROWS, DEPTH), (1, ROWS, DEPTH), (DEPTH, DEPTH)
BATCH = (12, 2, DEPTH)
CASES = {
    "gathered_product": ([X, W], ["ag_gemm"]),
    "gathered_linear": ([X, WT, (COLUMNS,)], ["ag_gemm"]),
    "gathered_sequence": ([SEQUENCE, WT], ["ag_gemm"]),
    "gathered_sequence of one": ([ONE, WT], ["ag_gemm"]),
    "gathered_batch": ([BATCH, WT], ["ag_gemm"]),
    "scattered_product": ([X, W], ["gemm_rs"]),
    "scattered_sequence": ([SEQUENCE, WT], ["gemm_rs"]),
    "scattered_sequence of one": ([ONE, WT], ["gemm_rs"]),
    "scattered_batch": ([BATCH, WT], ["gemm_rs"]),
    **({} if OLD else {"averaged_product": ([X, W], ["gemm_rs"])}),
    "reduced_product": ([X, W], ["gemm_ar"]),
    "reduced_sequence": ([SEQUENCE, WT], ["gemm_ar"]),
    "projections": ([X, WT, (8, DEPTH), (8, DEPTH)], ["ag_gemm_gathered", "mm", "mm"]),
    "residual": ([X, SQUARE], ["ag_gemm_gathered"]),
    "block": ([SEQUENCE, WT, WT, (DEPTH, COLUMNS)], ["ag_gemm_gathered", "mm", "gemm_rs"]),
}


def inputs_of(shapes: list, size: int, dtype: torch.dtype = torch.float32) -> list[tuple[torch.Tensor, ...]]:
    """Each rank's: the same shapes, other numbers."""
    generator = torch.Generator().manual_seed(size)
    return [tuple((torch.randn(shape, generator=generator) / 2).to(dtype) for shape in shapes) for _ in range(size)]


def in_float64(inputs: list[tuple[torch.Tensor, ...]]) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(each.double() if each.is_floating_point() else each for each in of_rank) for of_rank in inputs]


def worst(found: list, expected: list) -> float:
    """The largest relative error over ranks and outputs."""
    pairs = [pair for mine, wanted in zip(found, expected, strict=True) for pair in zip(mine, wanted, strict=True)]
    assert pairs and all(one.shape == other.shape for one, other in pairs)
    return max(relative_error(one, other) for one, other in pairs)


def error_of(name: str, shapes: list, size: int, expected_calls: list[str], dtype: torch.dtype = torch.float32, **options) -> float:
    """Of one case's graph after the pass, which has to call what is expected."""
    inputs = inputs_of(shapes, size, dtype)
    with pretended(size):
        (graph,) = traced(getattr(models, name.split()[0]), *inputs[0], **options)
        after, used = changed(graph)
    assert called(after) == expected_calls and not used.report.skipped, used.report
    assert {each.operator for each in used.report.matched} == set(expected_calls) - {"mm"}
    ran = results((after,), inputs, seed=size)
    return worst([rank[0] for rank in ran], [rank[0] for rank in results((graph,), in_float64(inputs))])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_forward(name, size):
    assert error_of(name, *[CASES[name][0], size, CASES[name][1]]) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["gathered_linear", "scattered_sequence", "reduced_product", "projections", "block"])
def test_half_precision(name, dtype):
    assert error_of(name, CASES[name][0], 2, CASES[name][1], dtype) < (2e-2 if dtype == torch.bfloat16 else 3e-3)


@pytest.mark.parametrize("size", SIZES)
def test_training(size):
    """Forward and backward: the gradients of all operands, and what the forward keeps for the backward."""
    shapes = [X, W, (COLUMNS, DEPTH)]
    inputs = inputs_of(shapes, size)
    with pretended(size):
        graphs = traced(models.mlp, *[each.clone().requires_grad_() for each in inputs[0]])
        after = [changed(graph)[0] for graph in graphs]
    assert [called(graph) for graph in after] == [["ag_gemm_gathered", "gemm_rs"], ["ag_gemm_gathered", "mm", "mm", "gemm_rs"]]

    def backward_inputs(forward: list) -> list[tuple[torch.Tensor, ...]]:
        return [(*outputs[0][1:], torch.ones_like(outputs[0][0])) for outputs in forward]

    forward, expected = results((after[0],), inputs), results((graphs[0],), in_float64(inputs))
    assert worst([rank[0] for rank in forward], [rank[0] for rank in expected]) < 1e-5
    backward = results((after[1],), backward_inputs(forward))
    wanted = results((graphs[1],), backward_inputs(expected))
    assert len(backward[0][0]) == 3
    assert worst([rank[0] for rank in backward], [rank[0] for rank in wanted]) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_are_symbols(name):
    """One graph for all sizes: it is run with others than those that it was traced with."""
    shapes, calls = CASES[name]
    size = 2
    with pretended(size):
        (graph,) = traced(getattr(models, name.split()[0]), *inputs_of(shapes, size)[0], dynamic=True)
        after, used = changed(graph)
    assert called(after) == calls and not used.report.skipped
    larger = [[2 * each if each == ROWS else each for each in shape] for shape in shapes]
    inputs = inputs_of(larger, size)
    arguments = [arguments_of(graph, shapes, of_rank) for of_rank in inputs]
    ran = results((after,), arguments)
    assert worst([rank[0] for rank in ran], [rank[0] for rank in results((graph,), in_float64_where(arguments))]) < 1e-5


def in_float64_where(arguments: list) -> list:
    return [tuple(each.double() if isinstance(each, torch.Tensor) else each for each in of_rank) for of_rank in arguments]


def arguments_of(graph, shapes: list, inputs: tuple) -> tuple:
    """A traced graph's arguments: numbers for its symbols, which are sizes of the inputs, and the inputs."""
    values = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    tensors = iter(inputs)
    given = [next(tensors) if isinstance(each, torch.Tensor) else None for each in values]
    known = {}
    for value, tensor in zip(values, given, strict=True):
        if tensor is not None:
            known.update({str(symbol): number for symbol, number in zip(value.shape, tensor.shape, strict=True)})
    return tuple(known[str(value)] if tensor is None else tensor for value, tensor in zip(values, given, strict=True))
