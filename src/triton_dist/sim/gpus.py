"""The GPU models that the simulator can pretend to be."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..errors import InvalidArgumentError
from .cost_model import A100, B200, H100, H200, Costs, Rates


@dataclass(frozen=True)
class GPU:
    """What a kernel or its host function can learn of the pretended GPU.

    name: the key under which ``simulate(gpu=...)`` finds it.
    capability: compute capability times ten (90 is Hopper); decides which branches a kernel takes while it is compiled.
    sm_count: streaming multiprocessors; one program is resident on each, over all kernels of a rank.
    max_shared_memory: bytes of shared memory that one program may use.
    costs: rates and latencies of the simulated clock.
    """

    name: str
    capability: int
    sm_count: int
    max_shared_memory: int
    costs: Costs = H100

    @functools.cached_property
    def rates(self) -> Rates:
        """The costs of one SM as the programs use them."""
        return Rates(self.costs, self.sm_count)

    @property
    def device_id(self) -> int:
        """The index under which Triton caches kernels for this model; far from any real device's."""
        return 10_000 + self.capability


GPUS: dict[str, GPU] = {
    "a100": GPU("a100", 80, 108, 166_912, A100),
    "h100": GPU("h100", 90, 132, 232_448, H100),
    "h200": GPU("h200", 90, 132, 232_448, H200),
    "b200": GPU("b200", 100, 148, 232_448, B200),
}

DEFAULT_GPU = GPUS["h100"]


def find_gpu(gpu: str | GPU) -> GPU:
    """The model called ``gpu``, or ``gpu`` itself when it is a ``GPU`` (for another number of SMs, say)."""
    if isinstance(gpu, GPU):
        return gpu
    try:
        return GPUS[gpu]
    except (KeyError, TypeError):
        raise InvalidArgumentError(f"gpu={gpu!r} is not a known model; use one of {sorted(GPUS)} or a triton_dist.sim.gpus.GPU") from None
