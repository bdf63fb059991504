"""Calls of functions of a bitcode library from Triton IR: a wrapper for each in LLVM's text form, and what has to be linked.

Triton's external operations call a function whose arguments and result have exactly the types of the IR: pointers of the global address
space, and always a result. Functions of CUDA and HIP libraries take generic pointers and may return nothing; calling them by another type
is undefined, and in PTX becomes an indirect call. So each is called through a wrapper that has the IR's types, and is inlined.

Libraries are added to the options of the compilation that is under way, behind what they are needed by: Triton links in that order.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton import knobs

from triton_dist.errors import PrimitiveArgumentError

_LLVM_TYPES = {"int1": "i1", "fp16": "half", "bf16": "bfloat", "fp32": "float", "fp64": "double"}
_LLVM_TYPES |= {f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

SCALAR_NAMES = {"i1": "int1", "f32": "fp32", "f64": "fp64", "f16": "fp16"}
SCALAR_NAMES |= {f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}
"""Names of types in Triton's signatures, where they differ from the names of the types themselves."""

_LINKED = re.compile(r'libname = "([^"]*)", libpath = "([^"#]+)#([0-9a-f]*)"')
"""An external operation in Triton's IR, whose path carries the digest of the library that was linked."""

ADDRESS = "address"
"""A pointer that is an int64 in Triton's IR."""

_BITCODE_MAGIC = b"BC\xc0\xde"
_STRING_TABLE = 23
"""The number of the block with the names in LLVM's bitcode."""

_GLOBAL = "ptr addrspace(1)"
_SYMBOL = re.compile(r"[A-Za-z_$.][\w$.]*")


@dataclass(frozen=True)
class Signature:
    """A function of a library: types by Triton's names ("int32", "fp32", "*fp32" for a pointer, ADDRESS); result "" for none.

    pure: it reads and writes no memory, and each thread may call it or not.
    """

    symbol: str
    operands: tuple[str, ...]
    result: str
    pure: bool = False

    @property
    def wrapper(self) -> str:
        """Name of the wrapper; it has the symbol in it, by which Triton's AMD back end decides what to link."""
        kinds = hashlib.sha256(repr((self.operands, self.result, self.pure)).encode()).hexdigest()[:8]
        return f"triton_dist_call_{kinds}_{self.symbol}"


def is_type_name(name: str) -> bool:
    """Whether a scalar or pointer of that type can be passed."""
    return name.startswith("*") or name in _LLVM_TYPES


def wrapper_text(signatures: Sequence[Signature]) -> str:
    """A module in LLVM's text form with the wrappers of some functions; each symbol once."""
    lines = [_wrapper(signature) for signature in signatures]
    lines += [
        "attributes #0 = { convergent nounwind }",
        "attributes #1 = { nounwind willreturn memory(none) }",
        "attributes #2 = { convergent nounwind alwaysinline }",
        "attributes #3 = { nounwind willreturn memory(none) alwaysinline }",
    ]
    return "\n".join(lines) + "\n"


def _wrapper(signature: Signature) -> str:
    """The declaration of a function, and the definition of its wrapper."""
    outer, inner = ("#3", "#1") if signature.pure else ("#2", "#0")
    kinds = [_passing(kind) for kind in signature.operands]
    given, returned, back = _passing(signature.result) if signature.result else ("i32", "void", "")
    lines = [
        f"declare {returned} @{signature.symbol}({', '.join(taken for _, taken, _ in kinds)}) {inner}",
        f"define {given} @{signature.wrapper}({', '.join(f'{seen} %a{place}' for place, (seen, _, _) in enumerate(kinds))}) {outer} {{",
    ]
    for place, (seen, taken, change) in enumerate(kinds):
        if change:
            lines.append(f"  %c{place} = {change} {seen} %a{place} to {taken}")
    passed = ", ".join(f"{taken} %{'c' if change else 'a'}{place}" for place, (_, taken, change) in enumerate(kinds))
    call = f"call {returned} @{signature.symbol}({passed})"
    if returned == "void":
        return "\n".join([*lines, f"  {call}", "  ret i32 0", "}"])
    lines.append(f"  %r = {call}")
    if back:
        reverse = "ptrtoint" if back == "inttoptr" else "addrspacecast"
        lines.append(f"  %s = {reverse} {returned} %r to {given}")
    return "\n".join([*lines, f"  ret {given} %{'s' if back else 'r'}", "}"])


def _passing(kind: str) -> tuple[str, str, str]:
    """Of a type: LLVM's type in Triton's IR, that which the function takes, and the conversion from the one to the other."""
    if kind == ADDRESS:
        return "i64", "ptr", "inttoptr"
    if kind.startswith("*"):
        return _GLOBAL, "ptr", "addrspacecast"
    return _LLVM_TYPES[kind], _LLVM_TYPES[kind], ""


def text_file(text: str) -> str:
    """Path of a file with this text, in Triton's cache directory; made if it is not there."""
    folder = Path(knobs.cache.dir) / "triton_dist"
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.ll"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    return str(path)


def link(options: Any, name: str, path: str, signature: Signature) -> None:
    """Have the compilation that these options are of link a function's wrapper and its library.

    Triton links in order, and a library gives only what is called by then: wrappers come first.
    """
    libraries = tuple(options.extern_libs)
    wrapper = text_file(wrapper_text([signature]))
    if options.backend_name == "hip":
        # There Triton links a library only if its name is part of the name of a function that is called.
        name = signature.symbol
    if wrapper not in [where for _, where in libraries]:
        libraries = ((signature.wrapper, wrapper), *libraries)
    if (name, path) not in libraries:
        libraries = (*libraries, (name, path))
    object.__setattr__(options, "extern_libs", libraries)


def check_symbol(function: str, symbol: Any, path: str) -> None:
    """Raises PrimitiveArgumentError for what is no symbol, for a library that can't be read, and for a symbol that is not in it."""
    if not isinstance(symbol, str) or not _SYMBOL.fullmatch(symbol):
        raise PrimitiveArgumentError(f"{function}: {symbol!r} is no symbol; give the name of a function as it is in the bitcode")
    try:
        stamp = os.stat(path)
    except OSError as error:
        raise PrimitiveArgumentError(
            f"{function}: the library {path!r} can't be read: {error.strerror}; give the path of a bitcode file"
        ) from None
    if not _contains(path, (stamp.st_mtime_ns, stamp.st_size), symbol):
        raise PrimitiveArgumentError(
            f'{function}: the library {path!r} has no function {symbol!r}; names in bitcode are mangled unless declared extern "C"'
        )


@functools.lru_cache(maxsize=4096)
def _contains(path: str, stamp: tuple[int, int], symbol: str) -> bool:
    """Whether the symbol is among the names of a library; true where the names can't be read."""
    if stamp[1] == 0:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(symbol.encode()) >= 0 or (data[:1] in (b"B", b"\xde") and not _has_string_table(data))


def _has_string_table(data: mmap.mmap) -> bool:
    """Whether names stand in a bitcode file as they are, in a block of their own; LLVM 4 and older packed them."""
    if data[:4] != _BITCODE_MAGIC:
        return False
    place = 4
    while place + 8 <= len(data):
        # Two bits that begin a block, its number in eight or more, then at the next word its length in words.
        head = int.from_bytes(data[place : place + 4], "little")
        if head & 3 != 1:
            return False
        if (head >> 2) & 0xFF == _STRING_TABLE:
            return True
        place += 8 + 4 * int.from_bytes(data[place + 4 : place + 8], "little")
    return False


def marked(path: str) -> str:
    """The path of a library as it is put into the IR: with the digest of its content."""
    return f"{path}#{digest(path)}" if path else ""


def changed_libraries(ttir: Any) -> dict[str, str]:
    """Libraries, by name, that have other content now than when a kernel was compiled, which may be in a cache; from its IR."""
    if not isinstance(ttir, str):
        return {}
    return {name: path for name, path, linked in set(_LINKED.findall(ttir)) if digest(path) != linked}


def digest(path: str) -> str:
    """Hash of a library's content, "" where it can't be read; remembered until the file changes."""
    try:
        stamp = os.stat(path)
    except OSError:
        return ""
    return _digest(path, (stamp.st_mtime_ns, stamp.st_size))


@functools.lru_cache(maxsize=256)
def _digest(path: str, stamp: tuple[int, int]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
