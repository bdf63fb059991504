"""Random states of the rank's GPU: device and host draw from one generator here, as the simulator's tensors all do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import InvalidArgumentError
from .streams import cuda_device, here
from .tensors import DeviceMode

_TorchGenerator: Any = torch._C.Generator


class Generator(_TorchGenerator):
    """``torch.Generator``: one for "cuda" is a host generator here, which says that it is on the rank's GPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls, "cpu")
        made._on_cuda = DeviceMode.named_device(device).type == "cuda"
        return made

    @property
    def device(self) -> torch.device:
        return cuda_device(here("torch.Generator.device")) if self._on_cuda else torch.device("cpu")


class DefaultGenerators(Sequence):
    """``torch.cuda.default_generators``: one for each GPU of the node, which is the rank's generator."""

    def __len__(self) -> int:
        return here("torch.cuda.default_generators").local_world_size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(torch.default_generator for _ in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise InvalidArgumentError(f"torch.cuda.default_generators[{index}]: this node has {len(self)} GPUs, one a rank")
        return torch.default_generator

    def __iter__(self) -> Any:
        return iter(self[:])


def manual_seed(seed: int) -> None:
    """``torch.cuda.manual_seed`` and ``manual_seed_all``."""
    torch.default_generator.manual_seed(int(seed) & (1 << 64) - 1)


def seed() -> None:
    """``torch.cuda.seed`` and ``seed_all``: a seed that differs from run to run."""
    torch.default_generator.seed()


def get_rng_state_all() -> list[torch.Tensor]:
    """``torch.cuda.get_rng_state_all``: a state for each GPU of the node."""
    return [torch.default_generator.get_state() for _ in range(here("torch.cuda.get_rng_state_all()").local_world_size)]


def set_rng_state_all(new_states: Sequence[torch.Tensor]) -> None:
    """``torch.cuda.set_rng_state_all``: takes the rank's own of the list."""
    rank = here("torch.cuda.set_rng_state_all()")
    if len(new_states) != rank.local_world_size:
        raise InvalidArgumentError(
            f"torch.cuda.set_rng_state_all: {len(new_states)} states, but this node has {rank.local_world_size} GPUs; give one for each"
        )
    torch.default_generator.set_state(new_states[rank.local_rank])
