"""What the assembler says of blocks, and what it makes of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from triton.backends.nvidia.compiler import get_ptxas

ENTRY = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 parameter)
{
"""


def assemble(lines: list[str], folder: Path) -> tuple[bytes, str]:
    """(machine code, errors) of a kernel whose lines these are."""
    source, target = folder / "blocks.ptx", folder / "blocks.cubin"
    source.write_text(ENTRY + "\n".join(lines) + "\nret;\n}\n")
    target.unlink(missing_ok=True)
    done = subprocess.run([get_ptxas(90).path, "--gpu-name=sm_90a", str(source), "-o", str(target)], capture_output=True, text=True)
    return target.read_bytes() if done.returncode == 0 else b"", done.stderr


def refusals(blocks: list[str], folder: Path) -> dict[int, str]:
    """By the number of a block, why the assembler refuses it. They are assembled together, and it stops at the first wrong syntax."""
    code, errors = assemble([block.replace("\n", " ") for block in blocks], folder)
    found = {int(line) - ENTRY.count("\n") - 1: why for line, why in re.findall(r"line (\d+); (?:error|fatal) +: (.*)", errors)}
    assert found or code, errors
    return found


def takes(block: str, folder: Path) -> bool:
    """Whether the assembler takes a block."""
    return bool(assemble([block], folder)[0])
