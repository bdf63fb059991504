"""How ``torch.compile`` sees the layers: one graph with the operators in it, and the same results and gradients."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from tests.layers.references import gradient_error, leaf, mlp_reference, mlp_state, relative_error
from triton_dist.layers import TPMLP

HIDDEN, INTERMEDIATE = 24, 48


def called_in(graph: torch.fx.GraphModule) -> list[str]:
    """Our operators in a graph."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    return [name.split(".")[1] for name in names if name.startswith("triton_dist.")]


def mirrored_state(state: dict[str, torch.Tensor], split_inner: str) -> dict[str, torch.Tensor]:
    """Full weights whose parts of both ranks are the same; split_inner: the projection that is split over its inputs."""
    made = {}
    for name, value in state.items():
        if name.startswith(split_inner):
            made[name] = torch.cat([value.chunk(2, 1)[0]] * 2, 1) if value.dim() == 2 else value
        else:
            made[name] = torch.cat([value.chunk(2, 0)[0]] * 2, 0)
    return made


GRAPHS = {
    "scattered": [["ag_gemm", "gemm_rs"], ["gather_rows", "gather_rows", "gemm_rs", "gather_rows"]],
    "replicated": [["gemm_ar"], ["gemm_ar"]],
}


@pytest.mark.parametrize("form", GRAPHS)
def test_a_compiled_mlp(mirrored, form):
    graphs: list[list[str]] = []

    def note(graph, inputs):
        graphs.append(called_in(graph))
        return make_boxed_func(graph.forward)

    scattered = form == "scattered"
    layer = TPMLP(HIDDEN, INTERMEDIATE, bias=True, sequence_parallel=scattered)
    state = mirrored_state(mlp_state(HIDDEN, INTERMEDIATE, True, True, torch.float32), "down")
    layer.load_full_state(state)
    x, grad = leaf(1, 3, 2, HIDDEN).requires_grad_(), leaf(2, 3, 2, HIDDEN)
    wide = (torch.cat([x, x]) if scattered else x).detach().double().requires_grad_()
    full = {name: value.double().requires_grad_() for name, value in state.items()}
    expected = mlp_reference(wide, full, "silu", True)
    expected.backward((torch.cat([grad, grad]) if scattered else grad).double())
    compiled = torch.compile(layer, backend=aot_autograd(fw_compiler=note, bw_compiler=note), fullgraph=True)
    out = compiled(x)
    out.backward(grad)
    assert [sorted(calls) for calls in graphs] == [sorted(calls) for calls in GRAPHS[form]]
    assert relative_error(out, expected[:3]) < 1e-5 and relative_error(x.grad, wide.grad[:3]) < 1e-5
    assert gradient_error(layer, {name: value.grad for name, value in full.items()}) < 1e-5


@pytest.mark.parametrize("form", GRAPHS)
def test_a_compiled_mlp_without_gradients(mirrored, form):
    layer = TPMLP(HIDDEN, INTERMEDIATE, gated=False, activation="gelu", sequence_parallel=form == "scattered")
    state = mirrored_state(mlp_state(HIDDEN, INTERMEDIATE, False, False, torch.float32), "down")
    layer.load_full_state(state)
    x = leaf(1, 4, HIDDEN)
    with torch.no_grad():
        out = torch.compile(layer, backend="eager", fullgraph=True)(x)
    assert relative_error(out, mlp_reference(x.double(), {n: v.double() for n, v in state.items()}, "gelu", False)) < 1e-5
