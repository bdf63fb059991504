"""Names of the generated C code: of arguments, which are changed where C has another meaning for them; and of functions, which are not.

A name of a library's user stays as it is where it can; where a function or library can't have it that is an error which says why.
"""

from __future__ import annotations

import ctypes
import errno
import re
import signal
from collections.abc import Iterable, Iterator, Sequence

from ...errors import InvalidArgumentError

_C_WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long register restrict
return short signed sizeof static struct switch typedef union unsigned void volatile while typeof typeof_unqual constexpr nullptr alignas
alignof static_assert thread_local bool true false asm"""
_CPP_WORDS = """and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept consteval constinit
const_cast decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq operator or or_eq private
protected public reinterpret_cast requires static_cast template this throw try typeid typename using virtual wchar_t xor xor_eq"""
_OWN_WORDS = """stream algo_id algorithms arguments code image kernel scratch profile cdiv main size_t ptrdiff_t max_align_t
TT_ResultTy TT_StreamTy TT_ERROR_INVALID_VALUE"""
_MACROS = """NULL linux unix i386 errno assert complex imaginary noreturn offsetof alloca stdin stdout stderr EOF NAN INFINITY HUGE_VAL
BUFSIZ RAND_MAX FILENAME_MAX FOPEN_MAX TMP_MAX CHAR_BIT MB_LEN_MAX I"""

_CODES = (*errno.errorcode.values(), *signal.Signals.__members__)

TAKEN = frozenset([*f"{_C_WORDS} {_CPP_WORDS} {_OWN_WORDS} {_MACROS}".split(), *_CODES])
"""Words of C and C++, macros of their usual headers, and the names that the C code itself has."""

_RESERVED = re.compile(
    r"u?int(_least|_fast)?(8|16|32|64)_t|u?int(ptr|max)_t|U?(INT|SHRT|CHAR|LONG|LLONG)\w*_(MIN|MAX|WIDTH|C)|(SIZE|SSIZE|PTRDIFF|WCHAR)_M\w+"
    r"|M_[A-Z0-9_]+|SIG_\w+|CU_\w+|CUDA\w*|CU(result|stream|device\w*|module|function|context|event|array)|cu[A-Z]\w*|cuuint(32|64)_t"
    r"|TRITON_DIST\w*|_[A-Z]\w*|__\w+"
)
"""The same by the manner of a name: of the headers stdint, limits, math and cuda, and what C keeps for itself."""

_OF_LIBRARIES = """last_error synchronize join leave driver open_driver fail_of_driver forget_page runtime_begin runtime_status runtime_fail
runtime_load runtime_unload runtime_launch H RUNTIME_H DRIVER_FUNCTIONS MEMBER TRY"""
"""What a library has by its own name, an underscore before each."""


def check_name(name: str, what: str = "") -> str:
    """The name, if it is one in C. what: it is of, in errors. Raises InvalidArgumentError."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not name.strip("_"):
        raise InvalidArgumentError(f"{f'{what}: ' if what else ''}{name!r} can't be a name in C; give letters, digits and underscores")
    return name


def check_function_name(name: str) -> str:
    """The name, if a function of a library can have it. Raises InvalidArgumentError."""
    check_name(name)
    if _means_something(name):
        raise InvalidArgumentError(f"a C function can't be called {name!r}, which C, its headers or the generated code have for themselves")
    return name


def _means_something(name: str) -> bool:
    return name in TAKEN or _RESERVED.fullmatch(name) is not None


def argument_names(arguments: Iterable[str], function: str, library: str) -> dict[str, str]:
    """Names in C of a kernel's arguments, by the kernel's: with underscores behind those that mean something else there.

    function, library: in which they are; what these declare is not hidden. Raises InvalidArgumentError.
    """
    given = list(arguments)
    own = re.compile(rf"{re.escape(function)}|{re.escape(function)}_(algo\d+|[0-9a-f]{{8}}_\w*)")
    others = TAKEN | {f"{library}_{name}" for name in _OF_LIBRARIES.split()}
    found: dict[str, str] = {}
    for argument in given:
        name = check_name(argument, f"{function}: an argument")
        if _means_something(name) or own.fullmatch(name):
            name += "_"
        while name in others or name != argument and name in (*given, *found.values()):
            name += "_"
        found[argument] = name
    return found


def check_symbols(library: str, functions: Sequence[str]) -> None:
    """The names that other code sees of a library, with these functions, are each there once, and none is one of the C library.

    Raises InvalidArgumentError.
    """
    owners: dict[str, str] = {}
    for symbol, owner in _symbols(library, functions):
        if symbol in owners:
            raise InvalidArgumentError(f"{owner} and {owners[symbol]} both have the C name {symbol!r}; give one of them another name")
        if _is_of_c_library(symbol):
            raise InvalidArgumentError(f"{owner} has the C name {symbol!r}, which is a function of the C library; give it another name")
        owners[symbol] = owner


def _symbols(library: str, functions: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in _OF_LIBRARIES.split():
        yield f"{library}_{name}", f"the library {library!r}"
    for function in functions:
        for symbol in (function, f"load_{function}", f"unload_{function}", f"{function}_get_num_algos", f"{function}_default"):
            yield symbol, f"the space {function!r}"


def _is_of_c_library(symbol: str) -> bool:
    """Whether a program that links a library with this symbol, or calls it, would get another function than it means."""
    for file in ("libc.so.6", "libm.so.6"):
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        if hasattr(library, symbol):
            return True
    return False
