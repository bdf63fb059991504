"""Text of a block of assembly -> tokens with their lines. What LLVM does to the text comes first: ``$$`` and ``${:uid}``."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import InlineAssemblyError

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<operand>\$\d+|\$\{\d+(?::\w+)?\})
  | (?P<number>0[xX][0-9a-fA-F]+U?|0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[bB][01]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
  | (?P<register>%[A-Za-z_$][\w$]*(?:\.[xyzw])?|%\d[\w$]*)
  | (?P<directive>\.[A-Za-z_]\w*)
  | (?P<word>[A-Za-z_][\w$]*(?:(?:\.|::)[\w$]+)*)
  | (?P<mark>[{}\[\](),;:@!|+\-<>=])
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """kind: a group's name above; ``operand`` tokens have the number as their text."""

    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    """All tokens. Raises InlineAssemblyError for a character that PTX has no use for."""
    text = text.replace("${:uid}", "_uid")
    found: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        if text.startswith("$$", at):
            # An operand is one dollar; two are a dollar of PTX's own, which names may have.
            raise InlineAssemblyError(f"line {line} of the assembly: a name with a dollar ($$) is not taken; use another name")
        match = _TOKEN.match(text, at)
        if match is None:
            raise InlineAssemblyError(f"line {line} of the assembly: {text[at : at + 12]!r} is no PTX")
        kind = str(match.lastgroup)
        if kind == "operand":
            found.append(Token(kind, re.sub(r"\D", "", match[0].partition(":")[0]), line))
        elif kind != "space":
            found.append(Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return found
