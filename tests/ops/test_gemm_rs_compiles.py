"""The kernels of gemm_rs and gemm_ar as GPUs get them: whole words, matrix units fed by TMA, pipelined loops, waits outside of them."""

from __future__ import annotations

import re

import pytest
import triton.language as tl
from triton import compile as compile_kernel
from triton.compiler import ASTSource

from tests.ops.test_ag_gemm_compiles import innermost_loop
from tests.primitives.compile_targets import source_of, target_of
from triton_dist.ops.gemm.epilogues import epilogue_options, gelu
from triton_dist.ops.gemm.gemm_rs_kernels import (
    add_arrived_kernel,
    push_and_add_kernel,
    scattering_gemm_kernel,
    small_product_kernel,
    two_shot_sum_kernel,
)

WORDS = dict.fromkeys(("peer_staging", "arrived", "peer_arrived", "epochs"), "*i64") | dict.fromkeys(("finished", "flags"), "*i32")
TENSORS = ("staging", "out", "bias", "partial", "a", "b")
ALIGNED = (*TENSORS, "columns", "step", "capacity", "depth", "stride_am", "stride_bn")
PLAIN = epilogue_options(None)
SUM = {"SIZE": 4, "BIASED": True, "TILE_M": 1, "TILE_N": 2048, "CAPACITY": 4}
PUSH = {"SIZE": 4, "WORDS": 4, "BIASED": True, "TILE_M": 8, "TILE_N": 1024}
SMALL = {
    "SIZE": 4, "WORDS": 4, "BIASED": False, "SCALED": False, "EVEN": True, "PRECISION": "ieee", "TILE_N": 64,
    "stride_ak": 1, "stride_bk": 1,
}  # fmt: skip


def compiled(kernel, constants: dict, arch: int, dtype: str = "bf16", inputs: str = "bf16", **options):
    types = WORDS | dict.fromkeys(TENSORS, f"*{dtype}") | {"a": f"*{inputs}", "b": f"*{inputs}", "scale_a": "*fp32", "scale_b": "*fp32"}
    constants = {"epilogue_args": None, "EPILOGUE": None, "PLACED": False} | constants
    types |= {name: "i32" for name in kernel.arg_names if name not in types}
    aligned = tuple(name for name in ALIGNED if name in kernel.arg_names)
    return compile_kernel(source_of(kernel, types, constants, aligned), target=target_of(arch), options=options)


def widths(ptx: str, direction: str) -> list[int]:
    """Bits of each plain access of a thread to global memory."""
    found = re.findall(rf"{direction}\.global(?:\.v([248]))?\.b(\d+)", ptx)
    return [int(vector or 1) * int(width) for vector, width in found]


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_sums_of_slots_read_whole_words(arch, dtype):
    ptx = compiled(add_arrived_kernel, SUM, arch, dtype, num_warps=8).asm["ptx"]
    assert min(widths(ptx, "ld")) >= 128 and "ld.acquire.sys" in ptx
    assert sorted(widths(ptx, "st"))[:2] == [32, 32], "the words that are reset; all else is whole"
    assert min(sorted(widths(ptx, "st"))[2:]) >= 128


@pytest.mark.parametrize("scatter", [True, False])
@pytest.mark.parametrize("arch", [90, 100])
def test_pushed_rows_go_over_the_links_in_whole_words(arch, scatter):
    ptx = compiled(push_and_add_kernel, PUSH | {"SCATTER": scatter}, arch, num_warps=8).asm["ptx"]
    pushed, added = ptx.split("atom.global.sys.release.exch")
    assert min(widths(pushed, "st")) >= 128 and len(widths(pushed, "st")) == 3 * 4, "four words of a thread to each of three peers"
    assert len(widths(pushed, "ld")) - len(re.findall(r"ld\.global\.b(32|64)", pushed)) == (3 * 4 if scatter else 4)
    assert len(re.findall("ld.acquire.sys", ptx)) == 1
    assert 128 in widths(added, "ld") and 128 in widths(added, "st")


@pytest.mark.parametrize("epilogue", [None, gelu])
@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("size", [4, 8])
def test_two_shot_sums_go_over_the_links_in_whole_words(arch, size, epilogue):
    options = epilogue_options(epilogue)
    constants = PUSH | {"SIZE": size, "WORDS": size, **{name: options[name] for name in ("EPILOGUE", "PLACED")}}
    kernel = compiled(two_shot_sum_kernel, constants, arch, num_warps=8)
    ptx = kernel.asm["ptx"]
    assert len(re.findall("ld.acquire.sys", ptx)) == 2
    stores = widths(ptx, "st")
    # To the peers: the product's parts and the sum; to this rank's memory: the sum, and the others' sums.
    assert stores.count(128) == 4 * (3 * (size - 1) + 1)
    assert all(width == 128 or width <= 64 for width in stores) and len(stores) - stores.count(128) == 1, "the epochs end the call"


@pytest.mark.parametrize("scatter", [True, False])
@pytest.mark.parametrize("rows", [16, 64, 128])
@pytest.mark.parametrize("inputs", ["bf16", "fp8e4nv"])
def test_small_products_are_pipelined_and_pushed_in_whole_words(rows, scatter, inputs):
    tile_k = 128 if inputs == "bf16" else 256
    constants = SMALL | {"SCATTER": scatter, "TILE_M": rows, "TILE_K": tile_k}
    kernel = compiled(
        small_product_kernel, constants, 90, inputs=inputs, num_warps=4, num_stages=4 if rows < 128 or inputs == "bf16" else 3
    )
    ptx = kernel.asm["ptx"]
    assert kernel.metadata.shared <= 232_448  # of an SM
    assert ("wgmma.mma_async" if rows >= 64 else "mma.sync") in ptx and "cp.async.cg" in ptx
    pushed = ptx[: ptx.index("atom.global.sys.release.exch")]
    assert min(widths(pushed, "st")) >= 128
    # The K loop is over when the program waits.
    assert ptx.rindex("mma") < ptx.index("ld.acquire.sys")


POINTERS = ("ready", "flags", "world_ranks", "scale_a", "scale_b")
NUMBERS = ("index", "size", "first_rank", "tiles_m", "tiles_n", "depth")


def scattering(arch: int, dtype: str, tile_k: int, parts: int, by_columns: bool):
    """The persistent kernel with 128 x 256 tiles, as ``gemm_rs`` launches it."""

    def b_box(width: int) -> str:
        return f"tensordesc<{dtype}[{width},{tile_k}]>" if by_columns else f"tensordesc<{dtype}[{tile_k},{width}]>"

    signature = {
        "a_desc": f"tensordesc<{dtype}[1,128,{tile_k}]>",
        "b_desc": b_box(256),
        "slots_desc": "tensordesc<bf16[1,128,256]>",
        "b_part_desc": b_box(256 // parts),
        "slots_part_desc": f"tensordesc<bf16[1,128,{256 // parts}]>",
        **dict.fromkeys(POINTERS, "*i32"),
        **dict.fromkeys(NUMBERS, "i32"),
    }
    constants = {
        "TILE_M": 128, "TILE_N": 256, "TILE_K": tile_k, "GROUP": 8, "TAIL_PARTS": parts, "SCALED": False, "B_BY_COLUMNS": by_columns,
        "IMPRECISE": None if dtype == "bf16" else tile_k, "OUT": tl.bfloat16,
    }  # fmt: skip
    signature |= dict.fromkeys(constants, "constexpr")
    names = list(signature)
    source = ASTSource(
        fn=scattering_gemm_kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*POINTERS[:3], "depth")},
    )
    return compile_kernel(source, target=target_of(arch), options={"num_warps": 8, "num_stages": 3})


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(
    ("dtype", "tile_k", "parts", "by_columns"),
    [("bf16", 64, 1, True), ("bf16", 64, 4, True), ("bf16", 64, 2, False), ("fp8e4nv", 128, 2, True)],
)
def test_scattered_products_are_tma_fed_and_pipelined(arch, dtype, tile_k, parts, by_columns):
    kernel = scattering(arch, dtype, tile_k, parts, by_columns)
    ptx, layout = kernel.asm["ptx"], kernel.asm["ttgir"]
    assert kernel.metadata.shared <= 232_448  # of an SM
    assert ("wgmma.mma_async" if arch == 90 else "tcgen05.mma") in ptx
    products = 2 if parts == 1 else 3
    assert ptx.count("cp.async.bulk.tensor") > 2 * products
    assert f"memdesc<3x128x{tile_k}x" in layout, "the K loop has three stages in shared memory"
    assert "ttg.local_load" not in layout


@pytest.mark.parametrize("arch", [90, 100])
def test_scattered_tiles_have_arrived_before_they_are_signalled(arch):
    """The bulk stores of a program are complete before it tells the owner; waits and signals stand outside of the loops with products."""
    kernel = scattering(arch, "bf16", 64, 2, True)
    ptx, lines = kernel.asm["ptx"], kernel.asm["ttgir"].splitlines()
    found = re.search(r"(atom|red)\.global\.sys\.release\.add|red\.release\.sys\.global\.add", ptx)
    assert found is not None
    signal = found.start()
    since_last_copy = ptx[ptx.rindex("cp.async.bulk.tensor", 0, signal) : signal]
    assert re.search(r"cp\.async\.bulk\.wait_group\s+0;", since_last_copy) and "bar.sync" in since_last_copy
    products = [number for number, line in enumerate(lines) if "ttng.warp_group_dot " in line or "ttng.tc_gen5_mma " in line]
    around = {innermost_loop(lines, number) for number in products}
    loops = [(begin, end) for begin, end in around if not any("scf.for" in line for line in lines[begin + 1 : end])]
    assert len(loops) == 3  # other ranks' rows, this rank's, the last turn's parts
    assert not any("POLL" in line for begin, end in loops for line in lines[begin:end])
