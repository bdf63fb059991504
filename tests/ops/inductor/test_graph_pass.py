"""The pass in Inductor: setting it, the passes beside it, its part in torch's cache, and what Inductor makes of graphs with operators."""

from __future__ import annotations

import logging
import pickle

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import run_and_get_code

from tests.ops.inductor import models
from tests.ops.inductor.traced import pretended, traced
from triton_dist import errors
from triton_dist.ops import InductorPass, disable_inductor_pass, enable_inductor_pass, inductor_pass
from triton_dist.ops.gemm import custom_ops

HOOK = "post_grad_custom_pre_pass"
SIZE = 4


class Counting(CustomGraphPass):
    """A pass of a user."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.runs += 1

    def uuid(self) -> str:
        return "counting"


@pytest.fixture(autouse=True)
def unset():
    """No pass is set before and after."""
    setattr(inductor_config, HOOK, None)
    yield
    setattr(inductor_config, HOOK, None)


def a_graph() -> torch.fx.Graph:
    return traced(models.gathered_product, torch.zeros(8, 16), torch.zeros(16, 8))[0].graph


def test_enable_and_disable():
    used = enable_inductor_pass()
    assert getattr(inductor_config, HOOK) is used and isinstance(used, InductorPass) and str(used.report) == "no collectives"
    again = enable_inductor_pass(["gemm_rs"])
    assert getattr(inductor_config, HOOK) is again and again.before == ()
    disable_inductor_pass()
    assert getattr(inductor_config, HOOK) is None
    disable_inductor_pass()


def test_passes_that_are_set_already_come_first_and_stay():
    mine = Counting()
    setattr(inductor_config, HOOK, mine)
    with pretended(2):
        with inductor_pass() as used:
            assert used.before == (mine,)
            graph = a_graph()
            getattr(inductor_config, HOOK)(graph)
            enable_inductor_pass()
        assert getattr(inductor_config, HOOK) is mine and mine.runs == 1 and len(used.report.matched) == 1
        setattr(inductor_config, HOOK, [mine, mine])
        both = enable_inductor_pass()
        both(a_graph())
        assert mine.runs == 3
    disable_inductor_pass()
    assert getattr(inductor_config, HOOK) == [mine, mine]


def test_the_block_ends_with_an_error():
    with pytest.raises(KeyError), inductor_pass():
        raise KeyError
    assert getattr(inductor_config, HOOK) is None


def test_a_pass_that_was_set_over_it_is_not_lost():
    enable_inductor_pass()
    setattr(inductor_config, HOOK, Counting())
    with pytest.raises(errors.InvalidArgumentError, match="not this package's pass"):
        disable_inductor_pass()


@pytest.mark.parametrize("operators", ["gemm_rs", ["gemm_rs", "all_to_all"]])
def test_operators_that_it_does_not_know(operators):
    with pytest.raises(errors.InvalidArgumentError, match="ag_gemm"):
        enable_inductor_pass(operators)


def test_what_the_cache_of_torch_takes_for_it():
    """The same for the same; another for other options, another world, another pass before; nothing, if that has none."""
    plain = InductorPass().uuid()
    assert plain == InductorPass().uuid() and pickle.loads(pickle.dumps(plain)) == plain
    others = [InductorPass(["gemm_rs"]).uuid(), InductorPass(after=Counting()).uuid()]
    with pretended(2):
        others.append(InductorPass().uuid())
    with pretended(3):
        others.append(InductorPass().uuid())
    assert len({plain, *others}) == 5
    assert InductorPass(after=lambda graph: None).uuid() is None


def test_report_and_log(caplog):
    with pretended(2), caplog.at_level(logging.INFO, logger="triton_dist"):
        used = InductorPass()
        used(a_graph())
        used(traced(models.reduced_product, torch.zeros(8, 16).double(), torch.zeros(16, 8).double())[0].graph)
    first, second = used.report
    assert (first.graph, first.kind, first.operator, first.product) == (0, "all_gather", "ag_gemm", "mm")
    assert first.shapes == "(16, 16) @ (16, 8) float32"
    assert (second.graph, second.kind, second.operator) == (1, "all_reduce", None)
    assert str(used.report) == f"{first}\n{second}" == "\n".join(record.message for record in caplog.records if "graph" in record.message)


@pytest.fixture
def alike(monkeypatch):
    """A world whose ranks all have this rank's tensors, so that one process can compute what an operator gives."""

    def ag_gemm(a_shard, b, *, gathered=None, **options):
        rows = torch.cat([a_shard] * SIZE)
        if gathered is not None:
            gathered.copy_(rows)
        return rows @ b

    def gemm_rs(a, b, *, bias=None, **options):
        return SIZE * (a @ b)[: a.shape[0] // SIZE]

    def gemm_ar(a, b, *, bias=None, **options):
        return SIZE * (a @ b)

    for function in (ag_gemm, gemm_rs, gemm_ar):
        monkeypatch.setattr(custom_ops, f"run_{function.__name__}", function)
    with pretended(SIZE), inductor_config.patch(force_disable_caches=True):
        yield


def mlp_of_one(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """``models.mlp`` in a world whose ranks are alike, without collectives; linear layers' weights."""
    return SIZE * (torch.relu(torch.cat([x] * SIZE) @ up.t()) @ down.t())[: x.shape[0]]


def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return models.mlp(x, up.t(), down.t())


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor_compiles_what_it_made(alike, dynamic):
    x, up, down = torch.randn(8, 16), torch.randn(24, 16), torch.randn(16, 24)
    with inductor_pass() as used, torch.no_grad():
        out, (code,) = run_and_get_code(torch.compile(mlp, dynamic=dynamic), x, up, down)
    assert torch.allclose(out, mlp_of_one(x, up, down), atol=1e-3)
    assert len(used.report.matched) == 2 and not used.report.skipped
    assert "torch.ops.triton_dist.ag_gemm.default(" in code and "torch.ops.triton_dist.gemm_rs.default(" in code
    assert "_c10d_functional" not in code.split("def call(")[1] and "extern_kernels.mm" not in code
    # The transposed weights go in as they are.
    assert code.count("triton_dist.ag_gemm.default(") == 1 and "reinterpret_tensor(arg" in code


def test_inductor_compiles_the_backward(alike):
    tensors = [torch.randn(8, 16), torch.randn(24, 16), torch.randn(16, 24)]
    x, up, down = [each.clone().requires_grad_() for each in tensors]
    with inductor_pass() as used:
        out = torch.compile(mlp)(x, up, down)
        out.square().sum().backward()
    assert [entry.operator for entry in used.report] == ["ag_gemm_gathered", "gemm_rs", "ag_gemm_gathered", "gemm_rs"]
    assert torch.allclose(out, mlp_of_one(*tensors), atol=1e-3)
    # By hand: a rank's product gets the gradients of all ranks' rows, and x those of all ranks' products.
    rows, own_up, own_down = [each.clone().requires_grad_() for each in (torch.cat([tensors[0]] * SIZE), *tensors[1:])]
    (torch.relu(rows @ own_up.t()) @ own_down.t()).backward(torch.cat([2 * out.detach()] * SIZE))
    for found, expected in ((x.grad, SIZE * rows.grad[:8]), (up.grad, own_up.grad), (down.grad, own_down.grad)):
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-2 * expected.abs().max().item())


def test_nothing_changes_where_it_is_not_set(alike):
    x, up, down = torch.randn(8, 16), torch.randn(24, 16), torch.randn(16, 24)
    with torch.no_grad():
        _, (code,) = run_and_get_code(torch.compile(mlp), x, up, down)
    assert "triton_dist" not in code and "_c10d_functional" in code
