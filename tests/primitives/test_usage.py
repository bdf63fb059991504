"""The ways in which a kernel gets at the primitives."""

from __future__ import annotations

import subprocess
import sys

import pytest
import triton
import triton.language as tl
from compile_targets import AMD

import triton_dist.language as dl
import triton_dist.language.simt_ops as simt_ops
from triton_dist.language import notify, rank, wait
from triton_dist.language.extra import language_extra, libshmem_device
from triton_dist.language.extra.cuda import language_extra as cuda_language_extra
from triton_dist.language.extra.language_extra import __syncthreads, num_threads, num_warps, st, threads_per_warp, tid
from triton_dist.primitives.table import PRIMITIVES, SHMEM_PRIMITIVES

TYPES = {"words": "*i32", "out": "*i32", "n": "i32"}


@triton.jit
def wait_and_point(words, peer):
    token = dl.wait(words, 2, "sys", "acquire")
    return dl.consume_token(dl.symm_at(words, peer), token)


@triton.jit
def twice_nested(words, peer):
    return wait_and_point(words, peer) + 1


@triton.jit
def nested_kernel(words, out, n):
    tl.store(out, tl.load(twice_nested(words, n)))


@triton.jit
def direct_names_kernel(words, out, n):
    wait(words, 1, scope="sys", sem="acquire")
    notify(words, rank() + 1, comm_scope="intra_node")
    if tid(0) < n:
        st(out + tid(0), num_threads() + num_warps() + threads_per_warp())
    __syncthreads()


@triton.heuristics({"COUNT": lambda arguments: 3})
@triton.jit
def heuristics_kernel(words, out, n, COUNT: tl.constexpr):
    dl.wait(words, COUNT, "sys", "acquire")
    tl.store(out, 1)


@triton.autotune(configs=[triton.Config({"COUNT": 1}), triton.Config({"COUNT": 40})], key=["n"])
@triton.jit
def autotuned_kernel(words, out, n, COUNT: tl.constexpr):
    dl.wait(words, COUNT, "sys", "acquire")
    tl.store(out, 1)


@triton.jit
def constants_kernel(words, out, n, SCOPE: tl.constexpr, CMP: tl.constexpr):
    dl.wait(words, 1, SCOPE, "acquire", cmp=CMP)
    constant: tl.constexpr = num_threads() // 2
    lanes = tl.arange(0, constant)
    tl.store(out + lanes, lanes)


@triton.jit
def values_kernel(words, out, n):
    token = dl.wait(words, 1, "sys", "acquire")
    lanes = dl.consume_token(tl.arange(0, 64), token)
    half = dl.consume_token(tl.full((64,), 1.5, tl.float16), token)
    tiny = dl.consume_token(tl.full((64,), 1.5, tl.float16).to(tl.float8e5), token)
    flags = dl.consume_token(lanes > n, token)
    narrow = dl.consume_token(lanes.to(tl.int8), token)
    scalar = dl.consume_token(n, token)
    number = dl.consume_token(7, token)
    total = half.to(tl.float32) + tiny.to(tl.float32) + narrow.to(tl.float32)
    tl.store(out + lanes, tl.where(flags, total, scalar + number).to(tl.int32))


@triton.jit
def pointers_to_pointers_kernel(table, out, n):
    tl.store(out, tl.load(dl.symm_at(table, n)).to(tl.int64).to(tl.int32))


@triton.jit
def descriptor_kernel(words, out, n):
    token = dl.wait(words, 1, "sys", "acquire")
    source = tl.make_tensor_descriptor(words, [n, 128], [128, 1], [8, 128])
    source = dl.consume_token(source, token)
    tile = source.load([0, 0])
    target = tl.make_tensor_descriptor(out, [n, 128], [128, 1], [8, 128])
    target.store([0, 0], tile)


@triton.jit
def block_pointer_kernel(words, out, n):
    token = dl.wait(words, 1, "sys", "acquire")
    source = tl.make_block_ptr(words, (n,), (1,), (0,), (128,), (0,))
    source = dl.consume_token(source, token)
    tl.store(out + tl.arange(0, 128), tl.load(source))


@triton.jit
def shmem_kernel(words, out, n):
    if tid(0) < libshmem_device.n_pes():
        seen = libshmem_device.signal_wait_until(words + tid(0), libshmem_device.NVSHMEM_CMP_GE, n)
        libshmem_device.signal_op(words, seen, libshmem_device.NVSHMEM_SIGNAL_ADD, tid(0))
        libshmem_device.signal_op(words, 1, libshmem_device.NVSHMEM_SIGNAL_SET, libshmem_device.my_pe())
        st(libshmem_device.remote_ptr(out, 1), 1)
    __syncthreads()


KERNELS = [nested_kernel, direct_names_kernel, values_kernel, descriptor_kernel, shmem_kernel]


@pytest.mark.parametrize("target", [80, 90, 100, AMD])
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_compile_on_every_target(compiled, target, kernel):
    assert compiled(kernel, target, TYPES)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_traced_for_the_simulator(simulated, kernel):
    assert "td." in simulated(kernel, TYPES)


@pytest.mark.skipif(tuple(map(int, triton.__version__.split(".")[:2])) > (3, 8), reason="this Triton has no block pointers")
def test_a_block_pointer_is_consumed_as_it_is(compiled):
    assert "ld.acquire.sys" in compiled(block_pointer_kernel, 90, TYPES)["ptx"]


def test_a_pointer_to_pointers(compiled):
    text = compiled(pointers_to_pointers_kernel, 90, {"table": "*i64", "out": "*i32", "n": "i32"})["ptx"]
    assert "shr.u64" in text


def test_constexpr_arguments_may_be_kernel_parameters(compiled):
    text = compiled(constants_kernel, 90, TYPES, {"SCOPE": "gpu", "CMP": "ge"}, num_warps=4)["ptx"]
    assert "ld.acquire.gpu" in text
    assert "setp.lt.s32" in text


def test_under_heuristics(compiled):
    text = compiled(heuristics_kernel.fn, 90, TYPES, {"COUNT": 3})["ptx"]
    assert "%laneid" in text
    assert isinstance(heuristics_kernel.fn.cache_key, str)


def test_under_autotune(compiled):
    for config in autotuned_kernel.configs:
        text = compiled(autotuned_kernel.fn, 90, TYPES, config.kwargs)["ptx"]
        assert ("%laneid" in text) == (config.kwargs["COUNT"] > 1)


ROWS_OF_EXTRA = (
    "multimem_st",
    "multimem_ld_reduce",
    "shfl",
    "ballot",
    "syncwarp",
    "atomic_exch",
    "atomic_min",
    "atomic_max",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
)
"""Rows of which only ``language_extra`` has functions."""


def test_the_public_names():
    names = {name for name in PRIMITIVES if name not in ("fence", "syncthreads", *SHMEM_PRIMITIVES)}
    names |= {"__syncthreads", "fence_cta", "fence_gpu", "fence_sys"} | {f"wait_{cmp}" for cmp in ("eq", "ne", "gt", "ge", "lt", "le")}
    names -= {name for name, row in PRIMITIVES.items() if row.internal or name in ROWS_OF_EXTRA}
    assert names | {"extern_call", "simt_exec_region", "extract", "insert", "vector", "make_vector", "zeros_vector"} == set(dl.__all__)
    assert cuda_language_extra.__all__ == language_extra.__all__
    assert all(getattr(cuda_language_extra, name) is getattr(language_extra, name) for name in language_extra.__all__)
    assert all(getattr(simt_ops, name) is getattr(dl, name) for name in simt_ops.__all__)
    assert libshmem_device.my_pe is dl.rank and libshmem_device.n_pes is dl.num_ranks


def test_shmem_constants_have_nvshmems_values():
    values = {"EQ": 0, "NE": 1, "GT": 2, "LE": 3, "LT": 4, "GE": 5}
    for name, value in values.items():
        assert getattr(libshmem_device, f"NVSHMEM_CMP_{name}").value == value
    assert libshmem_device.NVSHMEM_SIGNAL_SET.value == 9
    assert libshmem_device.NVSHMEM_SIGNAL_ADD.value == 10
    assert libshmem_device.NVSHMEM_TEAM_WORLD.value == 0
    assert libshmem_device.NVSHMEM_TEAM_SHARED.value == 1
    assert libshmem_device.NVSHMEMX_TEAM_NODE.value == 2


def test_importing_needs_no_gpu_and_no_torch():
    code = "import sys, triton; before = set(sys.modules); import triton_dist.language.extra; print('torch' in set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
