"""Gradients of ag_gemm, gemm_rs and gemm_ar against autograd in float64, and how ``torch.compile`` sees the three."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode

import triton_dist
from tests.differences import relative_error
from triton_dist import errors
from triton_dist.ops import ag_gemm, gemm_ar, gemm_rs
from triton_dist.ops.gemm import custom_ops

OPERATORS = (ag_gemm, gemm_rs, gemm_ar)
SUMS = (gemm_rs, gemm_ar)
ROWS, DEPTH, COLUMNS = 24, 40, 16


def leaf(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def reference(operator, tensors: list[list[torch.Tensor]], grads: list[torch.Tensor], rank: int) -> list[torch.Tensor]:
    """Gradients of rank ``rank``'s tensors in float64; tensors, grads: all ranks' operands, and gradients of their results."""
    wide = [[tensor.detach().double().requires_grad_() for tensor in those] for those in tensors]
    if operator is ag_gemm:
        gathered = torch.cat([a for a, _ in wide])
        outs = [gathered @ b for _, b in wide]
    else:
        total = sum(a @ b for a, b, _ in wide)
        # A result that all ranks have belongs to one loss.
        outs = [part + bias for part, (_, _, bias) in zip(total.chunk(len(wide)), wide, strict=True)] if operator is gemm_rs else [total]
        outs = outs if operator is gemm_rs else [total + wide[rank][2]]
    torch.autograd.backward(outs, [grad.double() for grad in grads[: len(outs)]])
    return [tensor.grad for tensor in wide[rank]]


def gradients(operator, dtype: torch.dtype, frozen: str, **options) -> float:
    """The largest relative error of this rank's gradients. frozen: "a" or "b" needs none, or ""."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    shapes = [(ROWS, DEPTH), (DEPTH, COLUMNS)] + ([(COLUMNS,)] if operator in SUMS else [])
    tensors = [[leaf(10 * other + place, *shape, dtype=dtype) for place, shape in enumerate(shapes)] for other in range(size)]
    own = [tensor.to(device) for tensor in tensors[rank]]
    for name, tensor in zip(("a", "b", "bias"), own, strict=False):
        tensor.requires_grad_(name != frozen)
    out = operator(*own[:2], **({"bias": own[2]} if operator in SUMS else {}), **options)
    grads = [leaf(100 + (0 if operator is gemm_ar else other), *out.shape, dtype=dtype) for other in range(size)]
    out.backward(grads[rank].to(device))
    expected = reference(operator, tensors, grads, rank)
    found = [(tensor, wanted) for tensor, wanted in zip(own, expected, strict=True) if tensor.requires_grad]
    assert [tensor.grad is None for tensor in own] == [not tensor.requires_grad for tensor in own]
    return max(relative_error(tensor.grad, wanted) for tensor, wanted in found)


@pytest.mark.parametrize("frozen", ["", "a", "b"])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_gradients_match_autograd(world, world_size, operator, frozen):
    assert max(world(gradients, world_size, args=(operator, torch.float32, frozen))) < 1e-5


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_of_bf16(world, operator):
    assert max(world(gradients, 2, args=(operator, torch.bfloat16, ""))) < 2e-2


def in_a_team(operator) -> float:
    """Ranks 1 and 2 of three; the world's other rank has nothing to do with it."""
    rank = triton_dist.rank()
    if rank == 0:
        return 0.0
    from triton_dist.runtime.team import Team

    a, b = leaf(rank, ROWS, DEPTH).requires_grad_(), leaf(rank + 3, DEPTH, COLUMNS).requires_grad_()
    out = operator(a, b, group=Team(rank - 1, (1, 2)))
    out.sum().backward()
    return (a.grad.abs().sum() * b.grad.abs().sum()).item()


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_in_a_team(operator):
    assert all(value > 0 for value in triton_dist.simulate(in_a_team, 3, args=(operator,))[1:])


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_gradient_with_an_output_is_named(operator):
    def call() -> None:
        a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        with torch.no_grad():
            out = operator(a, b)
        operator(a, b, out=out)

    with pytest.raises(errors.InvalidArgumentError, match="no gradient with out="):
        triton_dist.simulate(call, 2)


def as_operators() -> list[bool]:
    """The torch.library forms give what the functions give, and their fake forms its shape, dtype and device."""
    a, b, bias = leaf(triton_dist.rank(), ROWS, DEPTH), leaf(9, DEPTH, COLUMNS), leaf(8, COLUMNS)
    rest = ("", "auto", None, None, None)
    same = []
    for call, operator, arguments in (
        (lambda: ag_gemm(a, b), torch.ops.triton_dist.ag_gemm, (a, b, *rest)),
        (lambda: gemm_rs(a, b, bias=bias), torch.ops.triton_dist.gemm_rs, (a, b, bias, *rest)),
        (lambda: gemm_ar(a, b, bias=bias), torch.ops.triton_dist.gemm_ar, (a, b, bias, *rest)),
        (lambda: triton_dist.ops.all_gather(a), torch.ops.triton_dist.gather_rows, (a, "")),
    ):
        expected, found = call(), operator(*arguments)
        with FakeTensorMode() as mode:
            faked = operator(*(mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in arguments))
        like = (faked.shape, faked.dtype, faked.device, faked.stride()) == (found.shape, found.dtype, found.device, found.stride())
        same.append(like and torch.equal(expected, found))
    return same


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_operators_of_the_library_and_their_fakes(world_size):
    assert triton_dist.simulate(as_operators, world_size) == [[True] * 4] * world_size


# torch.compile does not run on simulated ranks, so what it does is looked at in a world of one rank that is not there.


@pytest.fixture
def alone(monkeypatch):
    """Operators whose only rank is this one, so that each is a product."""

    def multiply(a, b, *, bias=None, group, method, **options):
        return a @ b if bias is None else torch.addmm(bias, a, b)

    for name in ("run_ag_gemm", "run_gemm_rs", "run_gemm_ar"):
        monkeypatch.setattr(custom_ops, name, multiply)
    monkeypatch.setattr(custom_ops, "all_gather", lambda x, group: x.clone())
    monkeypatch.setattr(custom_ops, "_size", lambda name: 1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def called_in(graph: torch.fx.GraphModule) -> set[str]:
    """Our operators in a graph."""
    names = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    return {name.split(".")[1] for name in names if name.startswith("triton_dist.")}


@pytest.mark.parametrize(
    ("operator", "backward"),
    [(ag_gemm, {"gemm_rs", "gather_rows"}), (gemm_rs, {"gather_rows"}), (gemm_ar, set())],
)
def test_torch_compile_traces_an_operator_and_its_backward(alone, operator, backward):
    graphs: list[set[str]] = []

    def note(graph, inputs):
        graphs.append(called_in(graph))
        return make_boxed_func(graph.forward)

    def model(a, b):
        return torch.nn.functional.gelu(operator(a * 2, b)).sum()

    a, b = leaf(1, ROWS, DEPTH).requires_grad_(), leaf(2, DEPTH, COLUMNS).requires_grad_()
    wide = [tensor.detach().double().requires_grad_() for tensor in (a, b)]
    torch.nn.functional.gelu((wide[0] * 2) @ wide[1]).sum().backward()
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=note, bw_compiler=note), fullgraph=True)
    compiled(a, b).backward()
    assert graphs == [{operator.__name__}, backward]
    assert all(torch.allclose(tensor.grad.double(), wanted.grad, rtol=1e-4, atol=1e-4) for tensor, wanted in zip((a, b), wide, strict=True))


def test_a_frozen_weight_leaves_the_backward_to_ag_gemm(alone):
    graphs: list[set[str]] = []

    def note(graph, inputs):
        graphs.append(called_in(graph))
        return make_boxed_func(graph.forward)

    compiled = torch.compile(gemm_rs, backend=aot_autograd(fw_compiler=note, bw_compiler=note), fullgraph=True)
    compiled(leaf(1, ROWS, DEPTH).requires_grad_(), leaf(2, DEPTH, COLUMNS)).sum().backward()
    assert graphs == [{"gemm_rs"}, {"ag_gemm"}]


def test_a_compiled_call_fills_a_given_output(alone):
    a, b, out = leaf(1, ROWS, DEPTH), leaf(2, DEPTH, COLUMNS), torch.zeros(ROWS, COLUMNS)
    compiled = torch.compile(lambda a, b, out: gemm_rs(a, b, out=out), backend="aot_eager", fullgraph=True)
    compiled(a, b, out)
    assert torch.allclose(out, a @ b)


def test_a_process_group_goes_into_a_graph_by_its_name(alone, monkeypatch):
    names = []
    monkeypatch.setattr(custom_ops, "_size", lambda name: names.append(name) or 1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        a, b = leaf(1, ROWS, DEPTH), leaf(2, DEPTH, COLUMNS)
        compiled = torch.compile(lambda a, b: gemm_ar(a, b, group=group), backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(a, b), a @ b)
        compiled = torch.compile(lambda a, b: gemm_rs(a, b, group=group), backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(a, b), a @ b) and set(names) == {group.group_name}
    finally:
        dist.destroy_process_group()


def test_a_group_that_a_graph_can_not_name():
    with pytest.raises(errors.InvalidArgumentError, match="DeviceMesh or None, not 3"):
        custom_ops.name_of("gemm_rs", 3)
    assert custom_ops.name_of("gemm_rs", None) == ""


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_an_output_means_the_same_in_a_trace(operator, monkeypatch):
    """Its dtype decides that of the product; another shape or dtype than the call's is refused."""

    def body():
        a, b = (leaf(seed, 16, 16).to(torch.float8_e4m3fn) for seed in (1 + triton_dist.rank(), 3))
        truth = operator(a, b, out_dtype=torch.float32)
        out = torch.empty_like(truth)
        made = operator(a, b, out=out)
        for wrong in (torch.empty_like(truth, dtype=torch.int32), truth.new_empty(3, *truth.shape), truth.new_empty(1, 1)):
            with pytest.raises(errors.InvalidArgumentError, match="out is|can't be"):
                operator(a, b, out=wrong, out_dtype=torch.float32 if wrong.dtype != torch.int32 else None)
        return made is out and torch.equal(out, truth)

    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert triton_dist.simulate(body, 2) == [True] * 2


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_what_no_call_takes_is_refused_by_the_trace(alone, operator):
    calls = (lambda a, b: operator(a, b[1:]), lambda a, b: operator(a, b.half()), lambda a, b: operator(a, b, method="other"))
    for call in calls:
        with pytest.raises(Exception, match="inner sizes|is not known"):
            torch.compile(call, backend="eager", fullgraph=True)(leaf(1, ROWS, DEPTH), leaf(2, DEPTH, COLUMNS))
