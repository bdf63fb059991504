"""The package's own kernels have nothing to report, for Hopper and for Blackwell."""

from __future__ import annotations

import pytest
import triton.language as tl
from triton.compiler import ASTSource

from tests import test_programs_compile as programs
from triton_dist.compiled_checks.verify import verify
from triton_dist.kernels import common_ops
from triton_dist.ops.gemm.ag_gemm_kernels import gathered_gemm_kernel

BF16, FP8 = "bf16", "fp8e4nv"


def test_programs_covers_the_kernels_of_this_package():
    """The barrier, and what the doctor measures with; ``kernels`` has thin wrappers of the same."""
    assert {"barrier", "ping", "push"} <= set(programs.KERNELS) and common_ops.__doc__


@pytest.mark.parametrize("name", programs.KERNELS)
def test_program(verified, name):
    kernel, types, constants = programs.KERNELS[name]
    used = {argument: kind for argument, kind in types.items() if argument in kernel.arg_names}
    aligned = tuple(argument for argument, kind in used.items() if kind.startswith("*") or argument == "count")
    assert verified(kernel, types, constants, aligned) == []


@pytest.mark.parametrize(
    ("dtype", "tile_n", "tile_k", "parts", "by_columns"),
    [(BF16, 256, 64, 1, True), (BF16, 256, 64, 4, True), (BF16, 256, 64, 2, False), (FP8, 256, 128, 2, True)],
)
def test_gathered_products(dtype, tile_n, tile_k, parts, by_columns):
    source = gathered_source(dtype, tile_n, tile_k, parts, by_columns)
    assert verify(source, {"num_warps": 8, "num_stages": 3}) == []


def gathered_source(dtype: str, tile_n: int, tile_k: int, parts: int, by_columns: bool) -> ASTSource:
    """The product of ``ag_gemm`` with 128 rows a tile, as it launches it."""

    def b_box(width: int) -> str:
        return f"tensordesc<{dtype}[{width},{tile_k}]>" if by_columns else f"tensordesc<{dtype}[{tile_k},{width}]>"

    words = ("ready", "flags", "finished", "world_ranks", "scale_a", "scale_b")
    signature = {
        "shard_desc": f"tensordesc<{dtype}[1,128,{tile_k}]>",
        "gathered_desc": f"tensordesc<{dtype}[1,128,{tile_k}]>",
        "b_desc": b_box(tile_n),
        "out_desc": f"tensordesc<bf16[1,128,{tile_n}]>",
        "b_part_desc": b_box(tile_n // parts),
        "out_part_desc": f"tensordesc<bf16[1,128,{tile_n // parts}]>",
        **dict.fromkeys(words, "*i32"),
        **dict.fromkeys(("index", "size", "blocks", "blocks_per_wait", "tiles_m", "tiles_n", "depth", "epilogue_row"), "i32"),
    }
    constants = {
        "epilogue_args": None,
        "TILE_M": 128, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP": 8, "TAIL_PARTS": parts, "MAX": 8, "CAPACITY": 32, "SCALED": False,
        "B_BY_COLUMNS": by_columns, "IMPRECISE": tile_k if dtype == FP8 else None, "OUT": tl.bfloat16,
        "EPILOGUE": None, "PLACED": False,
    }  # fmt: skip
    signature |= dict.fromkeys(constants, "constexpr")
    names = list(signature)
    return ASTSource(
        fn=gathered_gemm_kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*words[:4], "depth")},
    )
