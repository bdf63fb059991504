"""``build_extern`` with a stand-in for clang, and with a real one where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from tests.primitives.compile_targets import source_of, target_of
from tests.tools.extern_library.kernels import norm_kernel_source
from triton_dist.errors import InvalidArgumentError, MissingToolError, ToolFailedError
from triton_dist.tools import build_extern
from triton_dist.tools.extern_library.clang import find_clang, without_flush_flag

HERE = Path(__file__).parent
SOURCE = HERE / "norms.cu"


@pytest.fixture
def clang(tmp_path, monkeypatch):
    """The stand-in as the only ``clang-17``, and a function that gives the arguments of its runs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "clang-17"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_clang.py"}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("FAKE_CLANG_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_CLANG_DATA", str(HERE))
    return lambda: [line.split("\0") for line in (tmp_path / "log").read_text().splitlines()]


def test_the_runs_of_clang(clang, tmp_path):
    """Once for the code, once to put it into bitcode without clang's own flag, once for the types."""
    library = build_extern(SOURCE, tmp_path / "out", arch="sm_80", options=["-DMORE=1"], pure=["squared_norm"])
    assert (
        library.path == tmp_path / "out" / "norms.bc" and library.stubs == tmp_path / "out" / "norms_extern.py" and library.name == "norms"
    )
    code, packed, types = clang()
    assert code[:4] == ["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80"] and code[-3:] == ["-S", "-o", "-"] and "-O3" in code
    assert "-nocudalib" in code and "-nocudainc" in code and "-D__device__=__attribute__((device))" in code and "-DMORE=1" in code
    assert packed[:3] == ["-x", "ir", "--target=nvptx64-nvidia-cuda"] and "-g" in types
    shifted = next(function for function in library.functions if function.symbol == "shifted")
    assert shifted.text() == "shifted(u64 x, i32 count) -> i32" and len(library.functions) == 9
    assert "squared_norm(argument0: tl.tensor, argument1: tl.tensor, _semantic=None)" in library.stubs.read_text()
    without = build_extern(SOURCE, tmp_path / "other", stubs=False, cuda_path="/opt/cuda")
    assert without.stubs is None and not (tmp_path / "other" / "norms_extern.py").exists()
    assert "--cuda-path=/opt/cuda" in clang()[-1] and "-nocudainc" not in clang()[-1]


def test_errors_are_named(clang, tmp_path, monkeypatch):
    with pytest.raises(InvalidArgumentError, match="there is no file 'none.cu'"):
        build_extern("none.cu")
    with pytest.raises(InvalidArgumentError, match="give a compute capability"):
        build_extern(SOURCE, tmp_path, arch="gfx942")
    with pytest.raises(MissingToolError, match="no clang at '/none/clang'; LLVM bitcode from CUDA C\\+\\+ needs one"):
        build_extern(SOURCE, tmp_path, clang="/none/clang")
    monkeypatch.setenv("FAKE_CLANG_FAILS", "norms.cu:3:1: error: unknown type name 'flaot'")
    with pytest.raises(ToolFailedError, match="ended with 1: norms.cu:3:1: error: unknown type name 'flaot'"):
        build_extern(SOURCE, tmp_path)
    monkeypatch.setenv("FAKE_CLANG_FAILS", "clang: error: unsupported CUDA gpu architecture: sm_90")
    with pytest.raises(ToolFailedError, match="too old for that architecture"):
        build_extern(SOURCE, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingToolError, match="no clang on the PATH; .*apt install clang.*nvcc can't write it"):
        build_extern(SOURCE, tmp_path)


@pytest.mark.parametrize("source", [None, 5, "", ".", "bad\0name.cu", b"norms.cu", "none.cu"])
def test_what_is_no_source(source, tmp_path):
    with pytest.raises(InvalidArgumentError, match="there is no file"):
        build_extern(source, tmp_path)


def test_what_else_is_refused_before_clang_runs(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "inside", "bad\0name", 5):
        with pytest.raises(InvalidArgumentError, match="can't be made: .*; give the path of a folder"):
            build_extern(SOURCE, out, clang=sys.executable)
    for pure in ("squared_norm", None, [5]):
        with pytest.raises(InvalidArgumentError, match="pure=.* must be a list of symbols"):
            build_extern(SOURCE, tmp_path, pure=pure)
    for arch in ("sm_42", "hopper", None):
        with pytest.raises(InvalidArgumentError, match="target"):
            build_extern(SOURCE, tmp_path, arch=arch)


def test_which_clang(clang):
    assert find_clang().endswith("/clang-17") and find_clang("clang-17") == find_clang()


def test_the_flag_that_clang_writes():
    nodes = ['!0 = !{i32 2, !"SDK Version", [2 x i32] [i32 12, i32 5]}', '!1 = !{i32 4, !"nvvm-reflect-ftz", i32 0}']
    text = "\n".join(["!llvm.module.flags = !{!0, !1, !2}", *nodes])
    assert without_flush_flag(text).splitlines()[0] == "!llvm.module.flags = !{!0, !2}"
    assert without_flush_flag("define void @f() {\n") == "define void @f() {\n"


REAL = next((path for path in map(shutil.which, ("clang", *(f"clang-{number}" for number in range(30, 13, -1)))) if path), None)


@pytest.mark.skipif(REAL is None, reason="needs clang")
@pytest.mark.parametrize("arch", [90, 100])
def test_a_kernel_with_what_clang_made(tmp_path, arch):
    """Types and names come from the source; the kernel's PTX has the functions inlined."""
    library = build_extern(SOURCE, tmp_path, arch="sm_80", pure=["squared_norm"])
    assert {function.symbol: function.text() for function in library.functions} == {
        "_Z10overloadedd": "_Z10overloadedd(fp64 x) -> fp64",
        "_Z10overloadedf": "_Z10overloadedf(fp32 x) -> fp32",
        "after": "after(*fp32 start, i16 count) -> *fp32",
        "make_pair": "make_pair(fp32 a) -> ?",
        "of_pair": "of_pair(*void pair) -> fp32",
        "put": "put(*i32 to, i32 value, i1 twice)",
        "shifted": "shifted(u64 x, i32 lambda) -> i32",
        "squared_norm": "squared_norm(fp32 x, fp32 y) -> fp32",
        "table_entry": "table_entry(*fp64 table, u8 mode) -> fp64",
    }
    kernel = norm_kernel_source(tmp_path, "norms_extern.overloaded(value)")
    compiled = triton.compile(source_of(kernel, {"x": "*fp32", "words": "*i32", "n": "i64"}, {}), target=target_of(arch))
    ptx = compiled.asm["ptx"]
    assert ".extern" not in ptx and "call" not in ptx and re.search(r"shr\.u64", ptx) and compiled.asm["cubin"]
    assert "0f40000000" in ptx, "2.0, of the overload for float"


def command(*arguments: str) -> subprocess.CompletedProcess:
    pytest.importorskip("typer")
    full = [sys.executable, "-m", "triton_dist.tools.cli", "build-extern", *arguments]
    return subprocess.run(full, capture_output=True, text=True, timeout=200)


def test_the_command_line(clang, tmp_path):
    out = tmp_path / "out"
    done = command(str(SOURCE), "--out", str(out), "--pure", "squared_norm")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "shifted(u64 x, i32 count) -> i32" in lines and "make_pair(fp32) -> ?   no kernel can call it" in lines
    assert lines[-2:] == [f"library: {out / 'norms.bc'}", f"stubs: {out / 'norms_extern.py'}"]
    done = command(str(out / "norms.bc"), "--no-stubs")
    assert done.returncode == 0 and "shifted(i64, i32) -> i32" in done.stdout and "stubs" not in done.stdout
    for arguments, words in (
        (("none.cu",), "there is no file 'none.cu'"),
        ((str(SOURCE), "--clang", "no-such-clang"), "no clang at 'no-such-clang'"),
        ((str(out / "norms.bc"), "--pure", "sine"), "has no function sine"),
    ):
        done = command(*arguments)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
