"""The rate of the links between the GPUs, by the copy engine, in the run that uses it."""

from __future__ import annotations

import statistics

import torch

import triton_dist

from .machine import Machine


def measure_link(machine: Machine, size: int = 256 << 20, repeats: int = 9) -> dict[str, float]:
    """GB/s (1e9 bytes) at which every rank at once reads from ("pull"), and writes to ("push"), its right-hand neighbour.

    The medians of ``repeats`` copies of ``size`` bytes; each copy takes as long as on the slowest rank. Empty for a single rank. Every
    rank calls it; it needs ``size`` bytes of the symmetric heap for the time of the call.
    """
    if machine.world_size == 1:
        return {}
    shared = triton_dist.symm_empty((size,), torch.uint8, name="link")
    shared.zero_()
    local = torch.zeros(size, dtype=torch.uint8, device=machine.device)
    peer = triton_dist.symm_peer(shared, (machine.rank + 1) % machine.world_size)
    rates = {}
    for name, target, source in (("pull", local, peer), ("push", peer, local)):
        times = []
        for _ in range(repeats + 1):
            machine.align(ahead=True)
            begin = machine.mark()
            triton_dist.copy_async(target, source)
            end = machine.mark()
            machine.synchronize()
            times.append(machine.elapsed_us(begin, end))
        # The first copy of a buffer is slower.
        slowest = [max(of_ranks) for of_ranks in zip(*machine.gather(times[1:]), strict=True)]
        rates[name] = float(f"{size / statistics.median(slowest) / 1e3:.4g}")
    machine.align(ahead=False)
    machine.synchronize()
    triton_dist.symm_free(shared)
    return rates


def transfer_us(link: dict[str, float], size: float) -> float | None:
    """Microseconds in which ``size`` bytes reach a rank at the better of the measured rates; None where none was measured."""
    return size / max(link.values()) / 1e3 if link else None
