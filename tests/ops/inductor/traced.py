"""Graphs as Inductor's passes get them, traced for ranks that are not there, and run on simulated ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.fx import GraphModule
from torch.testing._internal.distributed.fake_pg import FakeStore

import triton_dist
from triton_dist.ops import InductorPass
from triton_dist.runtime import world as world_module

Inputs = tuple[torch.Tensor, ...]


@contextlib.contextmanager
def pretended(size: int, device: str = "cpu") -> Iterator[None]:
    """A world in which this process is rank 0 of ``size``, with a process group that sends nothing: enough to trace."""
    before = world_module._process_world
    torch._dynamo.reset()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    world_module._process_world = SimpleNamespace(  # type: ignore[assignment]
        rank=0, world_size=size, device=torch.device(device), raise_failure=lambda: None
    )
    try:
        yield
    finally:
        world_module._process_world = before
        dist.destroy_process_group()
        torch._dynamo.reset()


def traced(fn: Callable, *inputs: torch.Tensor, dynamic: bool = False) -> list[GraphModule]:
    """The graphs of ``fn``: the forward's, and the backward's of the sum of its result if an input needs a gradient.

    Only inside ``pretended``.
    """
    graphs: list[GraphModule] = []

    def note(graph: GraphModule, examples: Any) -> Callable:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=note, bw_compiler=note, decompositions=select_decomp_table(), partition_fn=min_cut_rematerialization_partition
    )
    out = torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    if any(each.requires_grad for each in inputs):
        (out if isinstance(out, torch.Tensor) else out[0]).sum().backward()
    return graphs


def changed(graph: GraphModule, **options: Any) -> tuple[GraphModule, InductorPass]:
    """A copy of the graph after the pass, and the pass."""
    copy = GraphModule(graph, _copied(graph.graph))
    used = InductorPass(**options)
    used(copy.graph)
    copy.graph.lint()
    copy.recompile()
    return copy, used


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    new, known = torch.fx.Graph(), {}
    result = new.graph_copy(graph, known)
    new.output(result)
    for old, copy in known.items():
        copy.meta = dict(old.meta)
        copy.name = old.name
    return new


def called(graph: GraphModule) -> list[str]:
    """Collectives, products and operators that a graph calls, in its order, without the names of their libraries."""
    names = [str(node.target).split(".")[:2] for node in graph.graph.nodes if node.op == "call_function"]
    return [name[1] for name in names if len(name) == 2 and (name[0] in ("_c10d_functional", "triton_dist") or name[1].endswith("mm"))]


def _run(graphs: tuple[GraphModule, ...], inputs: list[Inputs]) -> list[list[torch.Tensor]]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    results = []
    for graph in graphs:
        out = graph(*inputs[triton_dist.rank()])
        results.append([each for each in out if isinstance(each, torch.Tensor)])
    return results


def results(graphs: tuple[GraphModule, ...], inputs: list[Inputs], seed: int = 0) -> list[list[list[torch.Tensor]]]:
    """What each rank's graphs give for its inputs: by rank, graph, output."""
    return triton_dist.simulate(_run, len(inputs), args=(graphs, inputs), seed=seed)
