"""Reading PTX: blocks, labels, tables of branches, places."""

from __future__ import annotations

import pytest

from triton_dist.compiled_checks.ptx import Instruction, Ptx, reached_before

TEXT = """
.visible .entry some_kernel(
	.param .u64 a
)
{
	.loc	1 10 4
	.reg .pred %p1;
	ld.global.b32 %r1, [%rd1];
	@%p1 bra $L_end;
$L_loop:
	.loc	2 3 8                          // helper.py:3:8 @[ kernel.py:12:9 ]
	// begin inline asm
	{ waitLoop: ld.acquire.sys.global.b32 %r2, [%rd2]; @!%p2 bra waitLoop; }
	// end inline asm
	// begin inline asm
	{ waitLoop: @!%p3 bra waitLoop; }
	// end inline asm
	.loc	1 13 4, function_name $L_info, inlined_at 2 7 5 // kernel.py:13:4
	ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%rd3];
	@%p4 bra $L_loop;
	brx.idx %r7, $L_table;
	.loc	1 0 4
$L_other:
	cp.async.cg.shared.global [%r8], [%rd4], 0x10;
	bra.uni $L_end;
$L_table: .branchtargets
		$L_other,
		$L_end;
$L_end:
	ret;
}
.file	1 "/somewhere/kernel.py"
.file	2 "/somewhere/helper.py"
.visible .func other()
{
	ld.global.b32 %r1, [%rd1];
}
"""


@pytest.fixture
def ptx() -> Ptx:
    return Ptx(TEXT)


def texts(found: list[Instruction]) -> list[str]:
    return [one.text.split()[0] for one in found]


def test_only_the_kernel_is_read(ptx):
    assert sum(one.is_load for one in ptx.instructions()) == 4


def test_places(ptx):
    by_text = {one.text.split()[0]: one for one in ptx.instructions()}
    assert by_text["ld.global.b32"].key == (("kernel.py", 10, 4),)
    assert by_text["ld.acquire.sys.global.b32"].key == (("helper.py", 3, 8), ("kernel.py", 12, 9))
    assert by_text["ld.acquire.sys.global.b32"].frames[1].file == "/somewhere/kernel.py"
    assert by_text["ld.global.v4.b32"].key == (("kernel.py", 13, 4), ("helper.py", 7, 5))
    assert by_text["cp.async.cg.shared.global"].key == (), "line 0 is no place"


def test_widths(ptx):
    widths = {one.text.split()[0]: one.bytes_a_thread for one in ptx.instructions() if one.is_load}
    assert widths == {
        "ld.global.b32": 4, "ld.acquire.sys.global.b32": 4, "ld.global.v4.b32": 16, "cp.async.cg.shared.global": 16,
    }  # fmt: skip


def test_ways(ptx):
    def is_vector(one):
        return ".v4" in one.text

    def is_acquire(one):
        return "acquire" in one.text

    def is_copy(one):
        return one.text.startswith("cp.async")

    assert reached_before(ptx, is_vector, is_acquire) == [], "no way to the load leads around the poll"
    assert texts(reached_before(ptx, is_copy, lambda one: False)) == ["cp.async.cg.shared.global"], "by the table"
    assert texts(reached_before(ptx, is_acquire, lambda one: False, start=is_vector)) == ["ld.acquire.sys.global.b32"]
    assert reached_before(ptx, is_acquire, lambda one: False, start=is_vector, forward=True) == [], "only around the loop"


def test_labels_of_assembly_are_its_own(ptx):
    """Two pieces of assembly have a label of one name, and each branch goes to its own."""
    polls = [one for one in ptx.instructions() if "waitLoop" in one.text]
    assert len(polls) == 2
    first = next(index for index, block in enumerate(ptx.blocks) if polls[0] in block.instructions)
    assert first in ptx.blocks[first].next
