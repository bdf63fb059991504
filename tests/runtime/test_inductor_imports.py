"""Inductor's text of a kernel has the names of this package that the kernel uses, and compiles."""

from __future__ import annotations

import subprocess
import sys

import pytest
import triton
import triton.language as tl

import triton_dist.language as distributed
from tests.kernel_text import load_module
from tests.tools import compile_bodies
from triton_dist.language import num_ranks, wait
from triton_dist.language.extra import libshmem_device
from triton_dist.runtime.inductor_imports import imports_of

PROGRAM = """
import sys
from triton_dist.runtime import inductor_imports
{before}
inductor_imports.import_names_in_inductor()
inductor_imports.import_names_in_inductor()
import torch._inductor.codegen.wrapper as writer
from tests.tools import compile_bodies
make = writer.user_defined_triton_kernel_transitive_closure_source_code
print(make(compile_bodies.rotate_kernel).splitlines()[-1])
print(make(compile_bodies.add_kernel).count("import"), hasattr(make.__wrapped__, "__wrapped__"))
print([finder for finder in sys.meta_path if isinstance(finder, inductor_imports._Watch)])
"""


@triton.jit
def helper(flag, value):
    return distributed.wait(flag, 1, "sys", "acquire", waitValue=value)


@triton.jit
def names_kernel(flag, out):
    helper(flag, num_ranks())
    wait(flag, 1, "sys", "acquire", waitValue=libshmem_device.my_pe())
    tl.store(out, tl.cdiv(tl.load(out), 2))


@pytest.mark.parametrize("before", ["", "import torch._inductor.codegen.wrapper"])
def test_before_and_after_inductor_is_there(before):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["import triton_dist.language as dl", "0 False", "[]"], done.stdout + done.stderr


def test_names_of_a_kernel_and_of_what_it_calls():
    assert sorted(imports_of(names_kernel)) == [
        "from triton_dist.primitives.functions import num_ranks as num_ranks",
        "from triton_dist.primitives.functions import wait as wait",
        "import triton_dist.language as distributed",
        "import triton_dist.language.extra.libshmem_device as libshmem_device",
    ]
    assert imports_of(compile_bodies.add_kernel) == []


def test_the_text_compiles():
    """As Inductor does it: the kernel's text under ``triton.jit`` in a module that knows ``triton`` and ``tl``, then the imports."""
    kernel = compile_bodies.rotate_kernel
    text = "\n".join(["import triton", "import triton.language as tl", "", "@triton.jit", kernel.src, *imports_of(kernel), ""])
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*fp32", "inbox": "*fp32", "arrived": "*i32", "out": "*fp32", "COUNT": "constexpr"}
    source = ASTSource(load_module(text).rotate_kernel, signature, {(4,): 64})
    assert "ld.acquire.sys" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
