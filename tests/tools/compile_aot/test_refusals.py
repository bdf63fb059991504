"""What the functions of the compilation ahead of time don't take: each wrong value is named, before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from tests.tools.compile_aot.kernels import push_kernel, scale_kernel
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools import aot_compile_spaces, build_library, dump_c_code, kernel_name_suffix, make_ast_source, materialize_c_params
from triton_dist.tools.compile_aot import spaces_of
from triton_dist.tools.kernel_signature import SCALARS, read_signature

GRID = ["1", "1", "1"]
SPACE = {"signature": "*fp32, *fp32, i32, fp32, %BLOCK", "grid": GRID, "triton_algo_infos": [{"BLOCK": 64}]}


@triton.jit
def kinds_kernel(x, value, T: tl.constexpr, S: tl.constexpr = "add"):
    if S == "add, or so":
        tl.store(x, value.to(T))


def refused(words=""):
    return pytest.raises(InvalidArgumentError, match=words)


@pytest.mark.parametrize("kind", [*SCALARS, "*fp32", "**fp32", "tensordesc<fp32[4, 4]>"])
@pytest.mark.parametrize("hint", ["1", "16", "8", "", "x"])
def test_hints_are_for_what_they_can_be_told_of(kind, hint):
    """A floating-point number is passed by its bits, or converted: neither is a test of its value."""
    takes = hint == "16" and kind.startswith(("i", "u", "*")) or hint == "1" and kind.startswith(("i", "u"))
    if takes:
        assert read_signature(kinds_kernel, f"*fp32, {kind}:{hint}, fp16").hints == {"value": int(hint)}
    else:
        with refused("kinds_kernel: value: .*hint"):
            read_signature(kinds_kernel, f"*fp32, {kind}:{hint}, fp16")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (tl.float16, tl.float16), (torch.bfloat16, tl.bfloat16), (torch.int64, tl.int64), (torch.float8_e4m3fn, tl.float8e4nv),
        (tl.uint8, tl.uint8), (tl.constexpr(tl.float32), tl.float32), ("a, b", "a, b"), ('it\'s "so, really"', 'it\'s "so, really"'),
        ("(", "("), (None, None), (True, True), (-3, -3), (1.5, 1.5), ((1, "a,b"), (1, "a,b")),
    ],
)  # fmt: skip
def test_values_of_algorithms(value, expected):
    space = {"signature": "*fp32, i32, %T, %S", "grid": GRID, "triton_algo_infos": [{"T": value, "S": value}]}
    kernel = triton.jit(kinds_kernel.fn)
    (algorithm,) = spaces_of(aot_compile_spaces({"kinds": space})(kernel))["kinds"].algorithms
    assert read_signature(kernel, algorithm[0].signature).constants == {"T": expected, "S": expected}


@pytest.mark.parametrize("spaces", [None, [], {}, 5, "x", {"p": None}, {"p": "abc"}, {"p": []}, {5: SPACE}, {None: SPACE}])
def test_what_is_no_mapping_of_spaces(spaces):
    with refused("space|can't be a name"):
        aot_compile_spaces(spaces)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("signature", [None, 5, [], [None], [["*fp32", "i32"]], {"x": "*fp32"}, ""]),
        ("grid", [None, "1", "111", ["1"], [1, 1, 1.5], [None, 1, 1], [], {"1": 1}, 5]),
        ("triton_algo_infos", [None, 5, "x", {}, {"BLOCK": 64}, [], [None], ["BLOCK"], [{"BLOCK": [1]}], [{"BLOCK": object}],
                               [{"BLOCK": float("nan")}]]),
        ("world_size", ["two", -1, 2.7, 1000, None, True, [2]]),
    ],
)  # fmt: skip
def test_wrong_parts_of_a_space(key, values):
    for value in values:
        with refused(f"space 'p': .*({key}|BLOCK)"):
            aot_compile_spaces({"p": {**SPACE, key: value}})


@pytest.mark.parametrize(
    "option",
    [{"num_warps": value} for value in (3, 0, -4, 64, "4", True, 4.0, None)]
    + [{"num_ctas": value} for value in (99, 3, 0, "1")]
    + [{"num_stages": value} for value in (-1, "x", 2.5)]
    + [{"maxnreg": value} for value in (0, "a")]
    + [{"launch_pdl": 5}, {"launch_cooperative_grid": "yes"}],
)
def test_wrong_options(option):
    words = next(iter(option))
    with refused(f"space 'p': {words}=.* must be"):
        aot_compile_spaces({"p": {**SPACE, "triton_algo_infos": [{"BLOCK": 64, **option}]}})
    with refused(f"{words}=.* must be"):
        materialize_c_params(push_kernel, "*fp32, *i32, i32, 256", grid=GRID, **option)
    with refused(f"{words}=.* must be"):
        kernel_name_suffix(push_kernel, "*fp32, *i32, i32, 256", **option)


def test_wrong_settings_of_a_suffix():
    with refused("no compile option foo"):
        kernel_name_suffix(push_kernel, "*fp32, *i32, i32, 256", foo=3)
    for target in ("sm_42", "sm_999", "hopper", None, "gfx942"):
        with refused("give a compute capability|no GPU that Triton|for NVIDIA GPUs"):
            kernel_name_suffix(push_kernel, "*fp32, *i32, i32, 256", target=target)
    for world_size in ("two", -1, 2.7, 1000, None):
        with refused("world_size=.* must be a number of ranks"):
            kernel_name_suffix(push_kernel, "*fp32, *i32, i32, 256", world_size=world_size)


@pytest.mark.parametrize("signature", [None, 5, 1.5, {"data": ["*fp32"]}, [["*fp32", "*i32"], "i32", "256"], ["*fp32", print]])
def test_what_is_no_signature(signature):
    with refused("push_kernel"):
        make_ast_source(push_kernel, signature)


@pytest.mark.parametrize("constants", [[1], 5, "BLOCK=4", {5: 1}, {None: 1}])
def test_what_is_no_mapping_of_constants(constants):
    with refused("push_kernel"):
        make_ast_source(push_kernel, "*fp32, *i32, i32", constants)


@pytest.mark.parametrize("params", [None, {}, {"signature": ""}, 5, []])
def test_what_is_not_the_parameters_of_a_source(params, tmp_path):
    with refused("pass what materialize_c_params gave"):
        dump_c_code(tmp_path, params)


@pytest.mark.parametrize("kernels", [None, [], scale_kernel, "scale_kernel", 5, [print], [None]])
def test_what_is_no_list_of_kernels(kernels, tmp_path):
    with refused("must be a list of at least one kernel|is no Triton kernel"):
        build_library(kernels, tmp_path, "one")


@pytest.mark.parametrize("name", [None, 5, "", "a-b", "_"])
def test_what_is_no_name_of_a_library(name, tmp_path):
    with refused("library: .* can't be a name in C"):
        build_library([scale_kernel], tmp_path, name)


@pytest.mark.parametrize("compiler", ["", "  ", None, 5, ["cc"]])
def test_what_is_no_compiler(compiler, tmp_path):
    with refused("compiler=.* must be the command of a C compiler"):
        build_library([scale_kernel], tmp_path, "one", compiler=compiler)


@pytest.mark.parametrize("folder", ["file", "file/inside", "bad\0name", None, 5])
def test_folders_that_can_not_be_made(folder, tmp_path):
    (tmp_path / "file").write_text("")
    place = tmp_path / folder if isinstance(folder, str) else folder
    with refused("can't be made: .*; give the path of a folder"):
        build_library([scale_kernel], place, "one")
    with refused("can't be made"):
        dump_c_code(place, materialize_c_params(scale_kernel, "*fp32, *fp32, i32, fp32, 64", grid=GRID))
    assert (tmp_path / "file").read_text() == "" and not Path("bad").exists()


def test_not_all_arguments_are_one(tmp_path):
    kernel = triton.jit(kinds_kernel.fn)
    space = {"signature": "5, i32:1, fp16", "grid": GRID}
    with refused("says of every argument that it is 1"):
        build_library([aot_compile_spaces({"p": space})(kernel)], tmp_path, "one")
