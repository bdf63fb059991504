"""The SHMEM names over NVSHMEM's device library: what is called for each, with which types, and what stays as it is.

Every test runs with a stand-in for the library; those that check NVSHMEM's own signatures run where it is installed, or NVSHMEM_HOME is
set.
"""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import nvshmem_stub
import pytest
import triton
import triton.language as tl
from compile_targets import source_of, target_of
from test_shmem_compiles import KERNELS, TYPES
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist.errors import MissingCapabilityError
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.language_extra import tid
from triton_dist.primitives import bitcode, nvshmem
from triton_dist.primitives.table import SHMEM_PRIMITIVES
from triton_dist.runtime.cuda import nvshmem as backing
from triton_dist.runtime.cuda import nvshmem_library


@functools.cache
def installed() -> str:
    """NVSHMEM's device library for sm_90, "" where there is none."""
    try:
        return str(nvshmem_library.find().device_library(90))
    except MissingCapabilityError:
        return ""


real = pytest.mark.skipif(not installed(), reason="NVSHMEM is not installed")


@pytest.fixture(scope="module")
def stub(tmp_path_factory) -> str:
    return str(nvshmem_stub.write(tmp_path_factory.mktemp("nvshmem") / "libnvshmem_device.ll"))


def compiled_with(library: str, kernel, types=TYPES, constants=None):
    source = source_of(kernel, types, constants or {})
    return triton.compile(source, target=target_of(90), options={"extern_libs": {nvshmem.LIBRARY: library}}).asm


@triton.jit
def rest_kernel(dest, source, words, out, n, pe):
    """What ``KERNELS`` does not call."""
    shmem.putmem(dest, source, n, pe)
    shmem.getmem_nbi(dest, source, n, pe)
    shmem.getmem_nbi_warp(dest, source, n, pe)
    shmem.getmem_block(dest, source, n, pe)
    shmem.putmem_nbi_warp(dest, source, n, pe)
    shmem.putmem_nbi_block(dest, source, n, pe)
    shmem.putmem_signal_nbi(dest, source, n, words, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    shmem.putmem_signal_warp(dest, source, n, words, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    shmem.putmem_signal_nbi_block(dest, source, n, words, 1, shmem.NVSHMEM_SIGNAL_ADD, pe)
    shmem.barrier_all_warp()
    shmem.sync_all_warp()
    shmem.sync_all()
    shmem.broadcastmem(0, dest, source, 4, 0)
    shmem.fcollectmem_warp(0, dest, source, 4)
    shmem.p(dest.to(tl.pointer_type(tl.int8)), n, pe)
    shmem.p(dest.to(tl.pointer_type(tl.bfloat16)), 1.0, pe)
    shmem.p(words, n, pe)
    bits = shmem.g(dest.to(tl.pointer_type(tl.uint8)), pe).to(tl.int32) + shmem.g(dest.to(tl.pointer_type(tl.float16)), pe).to(tl.int32)
    tl.store(out, bits + shmem.g(words, pe).to(tl.int32))


ALL = [*KERNELS, rest_kernel]


def functions_in(text: str) -> set[str]:
    """Functions of NVSHMEM that a kernel calls."""
    return set(re.findall(r"// (nvshmemx?_\w+)", text))


@pytest.mark.parametrize("kernel", ALL)
def test_calls_have_the_functions_own_types(stub, kernel):
    """A call by another type than the function's would be an indirect one, by a prototype."""
    assembled = compiled_with(stub, kernel)
    assert assembled["cubin"] and ".callprototype" not in assembled["ptx"]


def test_every_function_is_reached(stub):
    reached = set().union(*(functions_in(compiled_with(stub, kernel)["ptx"]) for kernel in ALL))
    assert reached == {function.symbol for function in nvshmem_stub.all_signatures()}


def test_every_row_has_a_function():
    assert set(nvshmem.LOWERINGS) | {"remote_ptr"} == set(SHMEM_PRIMITIVES)


@real
@pytest.mark.parametrize("kernel", ALL)
def test_nvshmem_itself_is_linked(kernel):
    """Types of calls that NVSHMEM's bitcode does not have would show as prototypes, and an unknown name as an error of ptxas."""
    assembled = compiled_with(installed(), kernel)
    text = assembled["ptx"]
    assert assembled["cubin"] and ".callprototype" not in text
    assert re.search(r"\.visible \.const \.align 8 \.b8 nvshmemi_device_state_d\[", text)


@real
@pytest.mark.parametrize("function", nvshmem_stub.all_signatures(), ids=lambda function: function.symbol)
def test_nvshmem_has_every_name(function):
    bitcode.check_symbol("test", function.symbol, installed())


# ---------------------------------------------------------------------- addresses


@triton_dist.jit
def put_kernel(dest, source, pe):
    shmem.putmem_block(dest, source, 64, pe)


def test_symmetric_addresses_are_nvshmems(stub):
    """The distance is a word of the context page; a local source is moved only if it is this rank's symmetric memory."""
    text = compiled_with(stub, put_kernel, {"dest": "*fp32", "source": "*fp32", "pe": "i32"})["ptx"]
    assert len(re.findall(r"ld\.global\.nc\.b64", text)) == 1
    assert re.search(r"selp\.b64|@%p\d+", text)
    assert [line.split()[0] for line in text.splitlines() if line.strip().startswith("bar.sync")] == ["bar.sync", "bar.sync"]


@triton_dist.jit
def mixed_kernel(words, out, peer):
    """What is not of NVSHMEM's vocabulary is as without it."""
    dl.notify(words, peer, 1, "add", "intra_node")
    token = dl.wait_ge(words, 1, "sys")
    tl.store(dl.symm_at(out, peer), dl.rank() + token)
    tl.store(out + 1, shmem.signal_wait_until(out, shmem.NVSHMEM_CMP_GE, 1))


def test_other_primitives_stay(stub):
    types = {"words": "*i64", "out": "*i32", "peer": "i32"}
    source = source_of(mixed_kernel, types, {})
    plain = triton.compile(source, target=target_of(90)).asm["ptx"]
    text = compiled_with(stub, mixed_kernel, types)["ptx"]
    kept = r"^\s*(?:@%p\d+ )?((?:ld|st|atom|red|bar|fence)\.\S+)"
    assert re.findall(kept, text, re.M) == re.findall(kept, plain, re.M)
    assert functions_in(text) == set()


@triton_dist.jit
def narrow_kernel(word):
    shmem.signal_op(word, 1, shmem.NVSHMEM_SIGNAL_SET, 1)


def test_signal_words_have_64_bits(stub):
    with pytest.raises(CompilationError) as caught:
        compiled_with(stub, narrow_kernel, {"word": "*i32"})
    assert "64 bits" in str(caught.value.__cause__) and "int32" in str(caught.value.__cause__)


def test_a_library_without_the_function_is_named(tmp_path):
    path = tmp_path / "libnvshmem_device.ll"
    path.write_text("define void @nvshmem_quiet() { ret void }\n")
    with pytest.raises(CompilationError) as caught:
        compiled_with(str(path), put_kernel, {"dest": "*fp32", "source": "*fp32", "pe": "i32"})
    assert "nvshmemx_putmem_block" in str(caught.value.__cause__)


# ---------------------------------------------------------------------- which kernels get it


@triton_dist.jit
def which_kernel(out):
    if tid(0) == 0:
        shmem.quiet()
    tl.store(out, 1)


def test_kernels_are_launched_with_the_library_in_use(stub, monkeypatch):
    seen = {}
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", lambda self, *args, **options: seen.update(options))
    monkeypatch.setattr(backing, "_in_use", None)
    which_kernel.run(1, grid=(1,), warmup=True)
    assert "extern_libs" not in seen
    monkeypatch.setattr(backing, "_in_use", SimpleNamespace(device_library=stub))
    which_kernel.run(1, grid=(1,), warmup=True, extern_libs={"mine": "mine.bc"})
    assert seen["extern_libs"] == {"mine": "mine.bc", nvshmem.LIBRARY: stub}
