"""Signatures from text, names, spaces, and what the C source of a kernel is filled with."""

from __future__ import annotations

import subprocess
import sys

import pytest
import triton
import triton.language as tl

from tests.tools.compile_aot.kernels import push_kernel, scale_kernel
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools import aot_compile_spaces, dump_c_code, kernel_name_suffix, make_ast_source, materialize_c_params
from triton_dist.tools.compile_aot import spaces_of
from triton_dist.tools.kernel_file import load_kernel
from triton_dist.tools.kernel_signature import read_signature, read_target


@triton.jit
def typed_kernel(x, n, scale, OUT: tl.constexpr, FLAG: tl.constexpr = True, MODE: tl.constexpr = "fast"):
    if MODE == "fast":
        tl.store(x, (n * scale).to(OUT))


def test_the_source_is_what_a_launch_would_compile():
    source = make_ast_source(push_kernel, "*fp32:16, *i32, i32:1, 256")
    assert source.signature == {"data": "*fp32", "flags": "*i32", "count": "constexpr", "BLOCK": "constexpr"}
    assert {key if isinstance(key, str) else push_kernel.arg_names[key[0]]: value for key, value in source.constants.items()} == {
        "count": 1, "BLOCK": 256,
    }  # fmt: skip
    assert source.attrs == {(0,): [["tt.divisibility", 16]]}
    assert (
        make_ast_source(scale_kernel, {"x": "*fp32", "out": "*fp32", "count": "i32", "factor": "fp32"}, {"BLOCK": 64}).fn is scale_kernel.fn
    )


def test_values_by_name_and_by_place():
    read = read_signature(typed_kernel, "*bf16, i32, fp32, bf16")
    assert read.constants == {"OUT": tl.bfloat16, "FLAG": True, "MODE": "fast"} and list(read.types) == ["x", "n", "scale"]
    read = read_signature(typed_kernel, "*bf16, fp32, None, False", {"n": 7, "MODE": "slow"})
    assert read.types == {"x": "*bf16", "scale": "fp32"}
    assert read.constants == {"n": 7, "OUT": None, "FLAG": False, "MODE": "slow"}
    assert read_signature(typed_kernel, ["*fp8e4nv", "3", "1.5", "tl.float16", "true", "'x'"]).constants == {
        "n": 3, "scale": 1.5, "OUT": tl.float16, "FLAG": True, "MODE": "x",
    }  # fmt: skip
    text = read_signature(typed_kernel, "*bf16:16, i32:1, fp32, bf16").text()
    assert text == "*bf16:16, i32:1, fp32, bf16, True, fast"


@pytest.mark.parametrize(
    ("signature", "constants", "words"),
    [
        ("*fp32", {}, "no item for 'n'; give a type"),
        ("*fp32, i32, fp32", {}, "no item for 'OUT'; give a value"),
        ("*fp32, i32, fp32, bf16, 1, 2, 3", {}, "7 items for 6 arguments"),
        ("*fp32, i33, fp32, bf16", {}, "n: 'i33' is no type and no value"),
        ("*fp32, i32:8, fp32, bf16", {}, "a hint is 1 or 16"),
        ("*fp32, i32, fp32, what", {}, "OUT: 'what' is no value"),
        ("*what, i32, fp32, bf16", {}, "x: '\\*what' is no type"),
        ("*fp32", {"N": 1}, "typed_kernel has no argument N; its arguments are x, n, scale"),
    ],
)
def test_wrong_signatures(signature, constants, words):
    with pytest.raises(InvalidArgumentError, match=words):
        make_ast_source(typed_kernel, signature, constants)
    with pytest.raises(InvalidArgumentError, match="is no Triton kernel"):
        make_ast_source(len, signature, constants)


def test_the_suffix_says_what_it_is_compiled_for():
    suffix = kernel_name_suffix(push_kernel, "*fp32:16, *i32, i32:1, 256", num_warps=4)
    digest, hints = suffix.split("_")
    assert len(digest) == 8 and hints == "0d2c"
    others = [
        kernel_name_suffix(push_kernel, "*fp32:16, *i32, i32:1, 256", num_warps=8),
        kernel_name_suffix(push_kernel, "*fp32:16, *i32, i32:1, 128", num_warps=4),
        kernel_name_suffix(push_kernel, "*fp32:16, *i64, i32:1, 256", num_warps=4),
        kernel_name_suffix(push_kernel, "*fp32:16, *i32, i32:1, 256", target="sm_100", num_warps=4),
    ]
    assert len({suffix, *others}) == 5 and all(other.endswith("_0d2c") for other in others)


def test_the_parameters_and_the_files(tmp_path):
    params = materialize_c_params(
        push_kernel, "*fp32:16, *i32, i32, 256", grid=["cdiv(count, %BLOCK)", "1", "1"], name="mine", world_size=3, num_warps=2
    )
    assert params["kernel_name"].startswith("mine_") and params["kernel_name"].endswith("_0d") and params["symbol"] == "push_kernel"
    assert (params["threads"], params["needs_heap"], params["world_size"], params["blocks"]) == ("64", "1", "3", "1")
    assert params["signature"] == params["full_signature"] == "uint64_t data, uint64_t flags, int32_t count"
    assert params["grid_x"] == "cdiv(count, 256)"
    assert params["kernel_name"] == "mine_" + kernel_name_suffix(push_kernel, "*fp32:16, *i32, i32, 256", world_size=3, num_warps=2)
    one = materialize_c_params(push_kernel, "*fp32, *i32, i32:1, 256", grid=["cdiv(count, BLOCK)", "7 % BLOCK", 1])
    assert one["signature"] == "uint64_t data, uint64_t flags" and one["full_signature"].endswith("int32_t count")
    assert (one["grid_x"], one["grid_y"], one["grid_z"]) == ("cdiv(1, 256)", "7 % 256", "1")
    source, header = dump_c_code(tmp_path / "new", params)
    assert f"// tt-linker: {params['kernel_name']}:{params['full_signature']}:" in header.read_text()
    assert "num_warps = 2" in header.read_text() and 'include "kernels_runtime.h"' in header.read_text()
    image = bytes(int(word) for word in params["image"].replace("\n", "").split(","))
    assert image[:4] == b"\x7fELF" and params["image"] in source.read_text()


def test_what_is_refused():
    with pytest.raises(InvalidArgumentError, match="grid '1'; give three"):
        materialize_c_params(push_kernel, "*fp32, *i32, i32, 256", grid="1")
    with pytest.raises(InvalidArgumentError, match="the grid names 'rows'"):
        materialize_c_params(push_kernel, "*fp32, *i32, i32, 256", grid=["rows", "1", "1"])
    with pytest.raises(InvalidArgumentError, match="no compile option num_wraps"):
        materialize_c_params(push_kernel, "*fp32, *i32, i32, 256", grid=["1", "1", "1"], num_wraps=4)
    with pytest.raises(InvalidArgumentError, match="'data' is a tensor descriptor"):
        materialize_c_params(push_kernel, "tensordesc<fp32[4, 4]>, *i32, i32, 256", grid=["1", "1", "1"])
    with pytest.raises(InvalidArgumentError, match="for gfx942 build_library .* writes code objects"):
        materialize_c_params(push_kernel, "*fp32, *i32, i32, 256", grid=["1", "1", "1"], target="gfx942")
    assert [read_target(text) for text in ("sm_90", "90", "cuda:100:32", "sm_90a")] == [90, 90, 100, 90]


def test_spaces():
    assert list(spaces_of(push_kernel)) == ["push", "push_of_four"] and spaces_of(push_kernel)["push_of_four"].world_size == 4
    first = spaces_of(push_kernel)["push"].algorithms[1][0]
    assert (first.signature, first.grid, first.options) == (
        "*fp32:16, *i32:16, i32:16, 256", ("cdiv(count, 256)", "1", "1"), {"num_warps": 2},
    )  # fmt: skip
    grid = ["1", "1", "1"]
    for space, words in (
        ({"grid": grid}, "missing: signature"),
        ({"signature": "i32", "grid": grid, "algos": []}, "unknown: algos"),
        ({"signature": "i32", "grid": "1, 1, 1"}, "a grid of three"),
        ({"signature": "i32, %N", "grid": grid}, "no value for %N"),
        ({"signature": "i32", "grid": grid, "triton_algo_infos": [{"num_wraps": 1}]}, "num_wraps in triton_algo_infos is neither"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            aot_compile_spaces({"space": space})
    with pytest.raises(InvalidArgumentError, match="is no Triton kernel"):
        aot_compile_spaces({"space": {"signature": "i32", "grid": grid}})(print)


def test_kernels_by_name(tmp_path):
    assert load_kernel("tests.tools.compile_aot.kernels:push_kernel") is push_kernel
    file = tmp_path / "some_kernels.py"
    file.write_text("import triton\n@triton.jit\ndef one_kernel(x):\n    pass\nother = 1\n")
    assert load_kernel(f"{file}:one_kernel").arg_names == ["x"]
    for place, words in (
        ("kernels.py", "give a file and the name of a kernel"),
        (f"{tmp_path}/none.py:kernel", "there is no file"),
        (f"{file}:two_kernel", "has no 'two_kernel'; kernels there: one_kernel"),
        (f"{file}:other", "is no Triton kernel"),
        ("no_such_module:kernel", "there is no module 'no_such_module'"),
        (".relative:kernel", "no name of a module"),
        ("a..b:kernel", "no name of a module"),
        ("kernels.txt/a:kernel", "no name of a module"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            load_kernel(place)


def test_a_file_is_a_module_while_it_is_run(tmp_path):
    """Dataclasses with texts for annotations look it up; a file may have the name of a module that it imports."""
    head = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport triton\n@dataclass\nclass Tile:\n    rows: int = 4\n"
    )
    for name in ("with_classes", "triton", "json"):
        file = tmp_path / f"{name}.py"
        file.write_text(f"{head}@triton.jit\ndef one_kernel(x):\n    pass\n")
        before = dict(sys.modules), list(sys.path)
        assert load_kernel(f"{file}:one_kernel").arg_names == ["x"]
        assert (dict(sys.modules), list(sys.path)) == before


def test_files_of_two_folders_have_their_own_modules(tmp_path):
    """Also where the modules beside them have the same names, as files and as packages; what an environment has stays."""
    for number, folder in enumerate((tmp_path / "first", tmp_path / "second")):
        (folder / "beside_package").mkdir(parents=True)
        (folder / "environment" / "deeper").mkdir(parents=True)
        (folder / "environment" / f"kept_{number}.py").write_text("")
        (folder / "beside_module.py").write_text(f"VALUE = {number}\n")
        (folder / "beside_package" / "__init__.py").write_text("")
        (folder / "beside_package" / "inner.py").write_text("import beside_module\nVALUE = 10 + beside_module.VALUE\n")
        (folder / "kernels.py").write_text(
            f"import sys; sys.path.append({str(folder / 'environment')!r}); import kept_{number}; sys.path.pop()\n"
            "import triton, triton.language as tl\nimport beside_module, beside_package.inner\n"
            "VALUE = beside_package.inner.VALUE\n"
            "@triton.jit\ndef one_kernel(x, A: tl.constexpr = beside_module.VALUE, B: tl.constexpr = VALUE):\n    pass\n"
        )
    try:
        for number, folder in enumerate((tmp_path / "first", tmp_path / "second")):
            read = read_signature(load_kernel(f"{folder / 'kernels.py'}:one_kernel"), "i32")
            assert read.constants == {"A": number, "B": 10 + number}
            assert str(folder) not in sys.path and not {"beside_module", "beside_package", "beside_package.inner"} & set(sys.modules)
            assert f"kept_{number}" in sys.modules
    finally:
        for number in range(2):
            sys.modules.pop(f"kept_{number}", None)


def test_a_file_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "beside_it.py").write_text("")
    (tmp_path / "failing.py").write_text("import beside_it\nraise KeyError('x')\n")
    before = set(sys.modules), list(sys.path)
    with pytest.raises(KeyError, match="x"):
        load_kernel(f"{tmp_path / 'failing.py'}:kernel")
    assert (set(sys.modules), list(sys.path)) == before


def test_the_command_line(tmp_path):
    pytest.importorskip("typer")
    command = [sys.executable, "-m", "triton_dist.tools.cli", "aot", "--name", "pushes", "--out", str(tmp_path)]
    done = subprocess.run([*command, "tests.tools.compile_aot.kernels:push_kernel"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["push: 2 algorithms", "push_of_four: 1 algorithm"]
    assert (tmp_path / "libpushes.so").exists() and (tmp_path / "pushes.h").exists()
    for arguments, words in (
        (["tests.tools.compile_aot.kernels:no_kernel"], "has no 'no_kernel'"),
        (["--compiler", "no-such-cc", "tests.tools.compile_aot.kernels:push_kernel"], "there is no C compiler 'no-such-cc'"),
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=200)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
