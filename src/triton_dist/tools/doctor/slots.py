"""Whether the constant addresses of the symmetric heap are free in a fresh process: ``python -m triton_dist.tools.doctor.slots RANKS``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ...errors import TritonDistError
from ...runtime.address_map import CONTEXT, MAX_WORLD_SIZE, STRIDE, heap_base
from .finding import Finding, Status

GROUP = "address slots"
Reserve = Callable[[int, int], None]
"""Reserves exactly (address, size), or raises a TritonDistError."""


def try_slots(world_size: int, reserve: Reserve, free: Callable[[int, int], Any]) -> dict[str, str]:
    """Reserve the context slot and the slots of ``world_size`` ranks, all at once as ``initialize`` does, and free them again.

    Returns what went wrong, by slot.
    """
    slots = {"context": CONTEXT} | {f"rank {rank}": heap_base(rank) for rank in range(world_size)}
    problems, taken = {}, []
    try:
        for name, address in slots.items():
            try:
                reserve(address, STRIDE)
                taken.append(address)
            except TritonDistError as error:
                problems[name] = str(error)
    finally:
        for address in taken:
            free(address, STRIDE)
    return problems


def judge_slots(world_size: int, problems: dict[str, str]) -> Finding:
    """ok, or missing with the slots that can't be had."""
    last = heap_base(world_size - 1) + STRIDE
    if not problems:
        return Finding(GROUP, "reservation", Status.OK, f"context and {world_size} ranks, {CONTEXT:#x} to {last:#x}")
    name, reason = next(iter(problems.items()))
    advice = "look for a library or a setting (ulimit -v, a sanitizer, a preloaded library) that takes address space when a process starts"
    return Finding(GROUP, "reservation", Status.MISSING, f"{len(problems)} slots can't be had; {name}: {reason}", advice, problems)


def probe_slots(world_size: int, timeout: float = 60.0) -> Finding:
    """Ask a fresh process, where nothing but the driver is loaded."""
    command = [sys.executable, "-m", __spec__.name, str(min(world_size, MAX_WORLD_SIZE))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return Finding(GROUP, "reservation", Status.MISSING, f"no answer within {timeout:g} s", "look at dmesg and nvidia-smi")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Finding(GROUP, "reservation", Status.MISSING, last, "the CUDA driver can't be used from a new process")
    return judge_slots(world_size, json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    from ...runtime.cuda import driver

    driver.call("cuInit", 0)
    context = driver.call("cuDevicePrimaryCtxRetain", driver.call("cuDeviceGet", 0))
    driver.call("cuCtxSetCurrent", context)
    print(json.dumps(try_slots(int(sys.argv[1]), driver.reserve, lambda address, size: driver.call("cuMemAddressFree", address, size))))


if __name__ == "__main__":
    main()
