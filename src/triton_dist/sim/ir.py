"""Text of a module in MLIR's generic form -> a tree of ``Operation``.

The generic form writes every op the same way::

    %results = "dialect.name"(%operands)[^successors] <{properties}> ({regions}) {attributes} : (types) -> types loc(...)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .types import Type, parse_type


@dataclass(frozen=True)
class Location:
    """A place in a source file; line 0 means unknown."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "unknown location"


UNKNOWN = Location("", 0)


@dataclass(slots=True)
class Operation:
    """One op. ``attributes`` holds properties and attributes together, decoded where they are numbers, flags, texts or arrays."""

    name: str
    results: list[str]
    operands: list[str]
    attributes: dict[str, Any]
    regions: list[list[Block]]
    successors: list[str]
    operand_types: list[Type]
    result_types: list[Type]
    location: Location


@dataclass(slots=True)
class Block:
    """A label, typed arguments, and ops."""

    label: str
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


class IRSyntaxError(ValueError):
    """The text is not what the parser expects: a new MLIR version may print the generic form in another way."""


_OPENING = ("(", "[", "{", "<")
_CLOSING = (")", "]", "}", ">")
_WHITE = re.compile(r"(?:\s|//[^\n]*)*")
_RESULTS = re.compile(r"(%[\w.\-$]+)(?::(\d+))? = ")
_NAME = re.compile(r'"([\w.]+)"')
_LABEL = re.compile(r"(\^\w+)")
_TYPE_HEAD = re.compile(r"!?[A-Za-z_][\w.]*<?")
_INTEGER = re.compile(r"(-?\d+) : i\d+")

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|->|[()\[\]{}<>,]')
"""Quoted texts, arrows, brackets and commas: all that matters for nesting."""


def _nesting(text: str, begin: int = 0) -> Iterator[tuple[int, str, int]]:
    """(index, bracket or comma, depth behind it) for each one outside of quotes, from ``begin`` on."""
    depth = 0
    for match in _STRUCTURE.finditer(text, begin):
        token = match[0]
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif token != ",":
            continue
        yield match.start(), token, depth


def split_top_level(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes."""
    parts: list[str] = []
    begin = 0
    for index, token, depth in _nesting(text):
        if token == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _unescape(text: str) -> str:
    """Decode MLIR's string escapes: a backslash and two hex digits, or a backslash and the character itself."""
    simple = {"n": "\n", "t": "\t"}

    def decode(match: re.Match) -> str:
        body = match[1]
        return chr(int(body, 16)) if len(body) == 2 else simple.get(body, body)

    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", decode, text)


def _attribute(text: str) -> Any:
    match = _INTEGER.fullmatch(text)
    if match:
        return int(match[1])
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("array<"):
        return [int(item) for item in text[6:-1].partition(":")[2].split(",") if item.strip()]
    if text.startswith('"') and text.endswith('"'):
        return _unescape(text[1:-1])
    return text


def _attributes(text: str) -> dict[str, Any]:
    decoded: dict[str, Any] = {}
    for item in split_top_level(text):
        key, equals, value = item.partition(" = ")
        decoded[key.strip()] = _attribute(value.strip()) if equals else True
    return decoded


class _Locations:
    """Resolves location aliases to the source line that a user would name."""

    def __init__(self, aliases: dict[str, str], hidden: tuple[str, ...]) -> None:
        self._aliases = aliases
        self._hidden = hidden
        self._known: dict[str, Location] = {}

    def resolve(self, text: str) -> Location:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._resolve(text)
        return known

    def _resolve(self, text: str) -> Location:
        if text.startswith("#"):
            alias = self._aliases.get(text)
            return self.resolve(alias) if alias is not None else UNKNOWN
        if text.startswith("callsite("):
            inner, outer = self.split_callsite(text[9:-1])
            callee = self.resolve(inner)
            # A function of Triton's or of this package is not where the user's mistake is: name the line that calls it.
            return self.resolve(outer) if not callee.line or any(part in callee.file for part in self._hidden) else callee
        if text.startswith('"'):
            end = text.index('"', 1)
            rest = text[end + 1 :]
            if rest.startswith("("):
                return self.resolve(rest[1:-1])
            numbers = re.match(r":(\d+)", rest)
            # An op without a location gets its place in the temporary file that the module was read from.
            return Location(text[1:end], int(numbers[1])) if numbers and not text[1:end].endswith(".ttir") else UNKNOWN
        if text.startswith("fused"):
            for item in split_top_level(text[text.index("[") + 1 : text.rindex("]")]):
                place = self.resolve(item)
                if place.line:
                    return place
        return UNKNOWN

    @staticmethod
    def split_callsite(text: str) -> tuple[str, str]:
        """The location of the callee and that of its caller."""
        depth = 0
        for index, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if depth == 0 and text.startswith(" at ", index):
                return text[:index], text[index + 4 :]
        return text, "unknown"


class _Parser:
    def __init__(self, text: str, hidden: tuple[str, ...]) -> None:
        aliases: dict[str, str] = {}
        kept: list[str] = []
        for line in text.split("\n"):
            if line.startswith("#"):
                key, _, value = line.partition(" = ")
                aliases[key] = value[4:-1] if value.startswith("loc(") else value
            else:
                kept.append(line)
        self.aliases = aliases
        self.locations: Any = _Locations(aliases, hidden)
        self.text = "\n".join(kept)
        self.at = 0

    def fail(self, expected: str) -> IRSyntaxError:
        return IRSyntaxError(f"expected {expected} at {self.text[self.at : self.at + 80]!r}")

    def skip_white(self) -> None:
        self.at = _WHITE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def take(self, token: str) -> bool:
        self.skip_white()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(repr(token))

    def bracketed(self) -> str:
        """The text inside the bracket pair at the cursor, which moves behind it."""
        self.skip_white()
        begin = self.at
        for index, _, depth in _nesting(self.text, begin):
            if depth == 0:
                self.at = index + 1
                return self.text[begin + 1 : index]
        raise self.fail("a closing bracket")

    def type(self) -> Type:
        self.skip_white()
        match = _TYPE_HEAD.match(self.text, self.at)
        if not match:
            raise self.fail("a type")
        begin = self.at
        self.at = match.end()
        if self.text[self.at - 1] == "<":
            self.at -= 1
            self.bracketed()
        return parse_type(self.text[begin : self.at])

    def location(self) -> Location:
        return self.locations.resolve(self.bracketed()) if self.take("loc") else UNKNOWN

    def operation(self) -> Operation:
        self.skip_white()
        results: list[str] = []
        match = _RESULTS.match(self.text, self.at)
        if match:
            self.at = match.end()
            results = [match[1]] if not match[2] else [f"{match[1]}#{index}" for index in range(int(match[2]))]
        match = _NAME.match(self.text, self.at)
        if not match:
            raise self.fail("an op")
        name = match[1]
        self.at = match.end()
        operands = split_top_level(self.bracketed())
        successors = split_top_level(self.bracketed()) if self.text[self.at] == "[" else []
        attributes: dict[str, Any] = {}
        if self.take("<{"):
            self.at -= 1
            attributes.update(_attributes(self.bracketed()))
            self.need(">")
        regions: list[list[Block]] = []
        if self.take("("):
            regions.append(self.region())
            while self.take(","):
                regions.append(self.region())
            self.need(")")
        if self.take("{"):
            self.at -= 1
            attributes.update(_attributes(self.bracketed()))
        self.need(":")
        operand_types = [parse_type(item) for item in split_top_level(self.bracketed())]
        self.need("->")
        self.skip_white()
        several = self.text[self.at] == "("
        result_types = [parse_type(item) for item in split_top_level(self.bracketed())] if several else [self.type()]
        for key, value in attributes.items():
            if isinstance(value, str) and value.startswith("#") and value in self.aliases:
                attributes[key] = self.aliases[value]
        return Operation(name, results, operands, attributes, regions, successors, operand_types, result_types, self.location())

    def region(self) -> list[Block]:
        self.need("{")
        blocks = [Block("^entry")]
        while not self.take("}"):
            match = _LABEL.match(self.text, self.at)
            if not match:
                blocks[-1].operations.append(self.operation())
                continue
            self.at = match.end()
            block = Block(match[1])
            if self.text[self.at] == "(":
                for item in split_top_level(self.bracketed()):
                    value, _, rest = item.partition(": ")
                    block.arguments.append((value.strip(), parse_type(rest.partition(" loc(")[0].strip())))
            self.need(":")
            if blocks[-1].label == "^entry" and not blocks[-1].operations:
                blocks.pop()
            blocks.append(block)
        return blocks


def parse_module(text: str, hidden: tuple[str, ...] = (), locations: Callable[[dict[str, str]], Any] | None = None) -> Operation:
    """Parse a whole module.

    hidden: parts of file names whose lines are never what a user wants to see; the caller's line is named instead.
    locations: given the location aliases, makes what resolves locations in another way: an object with ``resolve(text) -> Location``.
    Raises IRSyntaxError.
    """
    parser = _Parser(text, hidden)
    if locations is not None:
        parser.locations = locations(parser.aliases)
    try:
        module = parser.operation()
    except IndexError:
        raise IRSyntaxError("the text ends in the middle of an op") from None
    _make_names_unique(module, {}, {})
    return module


def _make_names_unique(operation: Operation, names: dict[str, str], times: dict[str, int]) -> None:
    """Give every value inside ``operation`` a name of its own.

    MLIR prints the same name for unrelated values of regions that do not enclose each other, such as a variable ``p`` of two loops.
    names: what the names that can be seen here are called now. times: how often each name was defined so far.
    """
    for region in operation.regions:
        visible = dict(names)

        def rename(name: str, visible: dict[str, str] = visible) -> str:
            number = times[name] = times.get(name, 0) + 1
            visible[name] = name if number == 1 else f"{name}'{number}"
            return visible[name]

        # All definitions of a region first: where it has several blocks, a value may be used in the text before it is defined.
        for block in region:
            block.arguments = [(rename(name), kind) for name, kind in block.arguments]
            for inner in block.operations:
                inner.results = [rename(name) for name in inner.results]
        for block in region:
            for inner in block.operations:
                inner.operands = [visible.get(name, name) for name in inner.operands]
                if inner.regions:
                    _make_names_unique(inner, visible, times)
