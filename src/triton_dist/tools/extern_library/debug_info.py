"""C types of functions, and names of their parameters, from the debug information in LLVM's text form.

LLVM's own types have no signs and no pointee types; clang writes what the source says beside them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from .functions import ANY, OTHER, ExternFunction

_NODE = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$", re.MULTILINE)
_LIST = re.compile(r"^!(\d+) = (?:distinct )?!\{(.*)\}$", re.MULTILINE)
_FIELD = re.compile(r'(\w+): ("[^"]*"|!\d+|[\w|]+)')
_THROUGH = ("DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_typedef")
_LETTERS = {
    "DW_ATE_signed": "i", "DW_ATE_signed_char": "i", "DW_ATE_unsigned": "u", "DW_ATE_unsigned_char": "u", "DW_ATE_UTF": "u",
    "DW_ATE_float": "fp", "DW_ATE_boolean": "i",
}  # fmt: skip

Fields = Mapping[str, str]


class DebugInfo:
    """The nodes of a module in text form."""

    def __init__(self, text: str) -> None:
        self._nodes: dict[str, tuple[str, Fields]] = {}
        for number, kind, body in _NODE.findall(text):
            self._nodes[f"!{number}"] = (kind, {name: value.strip('"') for name, value in _FIELD.findall(body)})
        self._lists = {f"!{number}": [part.strip() for part in body.split(",")] if body else [] for number, body in _LIST.findall(text)}
        self._parameters: dict[str, dict[int, str]] = {}
        for kind, fields in self._nodes.values():
            if kind == "DILocalVariable" and "arg" in fields:
                self._parameters.setdefault(fields.get("scope", ""), {})[int(fields["arg"])] = fields.get("name", "")
        self._programs = {
            fields.get("linkageName") or fields.get("name", ""): (node, fields)
            for node, (kind, fields) in self._nodes.items()
            if kind == "DISubprogram" and "DISPFlagDefinition" in fields.get("spFlags", "")
        }

    def described(self, functions: Sequence[ExternFunction]) -> tuple[ExternFunction, ...]:
        """The functions with the types, names and declarations of the source, where it has them."""
        return tuple(map(self._describe, functions))

    def _describe(self, function: ExternFunction) -> ExternFunction:
        node, fields = self._programs.get(function.symbol, ("", {}))
        kinds = self._lists.get(self._field(fields.get("type", ""), "types"), [])
        if not node or len(kinds) != len(function.operands) + 1:  # a struct by value is several operands, or a pointer
            return function
        names = self._parameters.get(node, {})
        parameters = tuple(names.get(place + 1) or f"argument{place}" for place in range(len(function.operands)))
        result, *operands = (self._type(kind) for kind in kinds)
        shown = ", ".join(f"{self._shown(kind)} {name}" for kind, name in zip(kinds[1:], parameters, strict=True))
        return dataclasses.replace(
            function,
            operands=tuple(map(_agreed, function.operands, operands)),
            result=_agreed(function.result, result),
            name=fields.get("name", ""),
            parameters=parameters,
            declared=f"{self._shown(kinds[0])} {fields.get('name', '')}({shown})",
        )

    def _field(self, node: str, name: str) -> str:
        return self._nodes.get(node, ("", {}))[1].get(name, "")

    def _through(self, node: str) -> str:
        while self._field(node, "tag") in _THROUGH:
            node = self._field(node, "baseType")
        return node

    def _type(self, node: str) -> str:
        """As signatures name it; OTHER for what they have no name for, "" for none."""
        node = self._through(node)
        if node in ("null", ""):
            return ""
        kind, fields = self._nodes.get(node, ("", {}))
        if fields.get("tag") == "DW_TAG_pointer_type":
            pointee = self._type(fields.get("baseType", "null"))
            return ANY if pointee in ("", OTHER) or pointee.startswith("*") else f"*{pointee}"
        if kind == "DICompositeType" and fields.get("tag") == "DW_TAG_enumeration_type":
            return self._type(fields.get("baseType", ""))
        letter = _LETTERS.get(fields.get("encoding", ""))
        if kind != "DIBasicType" or letter is None:
            return OTHER
        if "bf16" in fields.get("name", ""):
            return "bf16"
        return "i1" if fields["encoding"] == "DW_ATE_boolean" else f"{letter}{fields.get('size', '')}"

    def _shown(self, node: str) -> str:
        """As C++ writes it."""
        tag, base = self._field(node, "tag"), self._field(node, "baseType") or "null"
        if node in ("null", ""):
            return "void"
        if tag == "DW_TAG_pointer_type":
            return f"{self._shown(base)}*"
        if tag in ("DW_TAG_const_type", "DW_TAG_volatile_type"):
            return f"{tag.split('_')[2]} {self._shown(base)}"
        if tag == "DW_TAG_restrict_type":
            return f"{self._shown(base)} __restrict__"
        return self._field(node, "name") or "?"


def _agreed(compiled: str, written: str) -> str:
    """The type of the source, if it is the compiled one with more said."""
    if compiled.startswith("*"):
        return written if written.startswith("*") else compiled
    same = written.removeprefix("u").removeprefix("i") == compiled.removeprefix("i") and compiled.startswith("i")
    return written if same else compiled
