"""Checks in compiled code what the front end can't see: that a wait reached the warps whose loads it is to order.

With ``warp_specialize=True`` Triton deals the operations of a loop out to partitions, each run by its own warps. It copies a
wait to every partition that uses its token, and to no other. So in such a loop the token must be consumed by what the loads
are addressed with: a pointer, or the coordinates given to a descriptor. A wait whose token is unused orders only the default
partition, and Triton says nothing.
"""

from __future__ import annotations

import re

_POLL = re.compile(r"\bld\.acquire\.\w+\.global\b.*\bbra POLL")
_LOAD = re.compile(r"ttng\.async_tma_copy_global_to_local|ttng\.async_tma_gather|ttg\.async_copy_global_to_local|\btt\.load\b|\btt\.descriptor_load\b")
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
    waiting = {name for name, lines in partitions.items() if any(_POLL.search(line) for line in lines)}
    if not waiting:
        return []
    return [name for name, lines in partitions.items() if name not in waiting and any(_LOAD.search(line) for line in lines)]
