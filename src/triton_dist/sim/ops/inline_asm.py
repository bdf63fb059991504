"""Inline assembly that Triton's own library emits: reads of special registers and hints of dependent launch."""

from __future__ import annotations

import re

_REGISTERS = {
    "%globaltimer": "int(C.clock)",
    "%smid": "C.sm",
    "%clock": "int(C.clock) & 0x7FFFFFFF",
    "%clock64": "int(C.clock)",
    "%ctaid.x": "C.pid[0]",
    "%ctaid.y": "C.pid[1]",
    "%ctaid.z": "C.pid[2]",
    "%nctaid.x": "C.num_programs[0]",
    "%nctaid.y": "C.num_programs[1]",
    "%nctaid.z": "C.num_programs[2]",
    "%ntid.x": "C.threads",
}

_MOVE = re.compile(r"mov\.[usb](?:32|64)\s+\$0,\s*(%[\w.]+);")


def find_asm(text: str) -> str | None:
    """A Python expression for one block of assembly; an empty one for a hint without effect, None where there is no meaning for it."""
    text = text.strip()
    match = _MOVE.fullmatch(text)
    if match:
        return _REGISTERS.get(match[1])
    if re.match(r"griddepcontrol\.(wait|launch_dependents);", text):
        # A dependent launch may only start earlier than stream order lets it; here it starts in stream order.
        return "0"
    return None
