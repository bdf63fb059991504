"""What is made for AMD GPUs on a machine with neither a GPU nor ROCm: code objects, and a header that a C compiler takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
import triton
import triton.language as tl

from tests.tools.compile_aot.kernels import fill_kernel, push_kernel
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools import aot_compile_spaces, build_library
from triton_dist.tools.compile_aot.code_objects import amd_target

GFX942 = 0x4C
"""What the lowest byte of the flags of an ELF file for AMD GPUs says for it."""

PROGRAM = r"""
#include <stdio.h>
#include "pushes.h"
int main(void) {
    for (unsigned i = 0; i < sizeof pushes_code_objects / sizeof *pushes_code_objects; i++) {
        const pushes_code_object *o = pushes_code_objects + i;
        printf("%s %d|%u|%s|%s|%s|%s|%s\n", o->function, o->algorithm, o->threads, o->file, o->symbol, o->arguments, o->hints, o->grid_x);
    }
    return 0;
}
"""


@aot_compile_spaces({"first": {"signature": "tensordesc<fp32[4, 4]>", "grid": ["1", "1", "1"]}})
@triton.jit
def descriptor_kernel(x):
    x.store([0, 0], tl.zeros((4, 4), tl.float32))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_library([push_kernel, fill_kernel], tmp_path_factory.mktemp("amd"), "pushes", target="gfx942")


def test_a_code_object_for_each_variant(built):
    assert built.functions == {"push": 2, "push_of_four": 1, "fill": 1} and built.shared is None and built.sources == ()
    assert len(built.code_objects) == 6
    for path in built.code_objects:
        image = path.read_bytes()
        symbol = "fill_kernel" if path.name.startswith("fill") else "push_kernel"
        assert image[:4] == b"\x7fELF" and image[18] == 0xE0, "for AMD GPUs"
        assert symbol.encode() in image and image[48] == GFX942


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_header_says_how_they_are_launched(built, tmp_path):
    source = tmp_path / "table.c"
    source.write_text(PROGRAM)
    done = subprocess.run(["gcc", "-Wall", "-Werror", "-o", tmp_path / "table", source, f"-I{built.header.parent}"], capture_output=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in subprocess.run([tmp_path / "table"], capture_output=True, text=True).stdout.splitlines()]
    assert [row[0] for row in rows] == ["push 0", "push 0", "push 1", "push 1", "push_of_four 0", "fill 0"]
    assert [row[1] for row in rows] == ["256", "256", "128", "128", "256", "256"], "warps of 64 threads"
    assert [row[2] for row in rows] == [path.name for path in built.code_objects]
    behind = "uint64_t global_scratch, uint64_t profile_scratch"
    assert rows[0][4:] == [f"uint64_t data, uint64_t flags, int32_t count, {behind}", "data:16 flags:16 count:16", "cdiv(count, 1024)"]
    assert rows[5][3:5] == ["fill_kernel", f"uint64_t arguments_, uint64_t kernel_, int32_t scratch_, int32_t stream_, {behind}"]


def test_the_arguments_are_those_of_the_code_object(built):
    """The two that Triton adds are there: the kernel's own metadata says how many bytes its arguments take."""
    amdgcn = triton.compile(
        triton.compiler.ASTSource(push_kernel, {"data": "*fp32", "flags": "*i32", "count": "i32", "BLOCK": "constexpr"}, {"BLOCK": 256}),
        target=triton.backends.compiler.GPUTarget("hip", "gfx942", 64),
    ).asm["amdgcn"]
    assert re.search(r"\.kernarg_segment_size:\s+(\d+)", amdgcn)[1] == str(8 + 8 + 4 + 4 + 8 + 8)


def test_what_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="target 'gfx1100': of AMD GPUs kernels are compiled for gfx942"):
        build_library([push_kernel], tmp_path, "pushes", target="gfx1100")
    with pytest.raises(InvalidArgumentError, match="'x' is a tensor descriptor, .* make it in the kernel by"):
        build_library([descriptor_kernel], tmp_path, "tiles", target="gfx942")
    with pytest.raises(InvalidArgumentError, match="two kernels have a space 'push'"):
        build_library([push_kernel, push_kernel], tmp_path, "pushes", target="gfx942")
    assert [amd_target(text) for text in ("gfx942", "hip:gfx942:64", "sm_90", "90")] == ["gfx942", "gfx942", None, None]
    assert not list(tmp_path.iterdir())


def test_the_command_line(tmp_path):
    pytest.importorskip("typer")
    command = [sys.executable, "-m", "triton_dist.tools.cli", "aot", "--name", "pushes", "--out", str(tmp_path), "--target", "gfx942"]
    done = subprocess.run([*command, "tests.tools.compile_aot.kernels:push_kernel"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "code objects: " in done.stdout and "compiled only" in done.stdout and len(list(tmp_path.glob("*.hsaco"))) == 5
