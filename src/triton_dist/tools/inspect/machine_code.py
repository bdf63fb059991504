"""Registers, spills and instructions of a compiled kernel, from the tools of CUDA that Triton brings along."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from triton import knobs

from .report import Resources

_USAGE = re.compile(r"Function (\S+):\s*REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", re.MULTILINE)
_MEMORY = re.compile(r"^(LDG|STG|LDL|STL|LDGSTS|ATOM|ATOMG|RED|MEMBAR|FENCE|CCTL|UTMA|UBLKCP|UBLKRED|NANOSLEEP|BAR)\b|^(UTMA|UBLK)")
_SPILL = ("LDL", "STL")


def tool(name: str) -> str | None:
    """Path of ``cuobjdump`` or ``nvdisasm``: Triton's own, else one on the PATH."""
    try:
        return getattr(knobs.nvidia, name).path
    except (AttributeError, RuntimeError):
        return shutil.which(name)


def examine_machine_code(cubin: bytes, kernel: str, shared: int) -> Resources:
    """Of a kernel of that name in ``cubin``. shared: bytes of its shared memory."""
    usage, disassembler = tool("cuobjdump"), tool("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        said = _run(usage, "-res-usage", str(path))
        code = _run(disassembler, "-c", str(path))
    missing = [
        f"no {name} on this machine (it comes with Triton, or with CUDA)" if there is None else f"{name} could not read the machine code"
        for name, there, text in (("cuobjdump", usage, said), ("nvdisasm", disassembler, code))
        if text is None
    ]
    found = next((match for match in _USAGE.finditer(said or "") if match[1] == kernel), None)
    counts = None if code is None else Counter(name for name in _INSTRUCTION.findall(code) if _MEMORY.match(name))
    return Resources(
        shared=shared,
        registers=int(found[2]) if found else None,
        stack=int(found[3]) + int(found[4]) if found else None,
        spills=None if counts is None else sum(count for name, count in counts.items() if name.partition(".")[0] in _SPILL),
        counts=None if counts is None else dict(sorted(counts.items())),
        missing="; ".join(missing),
    )


def _run(program: str | None, *arguments: str) -> str | None:
    if program is None:
        return None
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
