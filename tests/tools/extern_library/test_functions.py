"""The functions of libraries, from bitcode of several versions of LLVM and from text, and the stubs."""

from __future__ import annotations

import importlib.util
import random
import re
from pathlib import Path

import pytest
import triton

from tests.primitives.compile_targets import source_of, target_of
from tests.primitives.extern_functions import LIBRARY
from tests.tools.extern_library.kernels import norm_kernel_source
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools import read_library
from triton_dist.tools.extern_library import ExternFunction
from triton_dist.tools.extern_library.debug_info import DebugInfo
from triton_dist.tools.extern_library.functions import read_functions
from triton_dist.tools.extern_library.stubs import stubs_text

HERE = Path(__file__).parent
BACKENDS = Path(triton.__file__).parent / "backends"


def signatures(path) -> dict[str, str]:
    return {function.symbol: function.text() for function in read_functions(path)}


def test_bitcode_of_clang_19():
    """``norms.bc`` is ``norms.cu``; the function that is static is not in it."""
    assert signatures(HERE / "norms.bc") == {
        "_Z10overloadedd": "_Z10overloadedd(fp64) -> fp64",
        "_Z10overloadedf": "_Z10overloadedf(fp32) -> fp32",
        "after": "after(*void, i16) -> *void",
        "make_pair": "make_pair(fp32) -> ?",
        "of_pair": "of_pair(*void) -> fp32",
        "put": "put(*void, i32, i1)",
        "shifted": "shifted(i64, i32) -> i32",
        "squared_norm": "squared_norm(fp32, fp32) -> fp32",
        "table_entry": "table_entry(*void, i8) -> fp64",
    }


def test_the_libraries_of_triton():
    """NVIDIA's is bitcode as LLVM 4 wrote it, with names elsewhere."""
    found = signatures(BACKENDS / "nvidia" / "lib" / "libdevice.10.bc")
    assert found["__nv_sinf"] == "__nv_sinf(fp32) -> fp32" and found["__nv_frexp"] == "__nv_frexp(fp64, *void) -> fp64"
    assert found["__nv_mul64hi"] == "__nv_mul64hi(i64, i64) -> i64" and len(found) > 300
    ocml = signatures(BACKENDS / "amd" / "lib" / "ocml.bc")
    assert ocml["__ocml_sin_f16"] == "__ocml_sin_f16(fp16) -> fp16" and ocml["__ocml_sin_2f16"] == "__ocml_sin_2f16(?) -> ?"


def damaged(data: bytes, seed: int) -> bytes:
    """A copy that ends early, or in which some bytes are others."""
    chance = random.Random(seed)
    if seed % 3 == 0:
        return data[: chance.randrange(len(data))]
    copy = bytearray(data)
    for _ in range(chance.choice((1, 2, 8))):
        copy[chance.randrange(len(copy))] = chance.randrange(256)
    return bytes(copy)


@pytest.mark.parametrize("part", range(8))
def test_damaged_bitcode_is_named_or_read(part, tmp_path):
    """Whatever is left of it: its functions, whose stubs are Python, or one error."""
    data, path = (HERE / "norms.bc").read_bytes(), tmp_path / "damaged.bc"
    named = 0
    for seed in range(200 * part, 200 * (part + 1)):
        path.write_bytes(damaged(data, seed))
        try:
            library = read_library(path, stubs=True)
        except InvalidArgumentError:
            named += 1
        else:
            compile(library.stubs.read_text(), str(library.stubs), "exec")
    assert named > 40


@pytest.mark.parametrize("place", [None, 5, "", ".", "none.bc", "bad\0name.bc", b"norms.bc"])
def test_what_is_no_path_of_a_library(place):
    with pytest.raises(InvalidArgumentError, match="can't be read|is neither LLVM bitcode"):
        read_library(place)


@pytest.mark.parametrize("pure", [None, "squared_norm", 5, [None], [b"squared_norm"], ["no_such_function"]])
def test_what_is_no_list_of_symbols(pure):
    with pytest.raises(InvalidArgumentError, match="pure=.* must be a list of symbols|norms.bc has no function no_such_function"):
        read_library(HERE / "norms.bc", pure=pure)


def test_text(tmp_path):
    assert signatures(LIBRARY) == {
        "after": "after(*void, i64) -> *void",
        "count_calls": "count_calls(i32) -> i32",
        "record": "record(*void, i32)",
        "weighted": "weighted(fp32, fp32, i32) -> fp32",
        "weighted_wide": "weighted_wide(fp64, fp64, i32) -> fp64",
    }
    path = tmp_path / "some.ll"
    path.write_text(
        'source_filename = "x"\n'
        'define linkonce_odr dso_local noundef half @"a b"(ptr byval({ i32, i64 }) align 8 %0, <2 x i32> %1, float* %2) #0 {\n'
        "define internal void @inner() {\ndefine available_externally i32 @elsewhere(i32 %0) {\ndeclare void @declared(i32)\n"
    )
    assert signatures(path) == {"a b": "a b(*void, ?, *void) -> fp16"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"int f(int x) { return x; }", "neither LLVM bitcode nor its text form"),
        (b"BCxx0000", "is no LLVM bitcode"),
        (b"BC\xc0\xde" + bytes(64), "damaged"),
        (None, "can't be read: No such file"),
    ],
)
def test_what_is_no_library(tmp_path, content, words):
    path = tmp_path / "some.bc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=words):
        read_library(path)


def test_a_file_that_is_cut_off(tmp_path):
    whole = (HERE / "norms.bc").read_bytes()
    for size in range(8, len(whole) - 4, 97):
        (tmp_path / "cut.bc").write_bytes(whole[:size])
        with pytest.raises(InvalidArgumentError, match="damaged"):
            read_library(tmp_path / "cut.bc")


def test_no_function_to_call(tmp_path):
    (tmp_path / "empty.ll").write_text('source_filename = "x"\ndefine { i32, i32 } @pair() {\n')
    with pytest.raises(InvalidArgumentError, match='define one as extern "C" __device__'):
        read_library(tmp_path / "empty.ll")
    with pytest.raises(InvalidArgumentError, match="norms.bc has no function sine; it has"):
        read_library(HERE / "norms.bc", pure=["sine"])


def test_types_and_names_of_the_source():
    """What clang 19 said of two functions, and a struct by value, whose parts are operands of their own."""
    text = (HERE / "described.txt").read_text()
    functions = (
        ExternFunction("shifted", ("i64", "i32"), "i32"),
        ExternFunction("_Z3putPKfh", ("*void", "i8"), ""),
        ExternFunction("of_struct", ("fp32", "fp32"), "fp32"),
        ExternFunction("unknown", ("i32",), ""),
    )
    shifted, put, of_struct, unknown = DebugInfo(text).described(functions)
    assert shifted.text() == "shifted(u64 x, i32 count) -> i32" and shifted.declared == "int shifted(word x, int count)"
    assert put.text() == "_Z3putPKfh(*fp32 to, u8 value)" and put.name == "put"
    assert put.declared == "void put(const float* to, unsigned char value)"
    assert of_struct == functions[2] and unknown == functions[3]


def test_stubs(tmp_path):
    functions = [
        ExternFunction("shifted", ("u64", "i32"), "i32", "shifted", ("x", "lambda"), "int shifted(unsigned long x, int lambda)"),
        ExternFunction("_Z3addd", ("fp64",), "fp64", "add", ("x",)),
        ExternFunction("_Z3addf", ("fp32",), "fp32", "add", ("x",)),
        ExternFunction("_Z3addff", ("fp32", "fp32"), "fp32", "add", ("x", "x")),
        ExternFunction("many", ("i32",) * 5, ""),
        ExternFunction("odd", ("?",), ""),
    ]
    text = stubs_text("mine", "mine.bc", functions, pure=["shifted"])
    (tmp_path / "mine_extern.py").write_text(text)
    module = load_stubs(tmp_path / "mine_extern.py")
    assert str(tmp_path / "mine.bc") == module.PATH and module.LIBRARY == "mine"
    assert {"shifted", "add", "_Z3addff", "many"} <= set(vars(module)) and "odd" not in vars(module)
    assert "# odd(?): not here" in text
    parts = {match[1]: match[0] for match in re.finditer(r"^def (\w+).*?(?=^@|\Z)", text, re.DOTALL | re.MULTILINE)}
    assert "shifted(x: tl.tensor, lambda_: tl.tensor, _semantic=None)" in parts["shifted"] and ", True, _sem" in parts["shifted"]
    assert parts["shifted"].count("shifted") >= 4 and '("i64", "u32"): ("shifted", "i32")' in parts["shifted"]
    assert '("fp64",): ("_Z3addd", "fp64")' in parts["add"] and '("fp32",): ("_Z3addf", "fp32")' in parts["add"]
    assert "argument0: tl.tensor, argument1: tl.tensor" in parts["_Z3addff"], "two names alike"
    assert parts["many"].count('("many", ())') == 1


def load_stubs(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("arch", [90, 100])
def test_a_kernel_calls_the_stubs(tmp_path, arch):
    """Stubs of the library as it is in the tests, without a clang; the functions are in the kernel's PTX."""
    (tmp_path / "norms.bc").write_bytes((HERE / "norms.bc").read_bytes())
    library = read_library(tmp_path / "norms.bc", stubs=True)
    assert library.stubs == tmp_path / "norms_extern.py"
    kernel = norm_kernel_source(tmp_path)
    compiled = triton.compile(source_of(kernel, {"x": "*fp32", "words": "*i32", "n": "i64"}, {}), target=target_of(arch))
    ptx = compiled.asm["ptx"]
    assert ".extern" not in ptx and "call" not in ptx and "fma.rn.f32" in ptx and re.search(r"shr\.u64", ptx)
