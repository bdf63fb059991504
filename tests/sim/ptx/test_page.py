"""docs/inline_ptx.md: its table names every instruction, its examples are taken, its lists are complete."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from triton.backends.nvidia.compiler import get_ptxas

from triton_dist.errors import UnsupportedInstructionError
from triton_dist.sim.ptx.block import translate
from triton_dist.sim.ptx.form import MEETINGS, OPCODES
from triton_dist.sim.ptx.special import SPECIAL

PAGE = (Path(__file__).parents[3] / "docs" / "inline_ptx.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- instructions -->")[2].partition("<!-- end -->")[0]
ROWS = [re.split(r"(?<!\\)\|", line)[1:-1] for line in TABLE.strip().splitlines()[2:]]
CONTROL = {"bra", "ret"}
REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b128 %q<2>;"


def spans(text):
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`]+)`", text)]


def test_every_instruction_is_there():
    named = [name for row in ROWS for name in spans(row[0])]
    assert len(named) == len(set(named))
    assert set(named) == (set(OPCODES) | set(MEETINGS) | CONTROL) - {"discard"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: spans(row[0])[0])
def test_examples(row):
    examples = spans(row[2])
    assert examples
    for example in examples:
        block = translate(f"{{ {REGISTERS} {example} }}", "=r")
        assert block.lines[0].instruction.opcode in [*spans(row[0]), *("add" if "addc" in row[0] else ())] or "add.cc" in example


def test_special_registers():
    assert set(spans(PAGE.partition("<!-- special -->")[2].partition("<!-- end -->")[0])) == set(SPECIAL)


@pytest.mark.parametrize(
    "text", ["mbarrier.init.b64 [%d0], 1;", "st.async.shared::cluster.b32 [%r0], 1, [%r1];", "ld.local.u32 %r0, [%d0];"]
)
def test_what_the_page_says_is_not_there(text):
    with pytest.raises(UnsupportedInstructionError, match="docs/inline_ptx.md"):
        translate(f"{{ {REGISTERS} {text} }}", "=r")


ENTRY = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel()
{
"""


def test_the_assembler_takes_the_examples(tmp_path):
    examples = [example for row in ROWS for example in spans(row[2])]
    source, target = tmp_path / "examples.ptx", tmp_path / "examples.cubin"
    source.write_text(ENTRY + "\n".join(f"{{ {REGISTERS} {example} }}" for example in examples) + "\nret;\n}\n")
    path = get_ptxas(90).path
    done = subprocess.run([path, "--gpu-name=sm_90a", str(source), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
