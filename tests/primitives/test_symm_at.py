"""Address arithmetic: the right distance, and the vector width that the pointer itself has, not more."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from compile_targets import AMD, NVIDIA

import triton_dist.language as dl
from triton_dist.runtime import address_map

TYPES = {"data": "*fp32", "out": "*fp32", "peer": "i32", "offset": "i32", "words": "*i32"}
TILE = {"TILE": 1024}


@triton.jit
def copy_kernel(data, out, peer, offset, words, TILE: tl.constexpr, HOW: tl.constexpr):
    lanes = tl.arange(0, TILE)
    if HOW == "base":
        source = dl.symm_at(data, peer) + lanes
    elif HOW == "base with offset":
        source = dl.symm_at(data + offset, peer) + lanes
    elif HOW == "offset after":
        source = dl.symm_at(data, peer) + offset + lanes
    elif HOW == "tensor":
        source = dl.symm_at(data + lanes, peer)
    elif HOW == "tensor with offset":
        source = dl.symm_at(data + offset + lanes, peer)
    elif HOW == "consumed":
        token = dl.wait(words, 1, "sys", "acquire")
        source = dl.consume_token(dl.symm_at(data, peer), token) + lanes
    elif HOW == "consumed tensor":
        token = dl.wait(words, 1, "sys", "acquire")
        source = dl.consume_token(dl.symm_at(data, peer) + lanes, token)
    elif HOW == "consumed with offset":
        token = dl.wait(words, 1, "sys", "acquire")
        source = dl.consume_token(dl.symm_at(data + offset, peer), token) + lanes
    elif HOW == "consumed index":
        token = dl.wait(words, 1, "sys", "acquire")
        source = dl.symm_at(data, peer) + dl.consume_token(offset * 16, token) + lanes
    elif HOW == "plain with offset":
        source = data + offset + lanes
    else:
        source = data + lanes
    tl.store(out + lanes, tl.load(source))


@triton.jit
def ranks_kernel(data, out, peer, offset, words, TILE: tl.constexpr):
    ranks = tl.arange(0, 4)
    tl.store(out + ranks, tl.load(dl.symm_at(data, ranks)))


@triton.jit
def rebuilt_pointer_kernel(data, out, peer, offset, words, TILE: tl.constexpr):
    """How symm_at must not be written: bit masks and an alignment that is asserted again."""
    address = (data + offset).to(tl.int64)
    rebuilt = tl.multiple_of(((address & 0x7FFFFFFFFF) | (peer.to(tl.int64) << 39)).to(tl.pointer_type(tl.float32)), 16)
    lanes = tl.arange(0, TILE)
    tl.store(out + lanes, tl.load(rebuilt + lanes))


def load_widths(texts):
    """Words that each load from global memory takes at once."""
    if "amdgcn" in texts:
        return {
            {"dword": 1, "dwordx2": 2, "dwordx4": 4}[name] for name in re.findall(r"(?:global|buffer)_load_(dword\w*)", texts["amdgcn"])
        }
    return {int(width or 1) for width in re.findall(r"ld\.global(?:\.v(\d))?\.b32", texts["ptx"])}


ALIGNED = ["plain", "base", "tensor", "consumed", "consumed tensor", "consumed index"]
UNALIGNED = ["base with offset", "offset after", "tensor with offset", "consumed with offset"]


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("how", ALIGNED)
def test_an_aligned_pointer_keeps_wide_loads(compiled, arch, how):
    texts = compiled(copy_kernel, arch, TYPES, {**TILE, "HOW": how}, ("data", "out"))
    assert load_widths(texts) == {4}


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("how", ALIGNED + UNALIGNED)
def test_an_unknown_pointer_gets_no_wide_loads(compiled, arch, how):
    assert load_widths(compiled(copy_kernel, arch, TYPES, {**TILE, "HOW": how}, ("out",))) == {1}


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("how", UNALIGNED)
def test_a_run_time_offset_gets_no_wide_loads(compiled, arch, how):
    """With the pointer aligned and the offset unknown, a 128-bit load would fault."""
    assert load_widths(compiled(copy_kernel, arch, TYPES, {**TILE, "HOW": how}, ("data", "out"))) == {1}


@pytest.mark.parametrize("how", UNALIGNED)
def test_an_aligned_offset_keeps_wide_loads(compiled, how):
    assert load_widths(compiled(copy_kernel, 90, TYPES, {**TILE, "HOW": how}, ("data", "out", "offset"))) == {4}


def test_a_rebuilt_pointer_would_get_wide_loads_wrongly(compiled):
    assert load_widths(compiled(rebuilt_pointer_kernel, 90, TYPES, TILE, ("data", "out"))) == {4}


@pytest.mark.parametrize("how, plain", [("base", "plain"), ("tensor", "plain"), ("base with offset", "plain with offset")])
def test_amd_vector_width_is_that_of_the_plain_pointer(compiled, how, plain):
    """CDNA3 loads 128 bits at any multiple of 4 bytes, so even an unknown offset leaves wide loads."""
    widths = [load_widths(compiled(copy_kernel, AMD, TYPES, {**TILE, "HOW": name}, ("data", "out"))) for name in (how, plain)]
    assert widths[0] == widths[1]


@pytest.mark.parametrize("arch", [*NVIDIA, AMD])
def test_a_tensor_of_ranks(compiled, arch):
    texts = compiled(ranks_kernel, arch, TYPES, TILE, ("data", "out"))
    assert load_widths(texts) == {1}


def test_a_tensor_of_pointers_reads_the_rank_once(compiled):
    text = compiled(copy_kernel, 90, TYPES, {**TILE, "HOW": "tensor"}, ("data", "out"))["ptx"]
    assert text.count("ld.global.nc.b32") == 1


def symm_at(address, rank):
    """What the lowering computes, in Python."""
    slots = (rank + address_map.FIRST_SLOT + 1) - ((address >> address_map.STRIDE_BITS) & 255)
    return address + (slots << address_map.STRIDE_BITS)


@pytest.mark.parametrize("here", [0, 1, 7, 126])
@pytest.mark.parametrize("there", [0, 3, 126])
def test_the_distance_leads_to_the_same_offset_on_the_other_rank(here, there):
    offset = address_map.GUARD_BYTES + 4711
    assert symm_at(address_map.heap_base(here) + offset, there) == address_map.heap_base(there) + offset


def test_the_distance_in_the_ptx(compiled):
    text = compiled(copy_kernel, 90, TYPES, {**TILE, "HOW": "base"}, ("data", "out"))["ptx"]
    assert f"{(address_map.FIRST_SLOT + 1) << address_map.STRIDE_BITS}" in text
    assert re.search(r"shr\.u64\s+\S+ \S+ 39;", text)
    assert re.search(r"and\.b64\s+\S+ \S+ 255;", text)
