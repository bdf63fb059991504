"""Where an op or an instruction comes from: the chain of source lines, the same for MLIR and for PTX."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

from ..sim.ir import Location, _Locations, split_top_level

OWN_FOLDERS = (
    f"{os.sep}triton{os.sep}language{os.sep}",
    f"{os.sep}triton_dist{os.sep}language{os.sep}",
    f"{os.sep}triton_dist{os.sep}primitives{os.sep}",
)
"""Files whose lines are not the user's: findings name the line that calls them."""


class Frame(NamedTuple):
    """A place in a file."""

    file: str
    line: int
    column: int


Key = tuple[tuple[str, int, int], ...]
"""Which op it is: file name without folder, line and column of each frame, the innermost first. Empty if it is not known."""

PTX_FRAMES = 2
"""Frames that PTX of every Triton version tells of each instruction."""


@dataclass(frozen=True)
class Chain(Location):
    """frames: from the op outwards, through the functions that were inlined."""

    frames: tuple[Frame, ...] = ()

    @property
    def key(self) -> Key:
        """See ``Key``."""
        return key_of(self.frames)


def key_of(frames: tuple[Frame, ...]) -> Key:
    """The key of a chain of frames."""
    return tuple((os.path.basename(frame.file), frame.line, frame.column) for frame in frames)


def user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame in a file that is the user's."""
    return next((frame for frame in frames if not any(folder in frame.file for folder in OWN_FOLDERS)), None)


class Chains:
    """Resolves the location aliases of a module to chains."""

    def __init__(self, aliases: dict[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, Chain] = {}

    def resolve(self, text: str) -> Chain:
        """The chain of a location as the module's text writes it."""
        known = self._known.get(text)
        if known is None:
            frames = self._frames(text)
            shown = user_frame(frames)
            known = self._known[text] = Chain(shown.file if shown else "", shown.line if shown else 0, frames)
        return known

    def _frames(self, text: str) -> tuple[Frame, ...]:
        if text.startswith("#"):
            alias = self._aliases.get(text)
            return self.resolve(alias).frames if alias is not None else ()
        if text.startswith("callsite("):
            inner, outer = _Locations.split_callsite(text[9:-1])
            return self.resolve(inner).frames + self.resolve(outer).frames
        if text.startswith('"'):
            end = text.index('"', 1)
            rest = text[end + 1 :]
            if rest.startswith("("):
                return self.resolve(rest[1:-1]).frames
            numbers = re.match(r":(\d+):(\d+)", rest)
            if numbers is None or text[1:end].endswith(TEXT_SUFFIX):
                return ()
            return (Frame(text[1:end], int(numbers[1]), int(numbers[2])),)
        if text.startswith("fused"):
            for item in split_top_level(text[text.index("[") + 1 : text.rindex("]")]):
                frames = self.resolve(item).frames
                if frames:
                    return frames
        return ()


TEXT_SUFFIX = ".checked.mlir"
"""Ends the name of the temporary file that a module is read from: ops without a location get a place in it."""
