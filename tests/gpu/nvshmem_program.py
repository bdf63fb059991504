"""``libshmem_device`` over NVSHMEM itself on the GPUs of one host: each part prints one line. Run it by torchrun, one process a GPU.

The checks are those of ``shmem_program.py``, with words of 64 bits and the team of all ranks, which is what NVSHMEM knows. Names of parts
choose those. Waits of NVSHMEM are not bounded, so a process whose part takes too long ends itself.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from triton import knobs

import triton_dist

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu import shmem_program
from tests.language.extra import test_libshmem_device as bodies
from tests.worlds.world import meet
from triton_dist import errors
from triton_dist.runtime import world
from triton_dist.runtime.cuda import nvshmem

SECONDS_A_PART = 200
"""Bound of a part. Each kernel is compiled with NVSHMEM's device library, which takes seconds."""

_loaded: list[str] = []


def count_loads(module, function, name, metadata_group, hash) -> None:
    """A hook of somebody else's, which has to be called, too."""
    _loaded.append(name)


def linked() -> bool:
    """A kernel that has NVSHMEM's functions in it, and a hook that was there before."""
    bodies.each_thread(False)
    known = next(iter(bodies.each_thread_kernel.device_caches[torch.cuda.current_device()][0].values()))
    library = dict(known.metadata.extern_libs).get("libnvshmem_device", "")
    if triton_dist.rank() == 0:
        print(f"  device library: {library}", flush=True)
    return bool(library) and "nvshmemi_device_state_d" in known.asm["ptx"] and "each_thread_kernel" in _loaded


def scalars() -> bool:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    right = True
    for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.float64):
        target, out = bodies.scalars(dtype)
        before, after = (torch.arange(51) + 50 * ((rank + step) % size) for step in (-1, 1))
        before[50], after[50] = 7, after[3].clone()
        right &= torch.equal(target, before.to(dtype)) and torch.equal(out, after.to(dtype))
    return right


def signals() -> bool:
    return all(
        bodies.put_signal(nbi, level, operation, torch.int64) == [True, [7, 0] if operation == 9 else [9, 2]]
        for level in bodies.LEVELS
        for nbi, operation in ((False, 9), (True, 10))
    )


def collectives() -> bool:
    everyone = list(range(triton_dist.world_size()))
    return not any(bodies.collectives(kind, level, False, everyone) for kind in ("broadcast", "fcollect") for level in bodies.LEVELS)


def other_teams_are_refused() -> bool:
    ranks = list(range(triton_dist.world_size()))[::-1]
    if len(ranks) < 2:
        return True
    try:
        triton_dist.team_number(triton_dist.make_team(ranks))
    except errors.InvalidArgumentError as error:
        return "NVSHMEM" in str(error)
    return False


def twice() -> bool:
    """The world ends and begins again: kernels that are loaded already are told of the new one."""
    triton_dist.finalize()
    start()
    return shmem_program.each_thread()


PARTS: list[Callable[[], bool]] = [
    linked, shmem_program.pointers, shmem_program.each_thread, scalars, shmem_program.ping_pong, shmem_program.conditions,
    shmem_program.copies, signals, shmem_program.barriers, collectives, shmem_program.replayed_graph, shmem_program.stress,
    shmem_program.rates, other_teams_are_refused, twice,
]  # fmt: skip


def start() -> None:
    triton_dist.initialize(heap_size=(1 << 30) + (256 << 20), wait_timeout=shmem_program.SECONDS, shmem="nvshmem")


def main() -> int:
    # The parts are about one host: no network, and no multicast, which virtual machines may not have.
    os.environ.setdefault("NVSHMEM_REMOTE_TRANSPORT", "none")
    os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")
    knobs.runtime.kernel_load_end_hook.add(count_loads)
    faulthandler.dump_traceback_later(SECONDS_A_PART, exit=True)
    first = os.environ.get("RANK", "0") == "0"
    try:
        start()
    except errors.MissingCapabilityError as error:
        if first:
            print(f"nvshmem: not here: {error}", flush=True)
        return 0
    except errors.TritonDistError as error:
        print(f"nvshmem: not started on rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {error}", flush=True)
        return 1
    backing = getattr(world.current_world(), "_nvshmem", None)
    if first and isinstance(backing, nvshmem.NvshmemBacking):
        print(f"nvshmem: version {'.'.join(map(str, backing.version))}, distance {backing.distance:#x}", flush=True)
    chosen, failed = sys.argv[1:], False
    for part in PARTS:
        if chosen and part.__name__ not in chosen:
            continue
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback_later(SECONDS_A_PART, exit=True)
        begin = time.monotonic()
        try:
            outcome = "right" if part() else "wrong"
        except Exception as error:
            print(f"{part.__name__}: wrong on rank {os.environ.get('RANK', '0')}: {type(error).__name__}: {error}", flush=True)
            raise
        everyone: list = [None] * triton_dist.world_size()
        dist.all_gather_object(everyone, outcome)
        wrong = [rank for rank, there in enumerate(everyone) if there != "right"]
        failed |= bool(wrong)
        if first:
            print(f"{part.__name__}: {f'wrong on ranks {wrong}' if wrong else 'right'}, {time.monotonic() - begin:.0f} s", flush=True)
    meet()
    triton_dist.finalize()
    faulthandler.cancel_dump_traceback_later()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
