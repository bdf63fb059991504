"""Checks in compiled code what the front end can't see: where the waits and signals of a warp-specialised loop ended up.

With ``warp_specialize=True`` Triton deals the operations of a loop out to partitions, each run by its own warps.

- It copies a wait to every partition that uses its token, and to no other. So in such a loop the token must be consumed by
  what the loads are addressed with: a pointer, or the coordinates given to a descriptor. A wait whose token is unused orders
  only the default partition, and Triton says nothing.
- It copies a signal by what its pointer is computed from. ``notify`` writes only in the default partition, which stores the
  tile; a signal of which the default partition has no copy is never given. That happens if the pointer was computed for a
  wait whose token only the loads consume, in the same loop: compute it from another base, or consume the token by the row.
"""

from __future__ import annotations

import re

IN_PARTITIONS = (
    "simt_exec_region in a loop with warp_specialize=True: Triton would run it in every partition of warps; "
    "put it before or after the loop, or leave warp_specialize out"
)
"""Why a region is refused there."""

_POLL = re.compile(r"ld\.acquire\.\w+\.global\b.*\bbra POLL")
_LOAD = re.compile(
    r"ttng\.async_tma_copy_global_to_local|ttng\.async_tma_gather|ttg\.async_copy_global_to_local|\btt\.load\b|\btt\.descriptor_load\b"
)
_SIGNAL = re.compile(r"\btt\.atomic_rmw \w+, release, ")
_ELEMENT = re.compile(r"elementwise_inline_asm .*\b(?:ld|st)\.shared\.b\d+ ")
_HEADER = re.compile(r"^(\s*)(default|partition\d+)\b.*\{\s*$")


def partitions_of(ttgir: str) -> dict[str, list[str]]:
    """The lines of each partition ("default", "partition0", ...) of the first warp-specialised region; empty if there is none."""
    partitions: dict[str, list[str]] = {}
    current, indentation = "", ""
    for line in ttgir.splitlines():
        header = _HEADER.match(line)
        if header and not current:
            indentation, current = header.group(1), header.group(2)
            partitions[current] = []
        elif current and line.startswith(indentation + "}"):
            current = ""
        elif current:
            partitions[current].append(line)
    return partitions


def partitions_without_wait(ttgir: str) -> list[str]:
    """Partitions that load from global memory but hold no wait, of a kernel whose warp-specialised loop has one.

    ``ttgir`` is ``asm["ttgir"]`` of a compiled kernel. An empty list means that every loading partition is ordered, or that
    the kernel has no wait in a warp-specialised loop. A partition that loads nothing the wait announces may be listed too.
    """
    partitions = partitions_of(ttgir)
    waiting = _partitions_with(partitions, _POLL)
    return [name for name in _partitions_with(partitions, _LOAD) if name not in waiting] if waiting else []


def signals_never_given(ttgir: str) -> list[str]:
    """Partitions that hold a release signal of which the default partition has no copy; empty if all is well."""
    signalling = _partitions_with(partitions_of(ttgir), _SIGNAL)
    return [] if "default" in signalling else signalling


def partitions_with_region(ttgir: str) -> list[str]:
    """Partitions that touch the tiles of a simt region, of which several would use one memory at once; empty if all is well."""
    return _partitions_with(partitions_of(ttgir), _ELEMENT)


def _partitions_with(partitions: dict[str, list[str]], pattern: re.Pattern[str]) -> list[str]:
    return [name for name, lines in partitions.items() if any(pattern.search(line) for line in lines)]
