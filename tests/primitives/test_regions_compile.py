"""What regions, vectors and the warp's exchanges become in PTX, how their tiles lie in shared memory, and what is refused."""

from __future__ import annotations

import re
from collections import namedtuple
from types import SimpleNamespace

import pytest
import triton
import triton.language as tl
from compile_targets import AMD, NVIDIA
from triton.compiler.errors import CompilationError

import triton_dist
import triton_dist.language as dl
from triton_dist.jit_function import prepare_kernel
from triton_dist.language.extra import language_extra
from triton_dist.language.extra.language_extra import __shfl_up_sync_i32, __syncwarp, ballot_sync, globaltimer, membar, shfl_sync, st, tid
from triton_dist.primitives import shared_ledger
from triton_dist.primitives.warp_specialization import partitions_with_region

ATOMICS = tuple(
    name for name in language_extra.__all__ if name.startswith("atomic_") and name.endswith(("exch", "min", "max", "and", "or", "xor"))
)


@triton_dist.jit
def transpose_kernel(source, target, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = tl.load(source + i[:, None] * N + i[None, :])
    turned = tl.zeros((N, N), tile.dtype)
    with dl.simt_exec_region() as (thread, threads):
        for row in range(N):
            for column in range(thread, N, threads):
                turned[column, row] = tile[row, column]  # the line of the element
    tl.store(target + i[:, None] * N + i[None, :], turned)


def instructions(text: str, *kinds: str) -> list[str]:
    """The instructions of these kinds, in order."""
    return re.findall(rf"^\s*(?:\{{ .*?)?((?:{'|'.join(map(re.escape, kinds))})\S*)", text, re.M)


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("dtype, bits", [("fp32", 32), ("bf16", 16), ("i8", 8), ("fp64", 64), ("i1", 8), ("fp8e5", 8)])
def test_tiles_go_through_shared_memory_between_barriers(compiled, arch, dtype, bits):
    """Barrier, all elements in, barrier; element by element; barrier, all elements out. Two tiles of 32 x 32 on 128 threads: 8 each."""
    text = compiled(transpose_kernel, arch, {"source": f"*{dtype}", "target": f"*{dtype}"}, {"N": 32})["ptx"]
    found = instructions(text, "bar.sync", "st.shared", "ld.shared")
    store, load = f"st.shared.b{bits}", f"ld.shared.b{bits}"
    assert found == ["bar.sync", *[store] * 16, "bar.sync", load, store, "bar.sync", *[load] * 8]
    assert re.findall(r"\.shared \.align 1024 \.b8 triton_dist_tiles_\w+\[(\d+)\]", text) == [str(max(2 * 1024 * bits // 8, 1024))]


@triton_dist.jit
def many_regions_kernel(source, target, N: tl.constexpr):
    """Two regions of one size, one of them in a loop that is unrolled, and a third of another size."""
    i = tl.arange(0, N)
    tile = tl.load(source + i)
    for number in tl.static_range(3):
        with dl.simt_exec_region() as (thread, threads):
            tile[thread] += number
    with dl.simt_exec_region() as (thread, threads):
        tile[thread] *= 2.0
    other = tl.zeros((2 * N,), tl.float32)
    with dl.simt_exec_region() as (thread, threads):
        other[thread] = tile[thread]
    tl.store(target + tl.arange(0, 2 * N), other)


def test_regions_share_memory_where_they_need_as_much(compiled):
    text = compiled(many_regions_kernel, 90, {"source": "*fp32", "target": "*fp32"}, {"N": 1024})["ptx"]
    assert sorted(re.findall(r"triton_dist_tiles_\w+\[(\d+)\]", text)) == ["12288", "4096"]
    assert shared_ledger.bytes_in(text) == (16384, 0)


@triton_dist.jit
def reading_kernel(source, out):
    tile = tl.load(source + tl.arange(0, 256))
    total = 0.0
    with dl.simt_exec_region() as (thread, threads):
        for index in range(thread, 256, threads):
            total += tile[index]
    st(out + tid(0), total)
    tl.store(source + tl.arange(0, 256), tile * 2)


def test_a_tile_that_is_only_read_is_not_read_back(compiled):
    text = compiled(reading_kernel, 90, {"source": "*fp32", "out": "*fp32"})["ptx"]
    assert instructions(text, "st.shared").count("st.shared.b32") == 2
    assert len(instructions(text, "ld.shared")) == 1


@triton_dist.jit
def barriers_only_kernel(out):
    with dl.simt_exec_region():
        st(out + tid(0), 1)


def test_a_region_without_elements_is_two_barriers(compiled):
    text = compiled(barriers_only_kernel, 90, {"out": "*i32"})["ptx"]
    assert instructions(text, "bar.sync", "st.relaxed", "st.shared") == ["bar.sync", "st.relaxed.gpu.global.b32", "bar.sync"]
    assert "triton_dist_t" not in text


def test_more_than_48_kib_lies_at_the_end_of_the_launch(compiled):
    text = compiled(transpose_kernel, 90, {"source": "*fp32", "target": "*fp32"}, {"N": 128})["ptx"]
    assert re.search(r"\.shared \.align 1024 \.b8 triton_dist_tail_131072\[1024\];", text)
    assert "%dynamic_smem_size" in text
    assert f"add.s32 %r0, %r0, {1024 - 131072}" in re.sub(r"%r\d+", "%r0", text)
    assert shared_ledger.bytes_in(text) == (1024, 131072 + 1024)


Metadata = namedtuple("Metadata", "name shared")


@pytest.mark.parametrize(
    "shared, declared, launched, loaded",
    [
        (0, "", 0, 0),
        (8192, ".shared .align 1024 .b8 triton_dist_tiles_ab[8192];", 8192, 8192),
        (40000, ".shared .align 1024 .b8 triton_dist_tiles_ab[16384];", 40000, 49153),
        (60000, ".shared .align 1024 .b8 triton_dist_tiles_ab[16384];", 60000, 60000),
        (100, ".shared .align 1024 .b8 triton_dist_tail_131072[1024];", 1024 + 131072 + 1024, 1024 + 131072 + 1024),
    ],
)
def test_launches_ask_for_what_regions_need(shared, declared, launched, loaded):
    """What is launched is what Triton needs and the tail; what is loaded says whether the function may have more than 48 KiB."""
    kernel = SimpleNamespace(asm={"ptx": declared}, metadata=Metadata("kernel", shared), packed_metadata=(shared,))
    prepare_kernel(kernel, SimpleNamespace(pack_metadata=lambda metadata: (metadata.shared,)))
    assert kernel.packed_metadata == (launched,)
    assert kernel.metadata.shared == loaded


@triton.jit
def vectors_kernel(x, y, SIZE: tl.constexpr, SCOPE: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    dl.st_vector(y, dl.ld_vector(x, SIZE, SCOPE, LOAD), SCOPE, STORE)


@pytest.mark.parametrize(
    "dtype, size, access, count",
    [
        ("fp32", 4, "v4.b32", 1),
        ("bf16", 8, "v4.b32", 1),
        ("i8", 16, "v4.b32", 1),
        ("fp64", 8, "v2.b64", 4),
        ("fp16", 4, "v2.b32", 1),
        ("i64", 1, "b64", 1),
        ("fp32", 1, "b32", 1),
        ("bf16", 2, "b16", 2),
    ],
)
def test_vector_accesses(compiled, dtype, size, access, count):
    types, constants = {"x": f"*{dtype}", "y": f"*{dtype}"}, {"SIZE": size, "SCOPE": "", "LOAD": "weak", "STORE": "weak"}
    text = compiled(vectors_kernel, 90, types, constants)["ptx"]
    assert len(instructions(text, f"ld.global.{access}")) == count
    assert len(instructions(text, f"st.global.{access}")) == count


def test_ordered_vector_accesses(compiled):
    constants = {"SIZE": 4, "SCOPE": "sys", "LOAD": "acquire", "STORE": "release"}
    text = compiled(vectors_kernel, 90, {"x": "*fp32", "y": "*fp32"}, constants)["ptx"]
    assert "ld.acquire.sys.global.v4.b32" in text and "st.release.sys.global.v4.b32" in text
    assert "fence.proxy.async" in text and "cp.async.bulk.wait_group 0" in text


@triton.jit
def warp_kernel(out, wide):
    value = shfl_sync(0xFFFFFFFF, tid(0), 3) + __shfl_up_sync_i32(-1, tid(0), 1)
    __syncwarp()
    st(out + tid(0), value + ballot_sync(0xFFFF, value > 3))
    st(wide + tid(0), shfl_sync(0xFFFFFFFF, globaltimer().to(tl.int64), tid(0) // 2))
    membar("sys")


def test_exchanges_and_votes(compiled):
    text = compiled(warp_kernel, 90, {"out": "*i32", "wide": "*i64"})["ptx"]
    assert len(instructions(text, "shfl.sync.idx.b32")) == 3, "64 bits take two"
    assert re.search(r"shfl\.sync\.up\.b32 \S+ \S+ \S+ 0x0, ", text), "the lower end of the warp bounds it"
    assert re.search(r"shfl\.sync\.idx\.b32 \S+ \S+ \S+ 0x1f, ", text)
    assert "vote.sync.ballot.b32" in text and "bar.warp.sync" in text and "fence.sc.sys" in text


@triton.jit
def atomics_kernel(word, OPERATION: tl.constexpr):
    if OPERATION == "atomic_exch":
        language_extra.atomic_exch(word, 1, "sys", "acq_rel")
    elif OPERATION == "atomic_min":
        language_extra.atomic_min(word, 1, "sys", "acq_rel")
    elif OPERATION == "atomic_max":
        language_extra.atomic_max(word, 1, "sys", "acq_rel")
    elif OPERATION == "atomic_and":
        language_extra.atomic_and(word, 1, "sys", "acq_rel")
    elif OPERATION == "atomic_or":
        language_extra.atomic_or(word, 1, "sys", "acq_rel")
    elif OPERATION == "atomic_xor":
        language_extra.atomic_xor(word, 1, "sys", "acq_rel")


@pytest.mark.parametrize("operation", ATOMICS)
@pytest.mark.parametrize("dtype, bits", [("i32", 32), ("u64", 64)])
def test_atomics(compiled, operation, dtype, bits):
    text = compiled(atomics_kernel, 90, {"word": f"*{dtype}"}, {"OPERATION": operation})["ptx"]
    kind = dtype[0].replace("i", "s") if operation.endswith(("min", "max")) else "b"
    assert f"atom.acq_rel.sys.global.{operation.removeprefix('atomic_')}.{kind}{bits} " in text


AMD_NAMES = {"exch": "swap", "min": "smin", "max": "smax"}


@pytest.mark.parametrize("operation", ATOMICS)
def test_atomics_on_amd(compiled, operation):
    name = operation.removeprefix("atomic_")
    text = compiled(atomics_kernel, AMD, {"word": "*i32"}, {"OPERATION": operation})["amdgcn"]
    assert f"global_atomic_{AMD_NAMES.get(name, name)} " in text


def test_a_region_without_elements_on_amd(compiled):
    text = compiled(barriers_only_kernel, AMD, {"out": "*i32"})["amdgcn"]
    assert text.count("s_barrier") >= 2 and "global_store_dword " in text


def test_vectors_on_amd(compiled):
    constants = {"SIZE": 2, "SCOPE": "", "LOAD": "weak", "STORE": "weak"}
    text = compiled(vectors_kernel, AMD, {"x": "*fp32", "y": "*fp32"}, constants)["amdgcn"]
    assert text.count("global_load_dword ") == 2 and text.count("global_store_dword ") == 2


@pytest.mark.parametrize(
    "kernel, types, constants, message",
    [
        (
            transpose_kernel,
            {"source": "*fp32", "target": "*fp32"},
            {"N": 32},
            "elements of tiles in a simt region .*not implemented for AMD",
        ),
        (warp_kernel, {"out": "*i32", "wide": "*i64"}, {}, "exchanges between the threads of a warp are not implemented for AMD"),
    ],
)
def test_what_amd_has_not_is_named(compiled, kernel, types, constants, message):
    with pytest.raises(CompilationError) as caught:
        compiled(kernel, AMD, types, constants)
    text, error = "", caught.value
    while error is not None:
        text, error = f"{text}\n{error}", error.__cause__
    assert re.search(message, text), text


@triton_dist.jit
def specialized_kernel(out, tiles, WHERE: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=WHERE == "loop"):
        values = tl.zeros((128,), tl.int32)
        with dl.simt_exec_region() as (thread, threads):
            values[thread] = tile
        tl.store(out + tile * 128 + tl.arange(0, 128), values)


def test_a_region_in_a_warp_specialized_loop_is_refused(compiled):
    compiled(specialized_kernel, 100, {"out": "*i32", "tiles": "i32"}, {"WHERE": "nowhere"})
    with pytest.raises(CompilationError, match="warp_specialize=True"):
        compiled(specialized_kernel, 100, {"out": "*i32", "tiles": "i32"}, {"WHERE": "loop"})


PARTITIONED = """
  ttg.warp_specialize(%a)
  default {
    %1 = tt.elementwise_inline_asm "st.shared.b32 [$1], $2; mov.u32 $0, 0;" {constraints = "=r,r,r"} %0, %v : tensor<128xi32>
  }
  partition0(%arg: i32) num_warps(4) {
    OTHER
  }
"""


@pytest.mark.parametrize("other, refused", [("ttg.barrier", False), ('%2 = tt.elementwise_inline_asm "ld.shared.b32 $0, [$1];" %1', True)])
def test_a_function_with_a_region_that_was_called_in_such_a_loop_is_refused(other, refused):
    text = PARTITIONED.replace("OTHER", other)
    assert (len(partitions_with_region(text)) > 1) == refused
    kernel = SimpleNamespace(asm={"ptx": "", "ttgir": text}, metadata=Metadata("kernel", 0), packed_metadata=(0,))
    if refused:
        with pytest.raises(triton_dist.errors.PrimitiveArgumentError, match="kernel: simt_exec_region in a loop with warp_specialize"):
            prepare_kernel(kernel, None)
    else:
        prepare_kernel(kernel, None)


@pytest.mark.parametrize("stage", ["ttir", "ptx"])
def test_debug_information_names_the_users_lines(compiled, stage):
    with open(__file__, encoding="utf-8") as file:
        line = next(number for number, text in enumerate(file, 1) if "# the line of the element" in text)
    text = compiled(transpose_kernel, 90, {"source": "*fp32", "target": "*fp32"}, {"N": 32})[stage]
    if stage == "ttir":
        assert re.search(rf'loc\("[^"]*{re.escape(__file__)}":{line}:\d+\)', text)
    else:
        assert re.search(rf"\.loc\s+\d+ {line} \d+", text)
