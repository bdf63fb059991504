"""Special registers: what each holds, whether threads differ in it, and whether it is a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

WARP = 32

RECORD_CLOCK = "fence.acq_rel.cta; mov.b64 $0, %globaltimer; fence.acq_rel.cta;"
"""The clock as the profiler reads it, which takes no time here, unlike a read that a loop may end by. The fences keep what the program does
before and after on its side; the simulator has no need of them, and they must not hide a race."""


@dataclass(frozen=True)
class SpecialRegister:
    """width: bits. read: its value in a ``Frame``, one for all lanes or one for each. per_thread: whether threads differ. is_clock: whether
    it moves.
    """

    width: int
    read: Callable[[Any], Any]
    per_thread: bool = False
    is_clock: bool = False


def _mask(operation: Callable[[np.ndarray], np.ndarray]) -> SpecialRegister:
    return SpecialRegister(32, lambda frame: operation(np.uint64(1) << (frame.threads % WARP).astype(np.uint64)), per_thread=True)


def _sizes(name: str, read: Callable[[Any, int], int]) -> dict[str, SpecialRegister]:
    found = {f"%{name}.{letter}": SpecialRegister(32, partial(_of_axis, read, axis)) for axis, letter in enumerate("xyz")}
    return {**found, f"%{name}.w": SpecialRegister(32, _zero)}


def _zero(frame: Any) -> int:
    return 0


def _of_axis(read: Callable[[Any, int], int], axis: int, frame: Any) -> int:
    return read(frame, axis)


_FULL = np.uint64(0xFFFFFFFF)

SPECIAL: dict[str, SpecialRegister] = {
    **_sizes("tid", lambda frame, axis: 0),
    "%tid.x": SpecialRegister(32, lambda frame: frame.threads, per_thread=True),
    **_sizes("ntid", lambda frame, axis: 1 if axis else frame.context.threads),
    "%laneid": SpecialRegister(32, lambda frame: frame.threads % WARP, per_thread=True),
    "%warpid": SpecialRegister(32, lambda frame: frame.threads // WARP, per_thread=True),
    "%nwarpid": SpecialRegister(32, lambda frame: 64),
    **_sizes("ctaid", lambda frame, axis: frame.context.pid[axis]),
    **_sizes("nctaid", lambda frame, axis: frame.context.num_programs[axis]),
    "%smid": SpecialRegister(32, lambda frame: frame.context.sm),
    "%nsmid": SpecialRegister(32, lambda frame: frame.context.machine.gpu.sm_count),
    "%gridid": SpecialRegister(64, lambda frame: frame.context.launch.number + 1),
    **_sizes("clusterid", lambda frame, axis: frame.context.pid[axis]),
    **_sizes("nclusterid", lambda frame, axis: frame.context.num_programs[axis]),
    **_sizes("cluster_ctaid", lambda frame, axis: 0),
    **_sizes("cluster_nctaid", lambda frame, axis: 1),
    "%cluster_ctarank": SpecialRegister(32, lambda frame: 0),
    "%cluster_nctarank": SpecialRegister(32, lambda frame: 1),
    "%lanemask_eq": _mask(lambda bit: bit),
    "%lanemask_lt": _mask(lambda bit: bit - np.uint64(1)),
    "%lanemask_le": _mask(lambda bit: bit * np.uint64(2) - np.uint64(1)),
    "%lanemask_gt": _mask(lambda bit: _FULL - (bit * np.uint64(2) - np.uint64(1))),
    "%lanemask_ge": _mask(lambda bit: _FULL - (bit - np.uint64(1))),
    "%clock": SpecialRegister(32, lambda frame: frame.context.read_clock() & 0xFFFFFFFF, is_clock=True),
    "%clock_hi": SpecialRegister(32, lambda frame: frame.context.read_clock() >> 32, is_clock=True),
    "%clock64": SpecialRegister(64, lambda frame: frame.context.read_clock(), is_clock=True),
    "%globaltimer": SpecialRegister(64, lambda frame: frame.context.read_clock(), is_clock=True),
    "%globaltimer_lo": SpecialRegister(32, lambda frame: frame.context.read_clock() & 0xFFFFFFFF, is_clock=True),
    "%globaltimer_hi": SpecialRegister(32, lambda frame: frame.context.read_clock() >> 32, is_clock=True),
}
"""All that the subset has. The clock counts simulated nanoseconds."""

VECTORS = frozenset(name.partition(".")[0] for name in SPECIAL if name.endswith(".w"))
"""Those of which the four parts may be read at once, by ``mov.v4``."""
