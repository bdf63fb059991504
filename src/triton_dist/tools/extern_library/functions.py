"""The functions of a bitcode library, from bitcode or from LLVM's text form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InvalidArgumentError
from ...sim.ir import split_top_level
from .bitstream import Bitstream, Block

_MODULE, _SYMBOLS, _TYPES, _STRINGS = 8, 14, 17, 23
"""Numbers of blocks. Names stand in _STRINGS, in bitcode of LLVM 4 and older in _SYMBOLS."""

_VERSION, _FUNCTION = 1, 8
_GLOBALS = frozenset({7, 8, 9, 14, 15})
"""Codes of records of the module block; those of _GLOBALS define a value each."""

_ENTRY, _FUNCTION_ENTRY = 1, 3
"""Codes of records of _SYMBOLS: the number of a value (and an offset), then its name."""

_HIDDEN = frozenset({3, 9, 12, 13, 14})
"""Linkages of functions that other modules can't call: internal, private, and copies of functions of others."""

_COUNT, _NAME_OF_STRUCT = 1, 19
"""Codes of records of the block of types that define no type."""

_PLAIN_TYPES = {2: "", 3: "fp32", 4: "fp64", 10: "fp16", 23: "bf16"}
_INTEGER, _POINTER, _OPAQUE_POINTER, _FUNCTION_TYPE = 7, 8, 25, 21
_WIDTHS = (1, 8, 16, 32, 64)

ANY = "*void"
"""A pointer to anything."""

OTHER = "?"
"""A type that no value of a kernel has: a struct, a vector, an integer of another width."""

_DEFINE = re.compile(r"^define\s+(.*?)@(\"[^\"]+\"|[\w$.]+)\((.*)$", re.MULTILINE)
_TEXT_TYPES = {"void": "", "float": "fp32", "double": "fp64", "half": "fp16", "bfloat": "bf16"}
_TEXT_TYPES |= {f"i{bits}": f"i{bits}" for bits in _WIDTHS}


@dataclass(frozen=True)
class ExternFunction:
    """A function that other modules can call.

    symbol: its name in the library. operands, result: types as signatures name them ("fp32", "*i32", ANY); "" for no result; OTHER
    for what a kernel can't pass. name, parameters: as the source has them, where that is known. declared: its C++ declaration, or "".
    """

    symbol: str
    operands: tuple[str, ...]
    result: str
    name: str = ""
    parameters: tuple[str, ...] = ()
    declared: str = ""

    @property
    def callable(self) -> bool:
        """Whether a kernel can pass such values."""
        return OTHER not in (*self.operands, self.result)

    def text(self) -> str:
        """In one line: "bits(u64 x, i32 n) -> i32"."""
        names = self.parameters or ("",) * len(self.operands)
        given = ", ".join(f"{kind} {name}".strip() for kind, name in zip(self.operands, names, strict=True))
        return f"{self.symbol}({given})" + (f" -> {self.result}" if self.result else "")


def read_functions(path: str | Path) -> tuple[ExternFunction, ...]:
    """The functions that a library defines and others can call, by name. path: LLVM bitcode, or LLVM's text form.

    Raises InvalidArgumentError for a file that can't be read or is neither.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"the library {str(path)!r} can't be read: {why}; give the path of a .bc or .ll file") from None
    try:
        found = _of_bitcode(data) if data[:2] in (b"BC", b"\xde\xc0") else _of_text(data, str(path))
    except InvalidArgumentError:
        raise
    except (ValueError, IndexError, OverflowError, RecursionError) as error:
        # Numbers that lead nowhere: places of types and abbreviations, widths, letters of names.
        raise InvalidArgumentError(f"the bitcode of {str(path)!r} is damaged: {type(error).__name__}: {error}; build it again") from None
    return tuple(sorted(found, key=lambda function: function.symbol))


def _of_bitcode(data: bytes) -> list[ExternFunction]:
    blocks = list(Bitstream(data, frozenset({_MODULE, _SYMBOLS, _TYPES, _STRINGS})).blocks())
    strings = b"".join(record.blob for block in blocks if block.number == _STRINGS for record in block.records)
    modules = [block for block in blocks if block.number == _MODULE]
    if not modules:
        raise InvalidArgumentError("the bitcode is damaged: there is no module in it")
    return [function for module in modules for function in _of_module(module, strings)]


def _of_module(module: Block, strings: bytes) -> list[ExternFunction]:
    types = _types(next((block for block in module.blocks if block.number == _TYPES), Block(_TYPES)))
    by_strings = any(record.code == _VERSION and record.values[0] >= 2 for record in module.records)
    names = {} if by_strings else _names_of_values(module)
    found = []
    for value, record in enumerate(record for record in module.records if record.code in _GLOBALS):
        if record.code != _FUNCTION:
            continue
        offset, size, *values = record.values if by_strings else [0, 0, *record.values]
        kind, _, declaration, linkage = values[:4]
        signature = types[kind] if kind < len(types) else None
        if not declaration and linkage not in _HIDDEN and isinstance(signature, tuple):
            if offset + size > len(strings):
                raise InvalidArgumentError("the bitcode is damaged: names of functions are missing")
            name = strings[offset : offset + size].decode() if by_strings else names.get(value, "")
            if not name:
                raise InvalidArgumentError("the bitcode is damaged: names of functions are missing")
            found.append(ExternFunction(name, signature[1:], signature[0]))
    return found


def _names_of_values(module: Block) -> dict[int, str]:
    names: dict[int, str] = {}
    for record in (record for block in module.blocks if block.number == _SYMBOLS for record in block.records):
        if record.code in (_ENTRY, _FUNCTION_ENTRY):
            letters = record.values[1 if record.code == _ENTRY else 2 :]
            names[record.values[0]] = bytes(letters).decode(errors="replace")
    return names


def _types(block: Block) -> list[str | tuple[str, ...]]:
    """Each type by its number: a name, or of a function (and of a pointer to one) the names of its result and operands."""
    known: list[str | tuple[str, ...]] = []

    def name(number: int) -> str:
        found = known[number] if number < len(known) else OTHER
        return found if isinstance(found, str) else ANY

    for record in block.records:
        if record.code in (_COUNT, _NAME_OF_STRUCT):
            continue
        if record.code == _FUNCTION_TYPE:
            known.append(tuple(name(number) for number in record.values[1:]))
        elif record.code == _INTEGER:
            known.append(f"i{record.values[0]}" if record.values[0] in _WIDTHS else OTHER)
        elif record.code in (_POINTER, _OPAQUE_POINTER):
            to = known[record.values[0]] if record.code == _POINTER and record.values[0] < len(known) else ANY
            known.append(to if isinstance(to, tuple) else ANY)
        else:
            known.append(_PLAIN_TYPES.get(record.code, OTHER))
    return known


def _of_text(data: bytes, path: str) -> list[ExternFunction]:
    text = data.decode(errors="replace")
    if "define" not in text and "target triple" not in text and "source_filename" not in text:
        raise InvalidArgumentError(f"{path!r} is neither LLVM bitcode nor its text form")
    found = []
    for before, symbol, rest in _DEFINE.findall(text):
        words = before.split()
        if {"internal", "private", "available_externally"} & set(words):
            continue
        operands = tuple(_text_type(part) for part in split_top_level(_inside(rest)))
        found.append(ExternFunction(symbol.strip('"'), operands, _text_type(words[-1] if words else "")))
    return found


def _inside(text: str) -> str:
    """Up to the bracket that closes what is open at the begin."""
    depth = 1
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:place]
    return text


def _text_type(text: str) -> str:
    first = text.split()[0] if text.split() else ""
    if first.startswith("ptr") or first.endswith("*"):
        return ANY
    return _TEXT_TYPES.get(first, OTHER)


def check_callable(functions: Sequence[ExternFunction]) -> None:
    """Raises InvalidArgumentError for a library with no function that kernels can call."""
    if not any(function.callable for function in functions):
        raise InvalidArgumentError(
            'the library has no function that a kernel can call; define one as extern "C" __device__, with integers, floats and pointers'
        )
