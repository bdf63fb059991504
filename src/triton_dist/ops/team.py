"""What operators need of a team (``runtime.team``), and the memory that they keep between calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from typing import Any

import torch

from ..errors import CaptureError, HeapFullError
from ..runtime.symmetric import symm_empty, symm_peer
from ..runtime.team import Team, find_team, without_mesh
from ..runtime.world import require_world

__all__ = [
    "GrowingBuffer", "Team", "find_team", "in_capture", "peer_addresses", "refuse_in_capture", "without_mesh", "workspace",
    "world_ranks_tensor",
]  # fmt: skip


def workspace(what: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The memory of an operator for this rank, stream and ``key``, made by ``make`` at the first call and kept as long as the world.

    Calls of one operator on one stream follow each other, so they can share it; other streams have their own. A CUDA graph that is captured
    on a stream without such calls, as torch's own capture stream is, gets the newest of another stream.
    key: the team's ranks, or a tuple that begins with them: ``free_team`` drops the workspaces of its team.
    Raises CaptureError where it would have to be made while the stream is captured into a CUDA graph.
    """
    context = require_world(what)
    full_key = (what, context.stream, key)
    found = context.workspaces.get(full_key)
    if found is None:
        if in_capture(what):
            found = _of_another_stream(context.workspaces, what, key)
        if found is None:
            refuse_in_capture(what)
            found = context.workspaces[full_key] = make()
    return found


def _of_another_stream(workspaces: dict[Hashable, Any], what: str, key: Hashable) -> Any:
    """The newest for ``key``, which is of the same stream on all ranks, as they make them together; None if there is none."""
    for full_key, made in reversed(workspaces.items()):
        if isinstance(full_key, tuple) and len(full_key) == 3 and (full_key[0], full_key[2]) == (what, key):
            return made
    return None


def world_ranks_tensor(team: Team, device: torch.device) -> torch.Tensor:
    """The team's world ranks, int32, for a kernel that notifies its peers."""
    return torch.tensor(team.ranks, dtype=torch.int32, device=device)


def peer_addresses(tensor: torch.Tensor, team: Team) -> torch.Tensor:
    """Addresses of a symmetric tensor on every rank of the team, int64 (size,), for a kernel that reaches all of them at once."""
    return torch.tensor([symm_peer(tensor, rank).data_ptr() for rank in team.ranks], dtype=torch.int64, device=tensor.device)


def in_capture(what: str) -> bool:
    """Whether a CUDA graph is captured on the current stream. what: who asks. Raises NotInitializedError."""
    return require_world(what).streams.capturing


def refuse_in_capture(what: str) -> None:
    """Raises CaptureError while a CUDA graph is captured on the current stream: memory can't be allocated on all ranks then."""
    if in_capture(what):
        raise CaptureError(
            f"{what}: the first call with these shapes allocates memory on all ranks, which a CUDA graph can't record; call it once before"
        )


class GrowingBuffer:
    """Bytes of an operator's workspace that grow when a call needs more; symmetric ones ask for the same on all ranks of ``group``.

    Buffers that were outgrown are kept, with the tables of their addresses: a captured CUDA graph may use both.
    what: the operator; make: allocates so many bytes, uint8.
    """

    growths = 0
    """How often any buffer has grown: a graph captured before may use another buffer than calls do now."""

    def __init__(self, what: str, make: Callable[[int], torch.Tensor]) -> None:
        self._what, self._make = what, make
        self._buffers: list[torch.Tensor] = []
        self._addresses: list[torch.Tensor | None] = []

    @classmethod
    def symmetric(cls, what: str, name: str, group: object) -> GrowingBuffer:
        """One of symmetric memory. name: what error reports call it."""
        return cls(what, lambda nbytes: symm_empty((nbytes,), torch.uint8, name=name, group=group))

    def at_least(self, nbytes: int) -> torch.Tensor:
        """uint8, at least ``nbytes`` long. Raises HeapFullError, AllocationMismatchError, and CaptureError inside a capture."""
        if not self._buffers or self._buffers[-1].numel() < nbytes:
            refuse_in_capture(self._what)
            self._buffers.append(self._grown(nbytes))
            self._addresses.append(None)
            GrowingBuffer.growths += 1
        return self._buffers[-1]

    def _grown(self, nbytes: int) -> torch.Tensor:
        """Twice what there was, if there is room for it: all buffers together take no more than four times the largest call."""
        if self._buffers and nbytes < 2 * self._buffers[-1].numel():
            with contextlib.suppress(HeapFullError, torch.OutOfMemoryError):  # on all ranks, or on this one alone
                return self._make(2 * self._buffers[-1].numel())
        return self._make(nbytes)

    def peer_addresses(self, team: Team) -> torch.Tensor:
        """Addresses of the present buffer on every rank of the team; see ``peer_addresses``."""
        addresses = self._addresses[-1]
        if addresses is None:
            addresses = self._addresses[-1] = peer_addresses(self._buffers[-1], team)
        return addresses
