"""A kernel to compile without a launch: the types and constants of its arguments, from text.

The text is that of ``triton.tools.compile``: for each argument, in order, a type with an optional hint ("*fp32:16", "i32", "i32:1"), or a
value that is compiled in. Beyond it, values may be given by name, and may be anything Python can write down, or the name of a dtype.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from triton._utils import canonicalize_dtype
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from ..errors import InvalidArgumentError

HINTS = (1, 16)
"""What a hint may say: the argument is 1, or a multiple of 16. Pointers are never 1, and floating-point numbers have no hints."""

SCALARS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64")
"""Types of arguments that are no pointers, as signatures name them."""

_ELEMENTS = (*SCALARS, "u1", "fp8e4nv", "fp8e5", "fp8e4b15", "fp8e4b8", "fp8e5b16")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.""", re.DOTALL)
"""A quoted text, or a letter outside of one."""
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[[\d, ]+\]>")


@dataclass(frozen=True)
class KernelSignature:
    """Which arguments a kernel is compiled for.

    types: of the arguments that a launch gives, by name, in the kernel's order; with those that are known to be 1.
    constants: what is compiled in, by name, without the arguments that are known to be 1. hints: 1 or 16, by name.
    """

    kernel: JITFunction
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    hints: Mapping[str, int]

    @property
    def ones(self) -> tuple[str, ...]:
        """Names of the arguments that are known to be 1: a launch gives them, the compiled kernel does not take them."""
        return tuple(name for name, hint in self.hints.items() if hint == 1)

    def source(self) -> ASTSource:
        """What Triton compiles."""
        constants = {**self.constants, **dict.fromkeys(self.ones, 1)}
        names = self.kernel.arg_names
        return ASTSource(
            self.kernel,
            {name: "constexpr" if name in constants else self.types[name] for name in names},
            constants,
            {(names.index(name),): [["tt.divisibility", 16]] for name, hint in self.hints.items() if hint == 16},
        )

    def text(self) -> str:
        """In the form of Triton's tools, one item an argument."""
        items = []
        for name in self.kernel.arg_names:
            if name in self.constants:
                items.append(str(getattr(self.constants[name], "name", self.constants[name])))
            else:
                items.append(self.types[name] + (f":{self.hints[name]}" if name in self.hints else ""))
        return ", ".join(items)


def jit_function(kernel: Any) -> JITFunction:
    """The jit function under ``triton.autotune`` and ``triton.heuristics``. Raises InvalidArgumentError for what is no kernel."""
    found = kernel
    while not isinstance(found, JITFunction):
        found = getattr(found, "fn", None)
        if found is None:
            raise InvalidArgumentError(f"{kernel!r} is no Triton kernel; give a function decorated by triton_dist.jit or triton.jit")
    return found


def read_signature(
    kernel: Any, signature: str | Sequence[str] | Mapping[str, str] = "", constants: Mapping[str, Any] | None = None
) -> KernelSignature:
    """The signature of a kernel.

    signature: an item for each argument that ``constants`` does not name, in order (one text with commas, or a list); or items by name.
        Arguments that are left out at the end, or by name, take their default.
    constants: values that are compiled in, by name.
    Raises InvalidArgumentError for names that the kernel does not have, missing or superfluous items, and unknown types.
    """
    function = jit_function(kernel)
    if constants is not None and not isinstance(constants, Mapping):
        raise InvalidArgumentError(f"{function.__name__}: constants={constants!r} must be a mapping of names of arguments to values")
    given = dict(constants or {})
    unknown = sorted(set(map(str, given)) - set(function.arg_names))
    if isinstance(signature, Mapping):
        unknown += sorted(set(map(str, signature)) - set(function.arg_names))
        items = dict(signature)
    elif isinstance(signature, Sequence):
        listed = _split_items(signature) if isinstance(signature, str) else list(signature)
        free = [name for name in function.arg_names if name not in given]
        if len(listed) > len(free):
            raise InvalidArgumentError(
                f"{function.__name__}: {len(listed)} items for {len(free)} arguments ({', '.join(free)}); give one item an argument"
            )
        items = dict(zip(free, listed, strict=False))
    else:
        raise InvalidArgumentError(f"{function.__name__}: signature={signature!r} must be a text, a list of items, or items by name")
    if unknown:
        raise InvalidArgumentError(
            f"{function.__name__} has no argument {', '.join(unknown)}; its arguments are {', '.join(function.arg_names)}"
        )
    types: dict[str, str] = {}
    hints: dict[str, int] = {}
    for parameter in function.params:
        name = parameter.name
        if name in given:
            continue
        if name in items:
            item = items[name] if isinstance(items[name], str) else item_text(f"{function.__name__}: {name}", items[name])
            _read_item(function, parameter, item, types, hints, given)
        elif parameter.has_default:
            given[name] = getattr(parameter.default, "value", parameter.default)
        else:
            kind = "a value (it is a constexpr)" if parameter.is_constexpr else "a type"
            raise InvalidArgumentError(f"{function.__name__}: the signature has no item for {name!r}; give {kind}")
    return KernelSignature(function, types, {name: given[name] for name in function.arg_names if name in given}, hints)


def _split_items(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes; a comma at the end counts for nothing."""
    parts, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in "([{<") - (token in ")]}>")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    parts = [part.strip() for part in parts]
    return parts if parts[-1] else parts[:-1]


def item_text(what: str, value: Any) -> str:
    """A value as an item of a signature: what ``read_value`` makes of it is that value. what: it is for, in errors.

    Raises InvalidArgumentError for what is no number, text, dtype or None, nor a tuple of such.
    """
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, (tl.dtype, torch.dtype)):
        return str(canonicalize_dtype(value))
    if not is_plain(value):
        raise InvalidArgumentError(f"{what}: {value!r} is no value to compile in; give a number, a text, a dtype, True, False or None")
    return repr(value)


def is_plain(value: Any) -> bool:
    """Whether Python can write it down: a number, a text, True, False, None, or a tuple of such."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, str) or type(value) is float and math.isfinite(value)


def _read_item(function: Any, parameter: Any, item: str, types: dict[str, str], hints: dict[str, int], constants: dict[str, Any]) -> None:
    """Put what an item says into one of the three."""
    item = item.strip()
    if parameter.is_constexpr:
        constants[parameter.name] = read_value(item, f"{function.__name__}: {parameter.name}")
        return
    kind, colon, hint = item.partition(":")
    if is_type(kind.strip()):
        types[parameter.name] = kind.strip()
        if colon:
            hints[parameter.name] = _read_hint(f"{function.__name__}: {parameter.name}: {item!r}", kind.strip(), hint.strip())
        return
    try:
        constants[parameter.name] = ast.literal_eval(item)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise InvalidArgumentError(
            f"{function.__name__}: {parameter.name}: {item!r} is no type and no value; types are {', '.join(SCALARS)}, pointers such as "
            '"*fp32", each with ":16" where it is a multiple of 16'
        ) from None


def _read_hint(what: str, kind: str, hint: str) -> int:
    if hint not in map(str, HINTS):
        raise InvalidArgumentError(f"{what}: a hint is 1 or 16")
    if kind.startswith("*") and hint == "1":
        raise InvalidArgumentError(f"{what}: a pointer has the hint :16 only; leave :1 out")
    if not kind.startswith(("*", "i", "u")):
        raise InvalidArgumentError(f"{what}: integers have the hints :1 and :16, pointers :16, and {kind} none; leave it out")
    return int(hint)


def is_type(text: str) -> bool:
    """Whether it is the type of an argument that a launch gives: a scalar, a pointer, or a tensor descriptor."""
    descriptor = _DESCRIPTOR.fullmatch(text)
    if descriptor:
        return descriptor[1] in _ELEMENTS
    return text in SCALARS or (text.startswith("*") and text.lstrip("*").removeprefix("k") in _ELEMENTS)


def read_value(text: str, what: str) -> Any:
    """A constant from text: a Python literal, or the name of a dtype ("bf16", "tl.bfloat16"). what: it is for, in errors.

    Raises InvalidArgumentError.
    """
    text = text.strip()
    lowered = {"true": True, "false": False, "none": None}
    if text.lower() in lowered:
        return lowered[text.lower()]
    name = text.removeprefix("tl.")
    if name in _ELEMENTS and name.startswith(("fp", "bf", "i", "u")):
        return tl.str_to_ty(name, None)
    found = getattr(tl, name, None)
    if isinstance(found, tl.dtype):
        return found
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise InvalidArgumentError(f"{what}: {text!r} is no value; give a number, True, False, None, a quoted text, or a dtype") from None


TARGETS = (70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities of GPUs that Triton compiles for."""


def read_target(text: str) -> int:
    """Compute capability from "sm_90", "90" or "cuda:90:32". Raises InvalidArgumentError."""
    found = re.fullmatch(r"(?:sm_|cuda:)?(\d{2,3})a?(?::32)?", str(text).strip())
    if not found:
        raise InvalidArgumentError(f"target {text!r}: give a compute capability such as sm_90 or sm_100")
    if int(found[1]) not in TARGETS:
        raise InvalidArgumentError(f"target {text!r}: no GPU that Triton compiles for has it; give one of {', '.join(map(str, TARGETS))}")
    return int(found[1])
