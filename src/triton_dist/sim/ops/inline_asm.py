"""Inline assembly that Triton's own library emits: special registers, hints of dependent launch, and conversions of fp8e4b15."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

_REGISTERS = {
    "%globaltimer": "C.read_clock()",
    "%smid": "C.sm",
    "%clock": "C.read_clock() & 0x7FFFFFFF",
    "%clock64": "C.read_clock()",
    "%ctaid.x": "C.pid[0]",
    "%ctaid.y": "C.pid[1]",
    "%ctaid.z": "C.pid[2]",
    "%nctaid.x": "C.num_programs[0]",
    "%nctaid.y": "C.num_programs[1]",
    "%nctaid.z": "C.num_programs[2]",
    "%ntid.x": "C.threads",
}

RECORD_CLOCK = "fence.acq_rel.cta; mov.b64 $0, %globaltimer; fence.acq_rel.cta;"
"""The clock as the profiler reads it, which takes no time here, unlike a read that a loop may end by. The fences keep what the program does
before and after on its side; the simulator has no need of them, and they must not hide a race."""

_MOVE = re.compile(r"mov\.[usb](?:32|64)\s+\$0,\s*(%[\w.]+);")


def find_asm(text: str) -> str | None:
    """A Python expression for one block of assembly; an empty one for a hint without effect, None where there is no meaning for it."""
    text = text.strip()
    if text == RECORD_CLOCK:
        return "C.look_at_clock()"
    match = _MOVE.fullmatch(text)
    if match:
        return _REGISTERS.get(match[1])
    if re.match(r"griddepcontrol\.(wait|launch_dependents);", text):
        # A dependent launch may only start earlier than stream order lets it; here it starts in stream order.
        return "0"
    return None


def _fp8e4b15_to_float16(code):
    """fp8e4b15 has fp16's exponent without its top bit and three bits of mantissa; there is no NaN and no infinity."""
    bits = np.asarray(code).view(np.uint8).astype(np.uint16)
    return ((bits & 0x7F) << 7 | (bits & 0x80) << 8).view(np.float16)


def _float16_to_fp8e4b15(x):
    """To the nearest, ties away from zero; what is larger in magnitude than 1.75, and NaN, becomes 1.75 with the sign of ``x``."""
    bits = np.asarray(x).view(np.uint16)
    magnitude = np.minimum(bits & 0x7FFF, np.uint16(0x3F00))
    return ((bits & 0x8000 | magnitude * 2 + 0x80) >> 8).astype(np.uint8).view(np.int8)


_FUNCTIONS: dict[str, Callable] = {
    "prmt.b32 a0, 0, $2, 0x5746;": _fp8e4b15_to_float16,
    "mov.b16 max_val_f16, 0x3F00;": _float16_to_fp8e4b15,
}
"""Twins of blocks that Triton's fp8e4b15 conversions emit, by an instruction that no other block of Triton's has."""


def find_function(text: str) -> Callable | None:
    """A numpy function of the operands that does what one block of assembly does, or None."""
    for line in text.splitlines():
        function = _FUNCTIONS.get(" ".join(line.split()))
        if function is not None:
            return function
    return None
