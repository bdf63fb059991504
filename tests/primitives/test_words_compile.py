"""What several words at once, and multicast, become in PTX and on AMD GPUs, and where they are refused."""

from __future__ import annotations

import re

import pytest
import triton
from compile_targets import AMD, NVIDIA
from triton.compiler.errors import CompilationError

import triton_dist
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.language_extra import (
    load_v2_b64,
    load_v4_b32,
    load_v4_s32,
    load_v4_u32,
    multimem_ld_reduce_v4,
    multimem_st_b32,
    multimem_st_b64,
    multimem_st_p_b32,
    multimem_st_v2,
    multimem_st_v4,
    st_v2_u32,
    st_v4_b32,
    st_v4_u32,
    tid,
)

WITH_MULTICAST = tuple(arch for arch in NVIDIA if arch >= 90)


@triton_dist.jit
def words_kernel(source, target):
    here, there = source + 4 * tid(0), target + 4 * tid(0)
    a, b, c, d = load_v4_u32(here)
    st_v4_u32(there, a, b, c, d)
    a, b, c, d = load_v4_s32(here)
    st_v4_b32(there, a, b, c, d)
    a, b, c, d = load_v4_b32(here, "sys", "acquire")
    st_v4_b32(there, a, b, c, d, "sys", "release")
    low, high = load_v2_b64(here)
    st_v2_u32(there, low.to(triton.language.uint32), high.to(triton.language.uint32))


def accesses(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])((?:ld|st)\.(?:\w+\.)*global\S*|multimem\S*)", text)


@pytest.mark.parametrize("arch", NVIDIA)
def test_words_are_one_access(compiled, arch):
    text = compiled(words_kernel, arch, {"source": "*fp32", "target": "*fp32"})["ptx"]
    assert accesses(text) == [
        "ld.global.v4.b32", "st.relaxed.gpu.global.v4.b32",
        "ld.global.v4.b32", "st.global.v4.b32",
        "ld.acquire.sys.global.v4.b32", "st.release.sys.global.v4.b32",
        "ld.relaxed.sys.global.v2.b64", "st.relaxed.sys.global.b64",
    ]  # fmt: skip


def test_words_on_amd(compiled):
    assert "global_store_dwordx2" in compiled(words_kernel, AMD, {"source": "*fp32", "target": "*fp32"})["amdgcn"]


@triton_dist.jit
def multicast_kernel(data, out, mask):
    to_all = shmem.remote_mc_ptr(shmem.NVSHMEM_TEAM_WORLD, data) + 4 * tid(0)
    multimem_st_b32(to_all, 1)
    multimem_st_b64(to_all, tid(0).to(triton.language.int64))
    multimem_st_p_b32(to_all, 2, mask)
    a, b, c, d = multimem_ld_reduce_v4(to_all)
    multimem_st_v2(to_all, a, b)
    multimem_st_v4(to_all, a, b, c, d)
    a, b, c, d = multimem_ld_reduce_v4(to_all, data.dtype.element_ty)
    st_v4_b32(out + 4 * tid(0), a, b, c, d)


@pytest.mark.parametrize("arch", WITH_MULTICAST)
@pytest.mark.parametrize("dtype, packing, rounded", [("fp32", "f32", ""), ("fp16", "f16x2", ".acc::f32"), ("bf16", "bf16x2", ".acc::f32")])
def test_multicast(compiled, arch, dtype, packing, rounded):
    """ptxas takes it, and the masked store is skipped by a branch, of which the predicate bug of ``multimem.st`` knows nothing."""
    assembled = compiled(multicast_kernel, arch, {"data": f"*{dtype}", "out": "*i32", "mask": "i32"})
    text = assembled["ptx"]
    assert assembled["cubin"]
    assert [line for line in accesses(text) if line.startswith("multimem")] == [
        "multimem.st.weak.global.b32",
        "multimem.st.weak.global.b64",
        "multimem.st.weak.global.b32",
        f"multimem.ld_reduce.weak.global.add{rounded}.v4.{packing}",
        f"multimem.st.weak.global.v2.{packing}",
        f"multimem.st.weak.global.v4.{packing}",
        f"multimem.ld_reduce.weak.global.add.v4.{packing}",
    ]
    assert not re.search(r"@!?%\w+\s+multimem", text)


@pytest.mark.parametrize("target, reason", [(80, "compute capability 9.0"), (AMD, "NVLink only")])
def test_multicast_is_refused_where_there_is_none(compiled, target, reason):
    with pytest.raises(CompilationError) as caught:
        compiled(multicast_kernel, target, {"data": "*fp32", "out": "*i32", "mask": "i32"})
    assert reason in str(caught.value.__cause__)


@triton_dist.jit
def accumulator_kernel(data):
    multimem_ld_reduce_v4(data, triton.language.bfloat16)


def test_another_accumulator_is_refused(compiled):
    with pytest.raises(CompilationError) as caught:
        compiled(accumulator_kernel, 90, {"data": "*fp16"})
    assert "acc_dtype" in str(caught.value.__cause__)
