"""What no version of Triton does today, done by hand to the text of a stage: the checks see it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.compiled_checks import kernels
from tests.primitives import test_pipelining as pipelining
from triton_dist.compiled_checks.stages import parse_mlir
from triton_dist.compiled_checks.verify import verify_stages
from triton_dist.sim.ir import Operation

TYPES = {"data": "*fp32", "words": "*i32", "out": "*fp32"}
ANNOUNCE = {"words": "*i32", "out": "*fp32", "n": "i32"}
CONSTANTS = {"TILE": 128, "OWN": False}


def codes(stages, **changed):
    return [(one.code, one.line) for one in verify_stages(dataclasses.replace(stages, **changed))]


def all_blocks(tree: Operation):
    for region in tree.regions:
        for block in region:
            yield block
            for op in block.operations:
                yield from all_blocks(op)


def copy_of(tree: Operation) -> Operation:
    """A tree that may be changed."""

    def copy(op: Operation) -> Operation:
        regions = [
            [dataclasses.replace(block, operations=[copy(inner) for inner in block.operations]) for block in region]
            for region in op.regions
        ]
        return dataclasses.replace(op, regions=regions)

    return copy(tree)


def block_with(tree: Operation, name: str):
    return next(block for block in all_blocks(tree) if any(op.name == name for op in block.operations))


def is_wait(op: Operation) -> bool:
    return "triton_dist wait" in str(op.attributes.get("asm_string", ""))


def test_a_load_moved_before_the_wait_in_the_gpu_ir(stages):
    right = stages(kernels.read_twice_kernel, 90, TYPES, CONSTANTS)
    assert codes(right) == []
    moved = copy_of(right.ttgir)
    operations = block_with(moved, "tt.load").operations
    load = [op for op in operations if op.name == "tt.load"][1]
    operations.remove(load)
    operations.insert(next(index for index, op in enumerate(operations) if is_wait(op)), load)
    assert codes(right, ttgir=moved) == [("TD201", load.location.line)]


def test_a_load_hoisted_out_of_the_loop_of_its_wait(stages):
    right = stages(
        pipelining.descriptor_gemm_kernel, 90, pipelining.DESCRIPTOR_TYPES, {"WAIT": "unused", "NOTIFY": False}, pipelining.ALIGNED[3:],
        num_stages=3,
    )  # fmt: skip
    assert codes(right) == []
    hoisted = copy_of(right.ttgir)
    outer = next(block for block in all_blocks(hoisted) if any(op.name == "scf.for" for op in block.operations))
    loop = next(op for op in outer.operations if op.name == "scf.for")
    load = next(op for block in all_blocks(loop) for op in block.operations if op.name == "ttng.async_tma_copy_global_to_local")
    outer.operations.insert(outer.operations.index(loop), load)
    assert ("TD201", load.location.line) in codes(right, ttgir=hoisted)


def test_next_tiles_load_issued_before_next_tiles_wait(stages):
    """Both stand once before the loop, and in the loop the load of the next round comes before its wait."""
    right = stages(
        pipelining.descriptor_gemm_kernel, 90, pipelining.DESCRIPTOR_TYPES, {"WAIT": "unused", "NOTIFY": False}, pipelining.ALIGNED[3:],
        num_stages=3,
    )  # fmt: skip
    turned = copy_of(right.ttgir)
    outer = next(block for block in all_blocks(turned) if any(op.name == "scf.for" for op in block.operations))
    loop = next(op for op in outer.operations if op.name == "scf.for")
    body = loop.regions[0][0].operations
    wait = next(op for op in body if is_wait(op))
    load = next(op for op in body if op.name == "ttng.async_tma_copy_global_to_local")
    place = outer.operations.index(loop)
    outer.operations[place:place] = [wait, load]
    body.remove(wait)
    body.append(wait)
    assert any(code == "TD201" for code, _ in codes(right, ttgir=turned))


def lines_of(ptx: str) -> list[str]:
    return ptx.splitlines(keepends=True)


def moved_line(ptx: str, pattern: str, before: str, which: int = 0) -> str:
    """The PTX with one line, and the line directive before it, moved up."""
    lines = lines_of(ptx)
    index = [number for number, line in enumerate(lines) if re.search(pattern, line)][which]
    begin = max(number for number, line in enumerate(lines[:index]) if "// begin inline asm" in line)
    directive = next(line for line in reversed(lines[:begin]) if line.lstrip().startswith(".loc"))
    target = next(number for number, line in enumerate(lines) if re.search(before, line))
    line = lines.pop(index)
    back = next(one for one in reversed(lines[:target]) if one.lstrip().startswith(".loc"))
    lines[target:target] = [directive, line, back]
    return "".join(lines)


def test_a_load_moved_before_the_wait_in_the_ptx(stages):
    right = stages(kernels.read_twice_kernel, 90, TYPES, CONSTANTS)
    load = next(op for block in all_blocks(right.ttgir) for op in reversed(block.operations) if op.name == "tt.load")
    moved = moved_line(right.ptx, r"ld\.global\.b32", r"// begin inline asm", which=1)
    assert moved != right.ptx
    assert codes(right, ptx=moved) == [("TD201", load.location.line)]


@pytest.mark.parametrize("instruction", ["", "cp.async.bulk.wait_group.read 0;"])
def test_a_release_whose_completion_is_gone_from_the_ptx(stages, instruction):
    right = stages(kernels.announce_kernel, 90, ANNOUNCE, {"TILE": 128, "SIGNAL": "notify"})
    assert codes(right) == []
    wrong = re.sub(r"cp\.async\.bulk\.wait_group\s+0;", instruction, right.ptx)
    assert [code for code, _ in codes(right, ptx=wrong)] == ["TD202"]


@pytest.mark.parametrize("instruction", ["", "fence.proxy.async.shared::cta;"])
def test_a_bulk_load_whose_proxy_fence_is_gone_from_the_ptx(stages, instruction):
    right = stages(kernels.bulk_read_kernel, 90, {**TYPES, "n": "i32"}, CONSTANTS)
    assert codes(right) == []
    wrong = right.ptx.replace("fence.proxy.async;", instruction)
    assert [code for code, _ in codes(right, ptx=wrong)] == ["TD208"]


def test_gpu_ir_may_come_from_text(stages):
    """As a stage's text is printed, for mutations by other tools."""
    text = 'module attributes {"ttg.num-warps" = 4 : i32} {\n  tt.func public @empty_kernel() {\n    tt.return\n  }\n}\n'
    assert [op.name for op in block_with(parse_mlir(text, 90), "tt.return").operations] == ["tt.return"]
    with pytest.raises(RuntimeError):
        parse_mlir("module {", 90)
