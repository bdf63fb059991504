"""How ``torch.compile`` sees the layers: one graph with the operators in it, and the same results and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from tests.layers.references import (
    attention_reference,
    attention_state,
    gradient_error,
    leaf,
    mlp_reference,
    mlp_state,
    relative_error,
)
from triton_dist.layers import TPMLP, TPAttention
from triton_dist.ops.gemm import custom_ops

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


def compare(layer, form: str, state: dict[str, torch.Tensor], reference) -> None:
    """Forward and backward of the compiled layer. reference: of x and the full weights."""
    graphs: list[list[str]] = []

    def note(graph, inputs):
        graphs.append(called_in(graph))
        return make_boxed_func(graph.forward)

    scattered = form == "scattered"
    layer.load_full_state(state)
    x, grad = leaf(1, 3, 2, HIDDEN).requires_grad_(), leaf(2, 3, 2, HIDDEN)
    wide = (torch.cat([x, x]) if scattered else x).detach().double().requires_grad_()
    full = {name: value.double().requires_grad_() for name, value in state.items()}
    expected = reference(wide, full)
    expected.backward((torch.cat([grad, grad]) if scattered else grad).double())
    # What both ranks have half of is the same on both only if their rows come to the same.
    alike = expected.shape[0] == 3 or torch.allclose(expected[:3], expected[3:])
    assert alike, "the two ranks of the mirrored world have to do the same"
    compiled = torch.compile(layer, backend=aot_autograd(fw_compiler=note, bw_compiler=note), fullgraph=True)
    out = compiled(x)
    out.backward(grad)
    assert [sorted(calls) for calls in graphs] == [sorted(calls) for calls in GRAPHS[form]]
    assert relative_error(out, expected[:3]) < 1e-5 and relative_error(x.grad, wide.grad[:3]) < 1e-5
    assert gradient_error(layer, {name: value.grad for name, value in full.items()}) < 1e-5


@pytest.mark.parametrize("form", GRAPHS)
def test_a_compiled_mlp(mirrored, form):
    state = mirrored_state(mlp_state(HIDDEN, INTERMEDIATE, True, True, torch.float32), "down")
    layer = TPMLP(HIDDEN, INTERMEDIATE, bias=True, sequence_parallel=form == "scattered")
    compare(layer, form, state, lambda x, full: mlp_reference(x, full, "silu", True))


@pytest.mark.parametrize("form", GRAPHS)
def test_a_compiled_attention(mirrored, form):
    """Every token attends to all, without positions, so that both ranks' rows are the same."""
    state = mirrored_state(attention_state(HIDDEN, 4, 2, 4, True, torch.float32), "o_proj")
    layer = TPAttention(HIDDEN, 4, 2, head_dim=4, bias=True, causal=False, sequence_parallel=form == "scattered")
    compare(layer, form, state, lambda x, full: attention_reference(x, full, 4, False, None))


def test_a_compiled_attention_with_positions(mirrored):
    state = mirrored_state(attention_state(HIDDEN, 4, 2, 4, False, torch.float32), "o_proj")
    layer = TPAttention(HIDDEN, 4, 2, head_dim=4, rope_theta=100.0, sequence_parallel=False)
    compare(layer, "replicated", state, lambda x, full: attention_reference(x, full, 4, True, 100.0))


@pytest.mark.parametrize("form", GRAPHS)
def test_a_compiled_mlp_without_gradients(mirrored, form):
    layer = TPMLP(HIDDEN, INTERMEDIATE, gated=False, activation="gelu", sequence_parallel=form == "scattered")
    state = mirrored_state(mlp_state(HIDDEN, INTERMEDIATE, False, False, torch.float32), "down")
    layer.load_full_state(state)
    x = leaf(1, 4, HIDDEN)
    with torch.no_grad():
        out = torch.compile(layer, backend="eager", fullgraph=True)(x)
    assert relative_error(out, mlp_reference(x.double(), {n: v.double() for n, v in state.items()}, "gelu", False)) < 1e-5


@pytest.mark.parametrize("name", ["group", "mesh", "dimension"])
def test_compiled_layers_name_their_group(mirrored, monkeypatch, name):
    names = []
    monkeypatch.setattr(custom_ops, "_size", lambda name: names.append(name) or 2)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
        group = {"group": mesh.get_group("tensor"), "mesh": mesh["tensor"], "dimension": (mesh, "tensor")}[name]
        for layer in (TPMLP(HIDDEN, INTERMEDIATE, bias=True, group=group), TPAttention(HIDDEN, 4, 2, head_dim=4, group=group)):
            torch.compile(layer, backend="aot_eager", fullgraph=True)(leaf(1, 4, HIDDEN)).sum().backward()
        assert set(names) == {mesh.get_group("tensor").group_name}
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("form", GRAPHS)
@pytest.mark.parametrize("kind", ["mlp", "attention"])
def test_compiled_layers_under_autocast(mirrored, form, kind):
    """One graph still, and the dtype of autocast."""
    if kind == "mlp":
        layer = TPMLP(HIDDEN, INTERMEDIATE, bias=True, sequence_parallel=form == "scattered")
        layer.load_full_state(mirrored_state(mlp_state(HIDDEN, INTERMEDIATE, True, True, torch.float32), "down"))
    else:
        layer = TPAttention(HIDDEN, 4, bias=True, rope_theta=100.0, sequence_parallel=form == "scattered")
        layer.load_full_state(mirrored_state(attention_state(HIDDEN, 4, 4, HIDDEN // 4, True, torch.float32), "o_proj"))
    x = leaf(1, 3, 2, HIDDEN)
    plain = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        made = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert made.dtype == torch.bfloat16 and relative_error(made, plain) < 3e-2
