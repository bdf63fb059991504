"""Where the parts of a layer are: the group of ranks that it is split over, this rank's part of a full tensor, and memory between calls."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from ..errors import InvalidArgumentError
from ..ops.team import GrowingBuffer, Team, find_team, without_mesh, workspace
from ..runtime.world import require_world

_MOST_TENSORS = 1024
"""Tensors of one use that are kept; with more, all are made anew."""


class Placement:
    """The group of a layer. group: what operators take: None, a Team or a process group. Copies of a layer share it."""

    def __init__(self, what: str, group: object) -> None:
        """what: the layer. group: what ``find_team`` takes. Raises InvalidArgumentError, NotInTeamError, NotInitializedError."""
        world = require_world(what)
        self.group = without_mesh(group, what)
        self.team: Team = find_team(self.group, what)
        if isinstance(self.group, dist.ProcessGroup) and dist.get_rank() != world.rank:
            raise InvalidArgumentError(
                f"{what}: this process is rank {dist.get_rank()} of torch.distributed and rank {world.rank} of triton_dist, so a process "
                "group would name other ranks; call init_process_group without rank=, or pass triton_dist.make_team(...)"
            )
        self.device = world.device

    def __deepcopy__(self, memo: dict) -> Placement:
        return self

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.team.size

    @property
    def index(self) -> int:
        """This rank's place among them."""
        return self.team.index

    def share(self, what: str, name: str, count: int) -> int:
        """Each rank's part of ``count``. Raises InvalidArgumentError where they can't have the same."""
        if not isinstance(count, int) or count < 1:
            raise InvalidArgumentError(f"{what}: {name}={count!r} must be a positive integer")
        if count % self.size:
            raise InvalidArgumentError(
                f"{what}: {name}={count} can't be split evenly over the {self.size} ranks of the group {list(self.team.ranks)}; use a "
                f"multiple of {self.size}, or a group whose size divides {count}"
            )
        return count // self.size

    def part(self, full: torch.Tensor, dimension: int) -> torch.Tensor:
        """This rank's part of a full tensor, a view."""
        return full.chunk(self.size, dimension)[self.index]

    def scratch(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Uninitialised memory that all layers of the group share on the current stream, for what lives during one call.

        It has the same address in every call, so that operators replay their calls, and a CUDA graph may keep it. name: of the use:
        what is alive at the same time has different names. Raises CaptureError for the first call of a size in a capture.
        """
        space: _Scratch = workspace(f"layers: {name}", self.team.ranks, lambda: _Scratch(name, self.device))
        return space.tensor(shape, dtype)


class _Scratch:
    """Memory of one use on one stream, and the tensors that were made of it."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._buffer = GrowingBuffer(f"layers: {name}", lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, device=device))
        self._tensors: dict[tuple, torch.Tensor] = {}

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """One of this shape, the same at each call. Raises CaptureError where the memory would have to grow in a capture."""
        found = self._tensors.get((shape, dtype))
        if found is None:
            nbytes = math.prod(shape) * dtype.itemsize
            if len(self._tensors) >= _MOST_TENSORS:
                self._tensors.clear()
            with torch.inference_mode(False):  # a tensor of that mode could not be written to outside of it
                found = self._tensors[shape, dtype] = self._buffer.at_least(nbytes)[:nbytes].view(dtype).view(shape)
        return found


def check_full_state(what: str, state: object, shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """A full state dict of exactly these names and shapes. Raises InvalidArgumentError."""
    if not isinstance(state, dict):
        raise InvalidArgumentError(f"{what}: the full state has to be a dict of tensors by name, not {type(state).__name__}")
    missing, unknown = sorted(shapes.keys() - state.keys()), sorted(map(str, state.keys() - shapes.keys()))
    if missing or unknown:
        raise InvalidArgumentError(f"{what}: the full state lacks {missing} and has {unknown} besides; it takes {sorted(shapes)}")
    for name, shape in shapes.items():
        value = state[name]
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
            seen = tuple(value.shape) if isinstance(value, torch.Tensor) else repr(value)
            raise InvalidArgumentError(f"{what}: {name} of the full state is {seen}; the weights of all ranks together are {shape}")
    return state
