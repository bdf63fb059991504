"""Graphs in which the pass must not touch something, or not all of it, and what it says about that."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.ops.inductor.models import gather, reduce, scatter
from tests.ops.inductor.traced import called, changed, pretended, traced

Tensor = torch.Tensor
X, W = torch.zeros(8, 16), torch.zeros(16, 8)


def columns_gathered(x: Tensor, w: Tensor) -> Tensor:
    return gather(x, 1) @ torch.cat([w, w])


def weights_gathered(x: Tensor, w: Tensor) -> Tensor:
    return x @ gather(w)[:16]


def both_operands(x: Tensor) -> Tensor:
    rows = gather(x)
    return rows @ rows


def nothing_multiplied(x: Tensor) -> Tensor:
    return gather(x) + 1


def changed_before(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(gather(x)) @ w


def transposed(x: Tensor, w: Tensor) -> Tensor:
    return gather(x).t() @ torch.cat([w, w])


def scaled(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, gather(x), w, alpha=2)


def largest(x: Tensor, w: Tensor) -> Tensor:
    return scatter(x @ w, 0, "max")


def largest_everywhere(x: Tensor, w: Tensor) -> Tensor:
    return reduce(x @ w, "max")


def columns_scattered(x: Tensor, w: Tensor) -> Tensor:
    return scatter(x @ w, 1)


def used_elsewhere(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    product = x @ w
    return scatter(product), product.sum()


def activated(x: Tensor, w: Tensor) -> Tensor:
    return reduce(torch.relu(x @ w))


def with_bias(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return scatter(torch.addmm(bias, x, w))


def bias_divided_by_another_number(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return reduce(torch.addmm(bias / 3, x, w))


def bias_of_every_row(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return reduce(torch.addmm(bias / 2, x, w))


def wider(x: Tensor, w: Tensor) -> Tensor:
    return reduce((x @ w).double())


CASES = [
    (columns_gathered, (X, W), "along the last dimension"),
    (weights_gathered, (X, W), "no product has its result as the left operand"),
    (both_operands, (torch.zeros(8, 16),), "as another operand than the left one"),
    (nothing_multiplied, (X,), "no product"),
    (changed_before, (X, W), "no product"),
    (transposed, (X, torch.zeros(8, 8)), "no product"),
    (scaled, (X, W, torch.zeros(8)), "alpha or beta"),
    (largest, (X, W), "takes the max over the ranks"),
    (largest_everywhere, (X, W), "takes the max over the ranks"),
    (columns_scattered, (X, W), "scatters the columns"),
    (used_elsewhere, (X, W), "mm, of what it adds up, is used elsewhere"),
    (activated, (X, W), "relu, is no product"),
    (with_bias, (X, W, torch.zeros(8)), "adds a bias on every rank"),
    (bias_divided_by_another_number, (X, W, torch.zeros(8)), "adds a bias on every rank"),
    (bias_of_every_row, (X, W, torch.zeros(8, 8)), "no contiguous row"),
    (wider, (X, W), "is no product"),
]


@pytest.mark.parametrize(("function", "inputs", "reason"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_left_alone(function, inputs, reason):
    with pretended(2):
        (graph,) = traced(function, *inputs)
        after, used = changed(graph)
    assert called(after) == called(graph) and len(after.graph.nodes) == len(graph.graph.nodes)
    (entry,) = used.report
    assert not entry.matched and reason in entry.reason and reason in str(entry) and used.report.skipped == [entry]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
@pytest.mark.parametrize("collective", [lambda x, w: gather(x) @ w, lambda x, w: scatter(x @ w), lambda x, w: reduce(x @ w)])
def test_dtypes_that_no_operator_takes(dtype, collective):
    with pretended(2):
        (graph,) = traced(collective, X.to(dtype), W.to(dtype))
        after, used = changed(graph)
    assert called(after) == called(graph)
    assert f"multiplies {dtype} by {dtype}" in used.report[0].reason


@pytest.mark.skipif(torch.__version__ < (2, 13), reason='its scatter takes no "avg" while it is traced')
def test_an_average_of_fp16_may_be_too_large():
    with pretended(2):
        (graph,) = traced(lambda x, w: scatter(x @ w, 0, "avg"), X.half(), W.half())
        assert "too large for fp16" in changed(graph)[1].report[0].reason


def test_without_a_world():
    with pretended(2):
        (graph,) = traced(lambda x, w: gather(x) @ w, X, W)
    assert not dist.is_initialized()
    after, used = changed(graph)
    assert called(after) == called(graph) and "is no team here" in used.report[0].reason


def test_a_group_of_another_size_or_of_one_rank():
    with pretended(2):
        (graph,) = traced(lambda x, w: gather(x) @ w, X, W)
    with pretended(3):
        assert "among 2 ranks, and its group '0' has 3" in changed(graph)[1].report[0].reason
    with pretended(1):
        (graph,) = traced(lambda x, w: reduce(x @ w), X, W)
        assert "this rank alone" in changed(graph)[1].report[0].reason


def test_a_group_with_ranks_outside_of_the_world():
    with pretended(4):
        pair = dist.new_group([0, 3])
        (graph,) = traced(lambda x, w: funcol.all_reduce(x @ w, "sum", pair), X, W)
        assert changed(graph)[1].report[0].operator == "gemm_ar"
        from triton_dist.runtime import world

        world._process_world.world_size = 2
        assert "not all in this world of 2 ranks" in changed(graph)[1].report[0].reason


def test_tensors_of_another_device():
    with pretended(2, device="cuda"):
        (graph,) = traced(lambda x, w: gather(x) @ w, X, W)
        assert "it is on cpu, and the operators run on cuda here" in changed(graph)[1].report[0].reason


def test_graphs_without_shapes():
    with pretended(2):
        (graph,) = traced(lambda x, w: gather(x) @ w, X, W)
        for node in graph.graph.nodes:
            node.meta.pop("val", None)
        assert "fake tensors in meta['val']" in changed(graph)[1].report[0].reason


def test_only_some_operators():
    with pretended(2):
        (graph,) = traced(lambda x, w: scatter(gather(x) @ w), X, W)
        after, used = changed(graph, operators=["gemm_rs"])
    assert called(after) == ["all_gather_into_tensor", "wait_tensor", "gemm_rs"]
    assert "ag_gemm is not among the operators" in used.report[0].reason and used.report[1].matched


def test_a_product_that_needs_the_gathered_tensor_first():
    """Its other operand is made of it, so that no operator can give both; a second product can."""

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        rows = gather(x)
        return (rows @ (w + rows[:1, :1]),)

    def second(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        rows = gather(x)
        return rows @ (w + rows[:1, :1]), rows @ w.sin()

    with pretended(2):
        (graph,) = traced(function, X, W)
        after, used = changed(graph)
        assert called(after) == called(graph) and "needs something else that is made of it" in used.report[0].reason
        (graph,) = traced(second, X, W)
        after, used = changed(graph)
    assert called(after) == ["ag_gemm_gathered", "mm"] and used.report[0].product == "mm_1"
    order = [node.target for node in after.graph.nodes]
    assert order.index(torch.ops.aten.sin.default) < order.index(torch.ops.triton_dist.ag_gemm_gathered.default)
    assert operator.getitem in order


def test_rows_that_ranks_can_not_share():
    """A collective that torch itself refuses when it runs."""
    with pretended(3):
        (graph,) = traced(lambda x, w: scatter(x @ w), torch.zeros(9, 16), W)
        node = next(each for each in graph.graph.nodes if each.target is torch.ops.aten.mm.default)
        node.meta["val"] = node.meta["val"].new_empty((8, 8))
        assert "3 ranks can't share 8 rows equally" in changed(graph)[1].report[0].reason
