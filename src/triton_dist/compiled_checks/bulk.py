"""TD202 and TD208: TMA stores before a release, and TMA loads after a wait. Both are read off the PTX.

A TMA store is complete, and visible to who acquires a later release, behind ``cp.async.bulk.wait_group 0``. ``wait_group.read`` says only
that the shared memory may be used again. Waiting for completion needs no further proxy fence for later generic accesses. A TMA load goes
through the async proxy: what was acquired by a generic load is seen by it only behind a ``fence.proxy.async`` of global memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..lints import Finding
from .guarded import Source
from .operations import shown
from .order import Pair
from .places import PTX_FRAMES, Frame, Key, user_frame
from .ptx import Instruction, Ptx, reached_before

_STORE = re.compile(r"\bcp(?:\.reduce)?\.async\.bulk\.\S*global\.shared")
_LOAD = re.compile(r"\bcp\.async\.bulk\.\S*shared::\w+\.global")
_COMPLETE = re.compile(r"\bcp\.async\.bulk\.wait_group\s+0\b")
_RELEASE = re.compile(r"\b(?:atom|red|st)\.(?=\S*\b(?:release|acq_rel)\b)(?=\S*\b(?:gpu|sys)\b)(?!\S*shared)")
_PROXY_FENCE = re.compile(r"\bfence\.proxy\.async(?:\.global)?(?![.\w:])")


def check_releases(ptx: Ptx, arch: int) -> Iterator[Finding]:
    """Releases that some way leads to from a TMA store, with no wait for its completion between."""
    waits = {one.key for one in ptx.instructions() if one.marks_wait}
    stores: dict[Key, Instruction] = {}
    for one in ptx.instructions():
        if _STORE.search(one.text):
            stores.setdefault(one.key, one)
    for key, store in stores.items():
        # What a wait writes to its wait board releases nothing of the kernel's.
        releases = reached_before(
            ptx,
            lambda one: bool(_RELEASE.search(one.text)) and one.key not in waits,
            lambda one: bool(_COMPLETE.search(one.text)),
            start=lambda one, key=key: one.key == key and bool(_STORE.search(one.text)),  # type: ignore[misc]
        )
        for release in {one.key: one for one in releases}.values():
            at, of = user_frame(release.frames) or Frame("", 0, 0), user_frame(store.frames) or Frame("", 0, 0)
            yield Finding(
                "TD202",
                f"for sm_{arch} this releases a word ({_opcode(release)}) "
                f"while the TMA store at {of.file}:{of.line} may still be under way: between them is no cp.async.bulk.wait_group 0, and "
                'wait_group.read waits for the read of shared memory only; signal by dl.notify or dl.st(..., semantic="release"), which '
                'wait for it, or use sem="relaxed" if the word announces no data',
                at.file or None,
                at.line or None,
            )


def _opcode(instruction: Instruction) -> str:
    return next(word for word in instruction.text.split() if not word.startswith("@"))


def check_bulk_loads(source: Source, pairs: list[Pair], ptx: Ptx, arch: int) -> Iterator[Finding]:
    """TMA loads to which some way leads from a wait that guards them, with no proxy fence between."""
    for pair in pairs:
        short, load = pair.wait[:PTX_FRAMES], pair.load
        found = reached_before(
            ptx,
            lambda one, load=load: bool(_LOAD.search(one.text)) and one.key == load[:PTX_FRAMES],  # type: ignore[misc]
            lambda one: bool(_PROXY_FENCE.search(one.text)),
            start=lambda one, short=short: one.key == short,  # type: ignore[misc]
        )
        # A wait of this package has its fence behind the poll, inside of the same assembly.
        if found and not any(one.key == short and _PROXY_FENCE.search(one.text) for one in ptx.instructions()):
            place, begin = user_frame(found[0].frames) or Frame("", 0, 0), shown(source.waits[pair.wait].chain)
            yield Finding(
                "TD208",
                f"for sm_{arch} this TMA load comes after the wait at {begin.file}:{begin.line} with no fence.proxy.async between: it "
                "reads through another proxy than the one that acquired the word, and may get what was there before; wait with dl.wait, "
                "which has the fence",
                place.file or None,
                place.line or None,
            )
