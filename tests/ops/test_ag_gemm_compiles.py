"""The fused products of AG+GEMM as GPUs get them: matrix units fed by TMA, a pipelined K loop in every part, and waits outside of it."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from triton import compile as compile_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.ops.gemm import epilogues
from triton_dist.ops.gemm.ag_gemm_kernels import gathered_gemm_kernel
from triton_dist.ops.gemm.epilogues import epilogue_options

WORDS = ("ready", "flags", "finished", "world_ranks", "scale_a", "scale_b")
NUMBERS = ("index", "size", "blocks", "blocks_per_wait", "tiles_m", "tiles_n", "depth", "epilogue_row")
RESIDUAL = epilogues.add(torch.zeros(2, 256, dtype=torch.bfloat16))
BF16, FP8 = "bf16", "fp8e4nv"


def compiled(arch: int, dtype: str, tile_n: int, tile_k: int, parts: int, stages: int, by_columns: bool, epilogue=None):
    """The kernel with 128 rows a tile, as ``ag_gemm`` launches it."""

    def b_box(width: int) -> str:
        return f"tensordesc<{dtype}[{width},{tile_k}]>" if by_columns else f"tensordesc<{dtype}[{tile_k},{width}]>"

    signature = {
        "shard_desc": f"tensordesc<{dtype}[1,128,{tile_k}]>",
        "gathered_desc": f"tensordesc<{dtype}[1,128,{tile_k}]>",
        "b_desc": b_box(tile_n),
        "out_desc": f"tensordesc<bf16[1,128,{tile_n}]>",
        "b_part_desc": b_box(tile_n // parts),
        "out_part_desc": f"tensordesc<bf16[1,128,{tile_n // parts}]>",
        **dict.fromkeys(WORDS, "*i32"),
        **dict.fromkeys(NUMBERS, "i32"),
        "epilogue_args": "constexpr" if epilogue is None or not epilogue.arguments else ("*bf16", "i32", "constexpr"),
    }
    place = list(signature).index("epilogue_args")
    arguments = {(place,): None} if signature["epilogue_args"] == "constexpr" else {(place, 2): 1}
    constants = {
        "TILE_M": 128, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP": 8, "TAIL_PARTS": parts, "MAX": 8, "CAPACITY": 32, "SCALED": False,
        "B_BY_COLUMNS": by_columns, "IMPRECISE": tile_k if dtype == FP8 else None, "OUT": tl.bfloat16,
        **{name: value for name, value in epilogue_options(epilogue).items() if name in ("EPILOGUE", "PLACED")},
    }  # fmt: skip
    signature |= dict.fromkeys(constants, "constexpr")
    names = list(signature)
    source = ASTSource(
        fn=gathered_gemm_kernel,
        signature=signature,
        constexprs=arguments | {(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*WORDS[:4], "depth")},
    )
    return compile_kernel(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": 8, "num_stages": stages})


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize(
    ("dtype", "tile_n", "tile_k", "parts", "stages", "by_columns", "epilogue"),
    [
        (BF16, 256, 64, 1, 3, True, None),
        (BF16, 256, 64, 4, 3, True, None),
        (BF16, 256, 64, 2, 3, False, None),
        (FP8, 256, 128, 2, 3, True, None),
        (BF16, 256, 64, 1, 3, True, epilogues.gelu),
        (BF16, 256, 64, 2, 3, True, RESIDUAL),
    ],
)
def test_products_are_tma_fed_and_pipelined(arch, dtype, tile_n, tile_k, parts, stages, by_columns, epilogue):
    kernel = compiled(arch, dtype, tile_n, tile_k, parts, stages, by_columns, epilogue)
    ptx, layout = kernel.asm["ptx"], kernel.asm["ttgir"]
    assert kernel.metadata.shared <= 232_448  # of an SM
    assert ("wgmma.mma_async" if arch == 90 else "tcgen05.mma") in ptx
    # Loads of A and of B for each product (own rows, arrived rows, the last turn's parts), some ahead of the loop.
    products = 2 if parts == 1 else 3
    assert ptx.count("cp.async.bulk.tensor") > 2 * products
    assert f"memdesc<{stages}x128x{tile_k}x" in layout, "the K loop has that many stages in shared memory"
    # The tile goes from shared memory to the matrix unit: what is loaded is not copied through registers.
    assert "ttg.local_load" not in layout


@pytest.mark.parametrize("arch", [90, 100])
def test_waits_stand_outside_of_the_loops_with_products(arch):
    lines = compiled(arch, BF16, 256, 64, 2, 3, True).asm["ttgir"].splitlines()
    assert any("POLL" in line for line in lines)
    products = [number for number, line in enumerate(lines) if "ttng.warp_group_dot " in line or "ttng.tc_gen5_mma " in line]
    around = {innermost_loop(lines, number) for number in products}
    # On sm_100 a first product stands before the loop over K, in the loop over tiles.
    loops = [(begin, end) for begin, end in around if not any("scf.for" in line for line in lines[begin + 1 : end])]
    assert len(loops) == 3  # own rows, arrived rows, the last turn's parts
    for begin, end in loops:
        assert not any("POLL" in line for line in lines[begin:end])


def innermost_loop(lines: list[str], number: int) -> tuple[int, int]:
    """First and last line of the loop that the line is in."""
    begin = max(at for at in range(number) if "scf.for" in lines[at] and indentation(lines[at]) < indentation(lines[number]))
    return begin, next(at for at in range(number, len(lines)) if indentation(lines[at]) == indentation(lines[begin]))


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
