"""``torch.compile`` over functions with kernels and operators of this package, and the name of the patch that is not needed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

import triton_dist
from tests.tools import compile_bodies
from triton_dist.errors import MissingCapabilityError
from triton_dist.tools import apply_triton340_inductor_patch

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Dynamo does not know", "ignore:.*symbolic shapes")


def test_no_patch_is_needed(caplog, monkeypatch):
    with caplog.at_level(logging.INFO, logger="triton_dist"):
        said = apply_triton340_inductor_patch()
    assert said.startswith("no patch is needed") and triton.__version__ in said and said in caplog.text
    monkeypatch.setattr(triton, "__version__", "3.4.0")
    with pytest.raises(MissingCapabilityError, match="3.4.0 is older than 3.6"):
        apply_triton340_inductor_patch()


def test_names_of_tools():
    import triton_dist.tools as tools

    assert "apply_triton340_inductor_patch" in dir(tools)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        tools.no_such_name  # noqa: B018


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", ["rotate", "reduce", "reduce_in_graph"])
def test_on_simulated_ranks(name, backend):
    """There torch runs a compiled function as it is, because the simulator orders torch's operators by a dispatch mode."""
    assert triton_dist.simulate(compile_bodies.run, 2, args=(name, backend, False)) == [True, True]


def test_inductor_on_one_rank():
    x, y = torch.randn(100), torch.randn(100)
    torch._dynamo.reset()
    compiled = torch.compile(compile_bodies.add)
    assert torch.equal(compiled(x, y), torch.relu(x + y) * 2)


PROGRAM = """
import torch, torch.utils._triton
torch.utils._triton.has_triton = lambda *arguments: True
from torch._dynamo.backends.common import aot_autograd
import triton_dist
from tests.tools import compile_bodies

x, y = torch.randn(100), torch.randn(100)
out = torch.compile(compile_bodies.add, backend="aot_eager", fullgraph=True)(x, y)
print(torch.equal(out, torch.relu(x + y) * 2))

def look(graph, examples):
    for node in graph.graph.nodes:
        if "triton_kernel_wrapper" in str(node.target):
            print(node.target, sorted(node.kwargs["tensors_to_clone"]))
    return graph.forward

compiled = torch.compile(compile_bodies.rotate, backend=aot_autograd(fw_compiler=look), fullgraph=True)
try:
    compiled(torch.randn(64), torch.zeros(64), torch.zeros(1, dtype=torch.int32))
except triton_dist.errors.NotSymmetricError:
    print("compiled, and launched outside of a world")
"""


def test_kernels_in_a_graph_as_on_a_gpu():
    """Where torch finds a GPU that Triton knows (here it is told so), kernels by ``triton_dist.jit`` are part of its graph as those by
    ``triton.jit`` are. Of one that communicates torch takes any tensor to be written."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, last = done.stdout.splitlines()
    assert first == "True" and last.startswith("compiled")
    assert second.startswith("triton_kernel_wrapper_functional") and "'arrived', 'inbox', 'out'" in second
