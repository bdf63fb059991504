"""Text of a block of assembly -> tokens with their lines. What LLVM does to the text comes first: ``$$`` and ``${:uid}``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import InlineAssemblyError

_DOLLAR, _UNIQUE = "\x01", "\x02"
"""Stand for ``$$`` and ``${:uid}`` while a text is taken apart: either may be in a name."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<operand>\$\d+|\$\{\d+(?::\w+)?\})
  | (?P<number>0[xX][0-9a-fA-F]+U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[bB][01]+U?
      |(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
  | (?P<string>"[^"\n]*")
  | (?P<register>%[A-Za-z_\x01\x02][\w\x01\x02]*(?:\.[xyzw])?|%\d[\w\x01\x02]*)
  | (?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
  | (?P<word>[A-Za-z_\x01\x02][\w\x01\x02]*(?:(?:\.|::)[\w\x01\x02]+)*)
  | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[{}\[\](),;:@!|+\-<>=*/%&^~?])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


UNIQUE = "${:uid}"
"""A number that LLVM gives each copy of a block."""


class Token(NamedTuple):
    """kind: a group's name above; ``operand`` tokens have the number as their text."""

    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    """All tokens. Raises InlineAssemblyError for a character that PTX has no use for."""
    for mark in (_DOLLAR, _UNIQUE):
        if mark in text:
            raise InlineAssemblyError(f"the assembly has the character {mark!r}, which is no PTX")
    text = text.replace("$$", _DOLLAR).replace("${:uid}", _UNIQUE)
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise InlineAssemblyError(f"line {line} of the assembly, {_as_written(text[at : at + 12])!r} is no PTX")
        kind = str(match.lastgroup)
        if kind == "operand":
            found.append(Token(kind, re.sub(r"\D", "", match[0].partition(":")[0]), line))
        elif kind != "space":
            found.append(Token(kind, _as_written(match[0]), line))
        line += match[0].count("\n")
        at = match.end()
    return found


def _as_written(text: str) -> str:
    return text.replace(_DOLLAR, "$").replace(_UNIQUE, UNIQUE)
