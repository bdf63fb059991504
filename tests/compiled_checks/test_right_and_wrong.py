"""For each code a kernel that is right and one that is wrong by little, as Triton compiles them."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

import pytest
import triton

from tests.compiled_checks import kernels
from tests.primitives import test_warp_specialization as specialised

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))

TYPES = {
    "data": "*fp32", "words": "*i32", "out": "*fp32", "n": "i32", "a": "*fp16", "b": "*fp16", "c": "*fp16", "K": "i32", "source": "*fp16",
    "target": "*fp16", "peer": "i32", "stride": "i32",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A kernel to compile. found: code and the text of the line of each finding. since: Triton version that gives it."""

    kernel: Any
    constants: dict[str, Any]
    found: tuple[tuple[str, str], ...] = ()
    aligned: tuple[str, ...] = ()
    arch: int = 90
    since: tuple[int, int] = (3, 6)


LEFT, RIGHT, SECOND = "left = tl.load(a", "right = tl.load(b", "after = tl.load(data"
PRODUCT = ("a", "b", "c", "K")
OWN_RELEASE = (("TD202", "tl.inline_asm_elementwise(RELEASE"),)
MOVED = (("TD201", LEFT), ("TD201", RIGHT), ("TD205", "return tl.inline_asm"))

CASES = {
    "read again": Case(kernels.read_twice_kernel, {"TILE": 128, "OWN": False}),
    "merged with the load before the wait": Case(kernels.read_twice_kernel, {"TILE": 128, "OWN": True}, (("TD201", SECOND),), since=(3, 9)),
    "wait before the loop": Case(kernels.product_kernel, {"WAIT": "before", "STAGES": 3}, (), PRODUCT),
    "wait before the loop, Blackwell": Case(kernels.product_kernel, {"WAIT": "before", "STAGES": 3}, (), PRODUCT, 100),
    "loads issued ahead of the loop": Case(kernels.product_kernel, {"WAIT": "own", "STAGES": 3}, MOVED, PRODUCT),
    "the same in a loop of one stage": Case(kernels.product_kernel, {"WAIT": "own", "STAGES": 1}, (), PRODUCT),
    "wait in the loop": Case(kernels.product_kernel, {"WAIT": "inside", "STAGES": 3}, (("TD205", "dl.wait(words + k"),), PRODUCT),
    "wait in a loop of one stage": Case(kernels.product_kernel, {"WAIT": "inside", "STAGES": 1}, (), PRODUCT),
    "notify": Case(kernels.announce_kernel, {"TILE": 128, "SIGNAL": "notify"}),
    "st": Case(kernels.announce_kernel, {"TILE": 128, "SIGNAL": "st"}),
    "a relaxed counter": Case(kernels.announce_kernel, {"TILE": 128, "SIGNAL": "relaxed"}),
    "a release of one's own": Case(kernels.announce_kernel, {"TILE": 128, "SIGNAL": "own"}, OWN_RELEASE),
    "TMA load behind a wait": Case(kernels.bulk_read_kernel, {"TILE": 128, "OWN": False}),
    "TMA load behind a poll": Case(kernels.bulk_read_kernel, {"TILE": 128, "OWN": True}, (("TD208", "target.store("),)),
    "aligned rows": Case(kernels.remote_copy_kernel, {"TILE": 1024}, (), ("source", "target", "stride")),
    "rows of any length": Case(kernels.remote_copy_kernel, {"TILE": 1024}, (("TD206", "tl.store(dl.symm"),), ("source", "target")),
    "a small tile": Case(kernels.remote_copy_kernel, {"TILE": 128}),
    "remote read": Case(kernels.remote_read_kernel, {"TILE": 1024, "MASKED": False}, (), ("source", "target")),
    "masked read": Case(
        kernels.remote_read_kernel, {"TILE": 1024, "MASKED": True}, (("TD206", "value = tl.load"),), ("source", "target")
    ),
}  # fmt: skip


def lines_of(found):
    """Code and text of the line of each finding."""
    return {(one.code, linecache.getline(one.file, one.line).strip()) for one in found}


@pytest.mark.parametrize("name", CASES)
def test_a_pair(findings, name):
    case = CASES[name]
    types = {argument: TYPES[argument] for argument in case.kernel.arg_names if argument in TYPES}
    found = lines_of(findings(case.kernel, case.arch, types, case.constants, case.aligned))
    expected = case.found if case.since <= VERSION else ()
    assert len(found) == len(expected), found
    for code, line in expected:
        assert any(one == code and text.startswith(line) for one, text in found), found


def specialised_gemm(findings, wait, signal, flatten=True):
    constants = {"WAIT": wait, "COUNT": 1, "SIGNAL": signal, "STORE": "descriptor", "FLATTEN": flatten}
    return findings(specialised.gemm_kernel, 100, specialised.TYPES, constants, specialised.ALIGNED, **specialised.OPTIONS)


@pytest.mark.parametrize("flatten", specialised.FLATTEN)
@pytest.mark.parametrize("wait, signal", [("coordinate", "other word"), ("row", "same word"), ("none", "one word")])
def test_specialised_loops_that_are_right(findings, wait, signal, flatten):
    assert specialised_gemm(findings, wait, signal, flatten) == []


@pytest.mark.skipif(VERSION < (3, 7), reason="a wait with its token unused does not compile there")
@pytest.mark.parametrize("flatten", specialised.FLATTEN)
def test_a_partition_without_its_wait(findings, flatten):
    found = specialised_gemm(findings, "unused", "none", flatten)
    assert {(one.code, "a.load(" in linecache.getline(one.file, one.line)) for one in found} == {("TD203", True)}
    assert "partition1 of the warp-specialised loop loads this with no copy of the wait at" in found[0].message
    assert len(found) == 2, "both operands, though a pass gave one of them the place of its transposition"


@pytest.mark.skipif(VERSION < (3, 7), reason="nested loops are specialised only if they are flattened")
def test_signals_in_the_wrong_partitions(findings):
    never = specialised_gemm(findings, "coordinate", "same word", flatten=False)
    assert [one.code for one in never] == ["TD204"] and "it is never given" in never[0].message
    often = [one for one in specialised_gemm(findings, "none", "plain atomic", flatten=False) if one.code == "TD204"]
    assert len(often) == 1 and "to 3 partitions (default, partition0, partition1)" in often[0].message


def test_a_kernel_that_does_not_compile(verified):
    """Triton 3.6 to 3.9 specialise no loop of this kind for Hopper."""
    found = verified(specialised.wait_before_loop_kernel, specialised.TYPES, {}, specialised.ALIGNED, (90,), **specialised.OPTIONS)
    assert [one.code for one in found] == ["TD207"] and "can't compile it for sm_90" in found[0].message
    assert found[0].file == specialised.__file__ and found[0].kernel == "wait_before_loop_kernel"


def test_the_reason_of_a_narrow_access(findings):
    types = {name: TYPES[name] for name in ("source", "target", "peer", "stride")}
    narrow = findings(kernels.remote_copy_kernel, 90, types, {"TILE": 1024}, ("source",))
    assert "by 2 bytes a thread, where 16 are possible (16 bytes of the tile are each thread's)" in narrow[0].message
    assert "stride, target are not known to be a multiple of 16" in narrow[0].message


def test_a_comment_silences_a_finding_on_its_line(verified):
    types = {name: TYPES[name] for name in ("source", "target", "peer", "stride")}
    assert [one.code for one in verified(kernels.remote_copy_kernel, types, {"TILE": 1024})] == ["TD206"]
    assert verified(kernels.silenced_copy_kernel, types, {"TILE": 1024}) == []
