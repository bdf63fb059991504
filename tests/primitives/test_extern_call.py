"""``extern_call``: what is linked into a kernel, how its calls look in PTX, its twins on the simulator, and wrong arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from compile_targets import AMD, NVIDIA
from extern_functions import LIBRARY, after, count_calls, count_calls_as_pure, record, weighted
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist import errors, simulate
from triton_dist.jit_function import compile_and_prepare
from triton_dist.language.extra.language_extra import tid
from triton_dist.primitives import bitcode

TYPES = {"words": "*i32", "out": "*fp32", "wide": "*fp64", "n": "i32"}


@triton_dist.jit
def calls_kernel(words, out, wide, n):
    tl.store(out, weighted(tl.load(out), 2.0, n))
    tl.store(wide, weighted(tl.load(wide), tl.load(wide + 1), n))
    record(after(words, n.to(tl.int64)), n + tid(0))


@pytest.mark.parametrize("arch", NVIDIA)
def test_calls_become_part_of_the_kernel(compiled, arch):
    """Small functions are inlined: the wrapper leaves nothing, and no call by another type than the function's is there."""
    assembled = compiled(calls_kernel, arch, TYPES)
    text = assembled["ptx"]
    assert assembled["cubin"]
    assert "call" not in re.findall(r"^\s*(call)\b", text, re.M) and "prototype" not in text
    assert re.search(r"fma\.rn\.f32|mul\.f32|mul\.rn\.f32", text) and re.search(r"fma\.rn\.f64|mul\.f64|mul\.rn\.f64", text)
    assert re.search(r"atom\.\S*add", text) or re.search(r"red\.\S*add", text)


def test_calls_on_amd(compiled):
    text = compiled(calls_kernel, AMD, TYPES)["amdgcn"]
    assert re.search(r"(?:flat|global)_atomic_add", text) and "s_swappc" not in text


@triton_dist.jit
def twice_kernel(words, PURE: tl.constexpr):
    if PURE:
        tl.store(words, count_calls_as_pure(3) + count_calls_as_pure(3))
        count_calls_as_pure(5)
    else:
        tl.store(words, count_calls(3) + count_calls(3))
        count_calls(5)


@pytest.mark.parametrize("pure, calls", [(True, 1), (False, 3)])
def test_only_pure_calls_are_merged_or_left_out(compiled, pure, calls):
    text = compiled(twice_kernel, 90, {"words": "*i32"}, {"PURE": pure})["ptx"]
    assert len(re.findall(r"^\s*\{?\s*call\S*\s", text, re.M)) == calls
    assert "prototype" not in text


def test_a_real_bitcode_file(compiled):
    """Triton's own libdevice, by path."""
    text = compiled(sine_kernel, 90, {"out": "*fp32"})["ptx"]
    assert "fma.rn" in text


LIBDEVICE = str(Path(triton.__file__).parent / "backends" / "nvidia" / "lib" / "libdevice.10.bc")


@tl.core.extern
def sine(x, _semantic=None):
    return dl.extern_call("mine", LIBDEVICE, [x], {("fp32",): ("__nv_sinf", tl.float32)}, True, _semantic=_semantic)


@triton_dist.jit
def sine_kernel(out):
    tl.store(out, sine(tl.load(out)))


@tl.core.extern
def weighted_of_launch(a, _semantic=None):
    return dl.extern_call("given", "", [a, a, 3], {("fp32", "fp32", "i32"): ("weighted", tl.float32)}, True, _semantic=_semantic)


@triton.jit
def launch_library_kernel(out):
    tl.store(out, weighted_of_launch(tl.load(out)))


def test_a_library_of_the_launch(compiled):
    with pytest.raises(CompilationError) as caught:
        compiled(launch_library_kernel, 90, {"out": "*fp32"})
    assert "extern_libs" in str(caught.value.__cause__)
    source = triton.compiler.ASTSource(launch_library_kernel, {"out": "*fp32"}, {})
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    text = triton.compile(source, target=target, options={"extern_libs": {"given": LIBRARY}}).asm["ptx"]
    assert re.search(r"fma\.rn\.f32|mul\.f32|add\.f32", text)


# ---------------------------------------------------------------------- a library that changes


def test_a_changed_library_is_linked_anew(tmp_path):
    """Its path is the same, so Triton's cache knows the kernel; its content is looked at."""
    path = tmp_path / "constant.ll"

    @tl.core.extern
    def constant(_semantic=None):
        return dl.extern_call("constant", str(path), [], {(): ("constant", tl.int32)}, True, _semantic=_semantic)

    @triton_dist.jit
    def constant_kernel(out):
        tl.store(out, constant())

    source = triton.compiler.ASTSource(constant_kernel, {"out": "*i32"}, {})
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    found = []
    for value in (1234, 5678):
        path.write_text(f"define i32 @constant() {{ ret i32 {value} }}\n")
        stale = triton.compile(source, target=target).asm["ptx"]
        kernel = compile_and_prepare(triton.compile, triton.compiler.compiler.make_backend(target), source, target=target, options={})
        found.append((str(value) in stale, str(value) in kernel.asm["ptx"]))
    assert found == [(True, True), (False, True)]


# ---------------------------------------------------------------------- wrong arguments


@tl.core.extern
def wrong(a, CASE, _semantic=None):
    right = {("i32",): ("count_calls", tl.int32)}
    library, args, table = LIBRARY, [a], right
    case = CASE.value
    if case == "no file":
        library = "/nowhere/shapes.bc"
    elif case == "no symbol":
        table = {("i32",): ("count_cells", tl.int32)}
    elif case == "bad symbol":
        table = {("i32",): ("count calls", tl.int32)}
    elif case == "types":
        table = {("fp32",): ("weighted", tl.float32), ("i64", "i32"): ("weighted", tl.float32)}
    elif case == "type name":
        table = {("int33",): ("weighted", tl.float32)}
    elif case == "empty":
        table = {}
    elif case == "two results":
        table = {("i32",): ("count_calls", [tl.int32, tl.int32])}
    elif case == "tile":
        args = [tl.arange(0, 16, _semantic=_semantic)]
    return dl.extern_call("shapes", library, args, table, False, _semantic=_semantic)


@triton_dist.jit
def wrong_kernel(n, CASE: tl.constexpr):
    wrong(n, CASE)


WRONG = {
    "no file": r"/nowhere/shapes.bc.*can't be read",
    "no symbol": r"no function 'count_cells'.*mangled",
    "bad symbol": r"'count calls' is no symbol",
    "types": r"have the types \(int32\).*take \(fp32\) or \(i64, i32\)",
    "type name": r"int33 can't be passed",
    "empty": r"arg_type_symbol_dict",
    "two results": r"one value or none",
    "tile": r"argument 0.*a scalar",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(compiled, case):
    with pytest.raises(CompilationError) as caught:
        compiled(wrong_kernel, 90, {"n": "i32"}, {"CASE": case})
    chain = str(caught.value.__cause__)
    assert re.search(WRONG[case], chain), chain


# ---------------------------------------------------------------------- the simulator


def test_twins_run_for_each_thread():
    def body():
        words, out, wide = torch.zeros(8, dtype=torch.int32), torch.ones(1), torch.tensor([1.0, 0.5], dtype=torch.float64)
        calls_kernel[(2,)](words, out, wide, 3)
        triton_dist.synchronize()
        return words[3].item(), out.item(), wide[0].item()

    sums = 2 * (128 * 3 + sum(range(128)))
    assert simulate(body, 1) == [(sums, 1 + 2 * 3.0 * 2, 1 + 2 * 1.5)]


@triton_dist.jit
def bounds_kernel(words):
    record(words + 8, 1)


def test_a_twin_s_accesses_are_checked():
    def body():
        bounds_kernel[(1,)](torch.zeros(8, dtype=torch.int32))
        triton_dist.synchronize()

    with pytest.raises(errors.OutOfBoundsError, match="bounds_kernel"):
        simulate(body, 1)


@triton_dist.jit
def masked_kernel(words):
    if tid(0) < 5:
        record(words, 2)


def test_only_the_threads_that_come_call_a_twin():
    def body():
        words = torch.zeros(1, dtype=torch.int32)
        masked_kernel[(1,)](words)
        triton_dist.synchronize()
        return words.item()

    assert simulate(body, 1) == [10]


def test_without_a_twin_the_error_says_how():
    def body():
        twice_kernel[(1,)](torch.zeros(1, dtype=torch.int32), PURE=False)
        triton_dist.synchronize()

    with pytest.raises(errors.UnsupportedOperationError, match=r"no Python twin of 'count_calls'.*extern_twin\('count_calls'\)"):
        simulate(body, 1)


def test_wrong_twins_are_named():
    with pytest.raises(errors.InvalidArgumentError, match="symbol"):
        triton_dist.extern_twin("")
    with pytest.raises(errors.InvalidArgumentError, match="decorates a function"):
        triton_dist.extern_twin("x")(3)


def test_a_wrapper_takes_generic_pointers():
    text = bitcode.wrapper_text([bitcode.Signature("f", ("*fp32", "int64"), "")])
    assert "declare void @f(ptr, i64)" in text and "addrspacecast ptr addrspace(1) %a0 to ptr" in text
