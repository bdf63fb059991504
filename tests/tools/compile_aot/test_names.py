"""Names that mean something in C: arguments get underscores, functions and libraries an error."""

from __future__ import annotations

import itertools
import keyword
import shutil
import subprocess

import pytest

from tests.tools.compile_aot.kernels import scale_kernel
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools import aot_compile_spaces, build_library
from triton_dist.tools.compile_aot.names import TAKEN, argument_names, check_function_name, check_symbols
from triton_dist.tools.kernel_file import load_kernel

NASTY = sorted(
    {name for name in TAKEN if not keyword.iskeyword(name) and not name.startswith(("E", "SIG"))}
    | {"EINTR", "SIGINT"}
    | {"uint64_t", "uintptr_t", "int_fast8_t", "INT64_MAX", "UINT64_C", "CUresult", "CUstream", "CU_STREAM_PER_THREAD", "cuInit", "M_PI"}
    | {"TRITON_DIST_NO_HEAP", "_Bool", "__LINE__", "nasty", "nasty_algo0", "lib_runtime_launch", "lib_runtime_fail", "code_", "code__"}
)
SPACE = {"signature": "*fp32, *fp32, i32, fp32, 128", "grid": ["1", "1", "1"]}


def test_every_argument_has_a_name_that_c_takes(tmp_path):
    """All at once, in a C library and in a C++ program with the headers whose macros some of them are."""
    if shutil.which("g++") is None:
        pytest.skip("needs gcc and g++")
    file = tmp_path / "nasty.py"
    body = "\n".join(f"    tl.store(out + {place}, {name})" for place, name in enumerate(NASTY))
    file.write_text(f"import triton\nimport triton.language as tl\n@triton.jit\ndef nasty(out, {', '.join(NASTY)}):\n{body}\n")
    space = {"signature": ", ".join(["*i32"] + ["i32"] * len(NASTY)), "grid": ["cdiv(code, code_) + uint64_t", "NULL", "1"]}
    kernel = aot_compile_spaces({"nasty": space})(load_kernel(f"{file}:nasty"))
    library = build_library([kernel], tmp_path, "lib", compiler="gcc -Wall -Wextra -Werror -Wno-strict-prototypes")
    program = tmp_path / "program.cpp"
    headers = "".join(f"#include <{name}>\n" for name in ("errno.h", "math.h", "signal.h", "stdio.h", "stdlib.h", "limits.h", "assert.h"))
    program.write_text(f'{headers}#include "{library.header}"\nint main() {{ return lib_leave(); }}\n')
    for standard in ("c++11", "c++20"):
        done = subprocess.run(["g++", "-Wall", "-Werror", f"-std={standard}", "-c", "-o", tmp_path / "o", program], capture_output=True)
        assert done.returncode == 0, done.stderr


def test_names_stay_apart():
    for names in (("code", "code_"), ("code_", "code"), ("code", "code_", "code__"), ("x", "x_")):
        found = argument_names(names, "x", "lib")
        assert len(set(found.values())) == len(names) and not set(found.values()) & {"code", "x"}
        assert all(changed.rstrip("_") == name.rstrip("_") for name, changed in found.items())
    assert argument_names(["data", "rows"], "x", "lib") == {"data": "data", "rows": "rows"}
    with pytest.raises(InvalidArgumentError, match="an argument: 'é' can't be a name in C"):
        argument_names(["é"], "x", "lib")


@pytest.mark.parametrize("name", [*sorted(TAKEN), "uint64_t", "CUresult", "_Bool", "__LINE__", "a b", "", "_", "é", "1st", None, 5])
def test_a_function_is_not_called_so(name):
    with pytest.raises(InvalidArgumentError, match="can't be"):
        check_function_name(name)
    with pytest.raises(InvalidArgumentError, match="can't be"):
        aot_compile_spaces({name: SPACE})


@pytest.mark.parametrize(
    ("library", "spaces", "words"),
    [
        ("lib", ("plain", "plain_default"), "the space 'plain_default' and the space 'plain' both have the C name 'plain_default'"),
        ("lib", ("plain", "load_plain"), "both have the C name 'load_plain'"),
        ("lib", ("lib_join",), "the space 'lib_join' and the library 'lib' both have"),
        ("lib", ("lib_H",), "both have the C name 'lib_H'"),
        ("lib", ("printf",), "the C name 'printf', which is a function of the C library"),
        ("lib", ("send",), "a function of the C library"),
        ("pthread", ("plain",), "the library 'pthread' has the C name 'pthread_join'"),
    ],
)
def test_symbols_are_of_one_owner(library, spaces, words, tmp_path):
    for order in itertools.permutations(spaces):
        with pytest.raises(InvalidArgumentError, match=words if order == spaces else "both have"):
            check_symbols(library, order)
    with pytest.raises(InvalidArgumentError, match=words):
        build_library([aot_compile_spaces(dict.fromkeys(spaces, SPACE))(scale_kernel.fn)], tmp_path, library)
    del scale_kernel.fn.aot_spaces
