"""Streams that other libraries made, as this package's: what scripts written for torch, cuda-bindings or NVSHMEM pass."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgumentError
from .streams import Stream
from .world import World, require_world


def stream_handle(stream: Any, what: str) -> int:
    """The driver's handle of a stream: of torch's, cuda-bindings' or cuda.core's, an integer, or anything with ``__cuda_stream__``."""
    for name in ("cuda_stream", "handle"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
            break
    else:
        if hasattr(stream, "__cuda_stream__"):
            stream = stream.__cuda_stream__()[1]
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{what}: {stream!r} is not a CUDA stream or the handle of one") from None


def as_stream(stream: Any, what: str) -> Stream | None:
    """``stream`` as a ``triton_dist.Stream`` of this rank; None, the current stream, stays None. Raises InvalidArgumentError."""
    if stream is None or isinstance(stream, Stream):
        return stream
    world: World = require_world(what)
    machine = getattr(world, "machine", None)
    if machine is None:
        torch_stream = stream if isinstance(stream, torch.cuda.Stream) else torch.cuda.ExternalStream(stream_handle(stream, what))
        return Stream(_world=world, _handle=torch_stream)
    number = stream_handle(stream, what)
    if not 0 <= number < len(machine.streams_of(world.rank)):
        raise InvalidArgumentError(f"{what}: rank {world.rank} has no stream with the handle {number:#x}")
    return Stream(_world=world, _handle=number)
