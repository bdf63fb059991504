"""Where in the source a wait stands that a kernel recorded by numbers: read off the kernel's PTX.

A wait's assembly carries a comment with the kernel's hash and the number of the wait in that PTX (``primitives/cuda_wait.py``). Triton's
line information before it gives the chain of calls that the compiler inlined. Kernels that this process compiled or loaded are
looked up in memory, all others in Triton's cache directory, so kernels of other processes and of CUDA graphs are found too.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath

from .wait_layout import MARKER

Key = tuple[int, int]
"""A kernel's hash and the number of the wait in it."""

_Location = tuple[int, int, int]
"""File number, line, column."""

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:\s*,\s*function_name\s+\S+\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?(.*)")
_CALLED = re.compile(r"@\[ (.+?):(\d+):\d+")
_MARKER = re.compile(re.escape(MARKER) + r" ([0-9a-f]{16}) (\d+)")
_OWN_FOLDERS = (("triton_dist", "primitives"), ("triton_dist", "language"), ("language", "extra"))


@dataclass(frozen=True)
class Frame:
    """A line of a source file; of a file whose folder is not known only the name."""

    file: str
    line: int


@dataclass(frozen=True)
class Place:
    """A kernel's name, and the lines through which it comes to the wait, the kernel's own first. No lines if it has no line information."""

    kernel: str
    frames: tuple[Frame, ...]

    def __str__(self) -> str:
        if not self.frames:
            return f"{self.kernel} (compiled without line information)"
        first, *inner = self.frames
        calls = "".join(f", in {_function_at(frame) or 'a function'} at {frame.file}:{frame.line}" for frame in inner)
        return f"{self.kernel} at {first.file}:{first.line}{calls}"


def find_places(wanted: Iterable[Key], texts: Iterable[str]) -> dict[Key, list[Place]]:
    """The places of some waits, from PTX texts that are read only until all are found.

    More than one place where the PTX does not tell copies of a wait apart (Triton 3.9, a wait in a function that is called from
    several lines of an unrolled loop).
    """
    missing = set(wanted)
    found: dict[Key, list[Place]] = {}
    texts = iter(texts)
    while missing:
        text = next(texts, None)
        if text is None:
            break
        if MARKER in text:
            for key, places in places_in(text).items():
                if key in missing:
                    missing.discard(key)
                    found[key] = places
    return found


def texts_in_process() -> Iterator[str]:
    """PTX of the kernels that this process has compiled or loaded."""
    compiler = sys.modules.get("triton.compiler.compiler")
    if compiler is None:
        return
    for kernel in [entry for entry in gc.get_objects() if type(entry) is compiler.CompiledKernel]:
        text = kernel.asm.get("ptx")
        if isinstance(text, str):
            yield text


def texts_in_cache(directory: Path) -> Iterator[str]:
    """PTX of the kernels in a cache directory of Triton's, the newest first."""
    marker = MARKER.encode()
    ages: list[tuple[float, Path]] = []
    for path in directory.glob("*/*.ptx"):
        try:
            ages.append((path.stat().st_mtime, path))
        except OSError:
            continue  # removed meanwhile
    for _, path in sorted(ages, reverse=True):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if marker in data:
            yield data.decode(errors="replace")


def places_in(ptx: str) -> dict[Key, list[Place]]:
    """All waits of one PTX text."""
    lines = ptx.splitlines()
    entry = _ENTRY.search(ptx)
    kernel = entry.group(1) if entry else "a kernel"
    files = {int(match.group(1)): match.group(2) for match in map(_FILE.match, lines) if match}
    chains = _Chains(files)
    places: dict[Key, list[Place]] = {}
    for line in lines:
        location = _LOC.match(line)
        if location:
            chains.see(location)
            continue
        marker = _MARKER.search(line)
        if marker:
            key = int(marker.group(1), 16), int(marker.group(2))
            places[key] = [Place(kernel, frames) for frames in chains.current()]
            chains.between_waits()
    return places


class _Chains:
    """The line directives so far, and the chains of calls that they spell out.

    Triton 3.6 and 3.7 write the chain into the directive's comment. 3.9 writes the line and its caller, and the caller's own
    directive once, before the first instruction from there.
    """

    def __init__(self, files: dict[int, str]) -> None:
        self._files = files
        self._callers: dict[_Location, dict[_Location | None, None]] = {}
        self._new: dict[_Location, _Location | None] = {}
        self._here: tuple[_Location, _Location | None, str] | None = None

    def see(self, directive: re.Match[str]) -> None:
        numbers = [int(number) if number else 0 for number in directive.groups()[:6]]
        here: _Location = (numbers[0], numbers[1], numbers[2])
        caller: _Location | None = (numbers[3], numbers[4], numbers[5]) if directive.group(4) else None
        self._here = here, caller, directive.group(7)
        self._callers.setdefault(here, {})[caller] = None
        self._new[here] = caller

    def between_waits(self) -> None:
        """What was said from here on belongs to the next wait."""
        self._new.clear()

    def current(self) -> list[tuple[Frame, ...]]:
        """The chains that the last directive may stand for, without this package's own lines, outermost first."""
        if self._here is None:
            return [()]
        here, caller, comment = self._here
        if "@[" in comment:
            called = [(self._path(name), int(line)) for name, line in _CALLED.findall(comment)]
            return [_own_lines_left_out([self._place(here), *called])]
        chains = [[here]] if caller is None else [[here, *rest] for rest in self._from(caller, {here})]
        return [_own_lines_left_out([self._place(location) for location in chain]) for chain in chains]

    def _from(self, location: _Location, seen: set[_Location]) -> list[list[_Location]]:
        """All chains from a location outwards; one if what was said since the last wait tells."""
        if location in self._new:
            callers: list[_Location | None] = [self._new[location]]
        else:
            callers = list(self._callers.get(location, {None: None}))
        chains: list[list[_Location]] = []
        for caller in callers:
            if caller is None or caller in seen:
                chains.append([location])
            else:
                chains += [[location, *rest] for rest in self._from(caller, seen | {location})]
        return chains

    def _place(self, location: _Location) -> tuple[str, int]:
        return self._files.get(location[0], "?"), location[1]

    def _path(self, name: str) -> str:
        """The file of that name, if there is one only."""
        paths = [path for path in self._files.values() if PurePath(path).name == name]
        return paths[0] if len(paths) == 1 else name


def _own_lines_left_out(chain: list[tuple[str, int]]) -> tuple[Frame, ...]:
    """The frames from the kernel inwards; the innermost is the primitive's own line, in this package or in a copy of it."""
    rest = [Frame(*frame) for frame in chain[1:] if PurePath(frame[0]).parts[-3:-1] not in _OWN_FOLDERS]
    return tuple(reversed(rest))


def _function_at(frame: Frame) -> str | None:
    """Name of the function that a line of a source file is in."""
    return _functions_of(frame.file).get(frame.line)


@lru_cache(maxsize=32)
def _functions_of(file: str) -> dict[int, str]:
    """For each line inside a function the innermost function's name; nothing if the file can't be read."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    names: dict[int, str] = {}
    for node in sorted(functions, key=lambda node: node.lineno):  # inner ones come later
        names.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node.name))
    return names
