"""Which kernels make this process look for a context page, and which need one; the page itself is in ``scenarios/lone.py``."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import libshmem_device
from triton_dist.runtime.cuda import lone_page


@triton.jit
def plain_kernel(out):
    tl.store(out, 17592186)


@triton.jit
def thread_kernel(out):
    dl.st(out, 1)


@triton.jit
def rank_kernel(out):
    tl.store(out, dl.rank())


@triton_dist.jit
def region_kernel(out):
    with dl.simt_exec_region() as (thread, threads):
        if thread == 0:
            tl.store(out, dl.num_ranks())


@triton.jit
def wait_kernel(out):
    dl.wait(out, 1, "gpu", "acquire")


@triton.jit
def team_kernel(out):
    tl.store(out, libshmem_device.team_n_pes(libshmem_device.NVSHMEM_TEAM_WORLD))


@triton.jit
def helper(out):
    return dl.num_ranks() + tl.load(out)


@triton.jit
def calls_a_helper_kernel(out):
    tl.store(out, helper(out))


@pytest.fixture
def hooks(monkeypatch):
    """The hooks that see a kernel before it is loaded, with a torch for CUDA."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    calls: list = []
    monkeypatch.setattr(knobs.runtime.kernel_load_start_hook, "calls", calls)
    return calls


@pytest.mark.parametrize("kernel", [rank_kernel, region_kernel, wait_kernel, team_kernel, calls_a_helper_kernel, thread_kernel])
def test_a_kernel_with_primitives_makes_the_process_look(hooks, kernel):
    """Before it is compiled, or found in the cache; others do not, and a hook of the user's stays."""
    mine = hooks.append
    hooks.append(mine)
    assert plain_kernel.cache_key and hooks == [mine]
    kernel.hash = None
    assert kernel.cache_key
    assert hooks == [mine, lone_page._on_load]


def test_without_cuda_nothing_is_added(hooks, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    lone_page.watch()
    assert hooks == []


def test_importing_adds_nothing():
    code = (
        "import torch; torch.version.cuda = '13.0'\n"
        "import triton_dist.language, triton_dist.ops, triton_dist.language.extra.libshmem_device\n"
        "from triton import knobs; print(knobs.runtime.kernel_load_start_hook.calls)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("kernel", "reads"),
    [
        (plain_kernel, False),
        (thread_kernel, False),
        (rank_kernel, True),
        (region_kernel, True),
        (wait_kernel, True),
        (team_kernel, True),
        (calls_a_helper_kernel, True),
    ],
)
def test_what_reads_the_page_is_seen_in_its_ptx(kernel, reads):
    compiled = triton.compile(ASTSource(kernel, {"out": "*i32"}), target=GPUTarget("cuda", 90, 32))
    assert lone_page.reads_page(compiled.metadata_group) is reads


def test_code_for_other_machines_needs_no_page():
    assert not lone_page.reads_page({"kernel.json": "nowhere", "kernel.ttir": "nowhere", "kernel.amdgcn": "nowhere"})
    assert lone_page.reads_page({"kernel.json": "nowhere", "kernel.cubin": "nowhere"})
