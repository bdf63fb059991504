"""``build_extern``: a bitcode library from CUDA C++, with its functions and their stubs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError
from ..folder import make_folder
from ..kernel_signature import read_target
from .clang import compile_to_bitcode, compile_to_described_text, find_clang
from .debug_info import DebugInfo
from .functions import ExternFunction, check_callable, read_functions
from .stubs import write_stubs


@dataclass(frozen=True)
class ExternLibrary:
    """A bitcode library. name: what ``extern_call`` calls it. stubs: the Python module that kernels import, None if none was written."""

    name: str
    path: Path
    functions: tuple[ExternFunction, ...]
    stubs: Path | None


def build_extern(
    source: str | Path,
    out: str | Path | None = None,
    *,
    arch: str | int = "sm_80",
    clang: str | None = None,
    cuda_path: str | None = None,
    options: Sequence[str] = (),
    pure: Collection[str] = (),
    stubs: bool = True,
) -> ExternLibrary:
    """Turn a CUDA C++ file into LLVM bitcode that kernels call by ``extern_call``, and write stubs for its functions. Needs clang, no GPU.

    source: a .cu file with functions ``extern "C" __device__``. out: folder of the bitcode and of the stubs, the source's by default; they
        are named by the source: ``norms.cu`` becomes ``norms.bc`` and ``norms_extern.py``.
    arch: the oldest GPU that the library is for. clang: its command; without one, ``clang`` and ``clang-N`` on the PATH are tried.
    cuda_path: a CUDA whose headers the source includes, of a version that this clang knows; without one, it has CUDA's decorations only.
    options: further ones for clang. pure: symbols of functions that depend on their arguments only, so that calls may be merged.
    Raises InvalidArgumentError, MissingToolError, ToolFailedError (with what clang said).
    """
    _check_pure(pure)
    given = Path(source) if isinstance(source, (str, Path)) else Path()
    if not given.is_file():
        raise InvalidArgumentError(f"there is no file {str(source)!r}")
    number = read_target(str(arch))
    program = find_clang(clang)
    folder = make_folder(out if out is not None else given.parent)
    path = folder / f"{given.stem}.bc"
    compile_to_bitcode(program, given, path, number, cuda_path, options)
    described = DebugInfo(compile_to_described_text(program, given, number, cuda_path, options))
    return _library(path, described.described(read_functions(path)), pure, stubs)


def read_library(path: str | Path, *, pure: Collection[str] = (), stubs: bool = False) -> ExternLibrary:
    """The same for a library that is there: its functions, and stubs if asked for, beside it. Needs no clang.

    Pointers are ``*void``, which takes any, since bitcode has no types of what they point to. Raises InvalidArgumentError.
    """
    _check_pure(pure)
    functions = read_functions(path)
    return _library(Path(path), functions, pure, stubs)


def _check_pure(pure: object) -> None:
    if isinstance(pure, str) or not isinstance(pure, Collection) or not all(isinstance(symbol, str) for symbol in pure):
        raise InvalidArgumentError(f"pure={pure!r} must be a list of symbols of functions, as in ['squared_norm']")


def _library(path: Path, functions: tuple[ExternFunction, ...], pure: Collection[str], stubs: bool) -> ExternLibrary:
    check_callable(functions)
    unknown = sorted(set(pure) - {function.symbol for function in functions})
    if unknown:
        raise InvalidArgumentError(f"{path.name} has no function {', '.join(unknown)}; it has {', '.join(one.symbol for one in functions)}")
    name = path.stem
    try:
        written = write_stubs(path.with_name(f"{name}_extern.py"), name, path, functions, pure) if stubs else None
    except OSError as error:
        raise InvalidArgumentError(f"the stubs of {path} can't be written beside it: {error.strerror}; give stubs=False") from None
    return ExternLibrary(name, path, functions, written)
