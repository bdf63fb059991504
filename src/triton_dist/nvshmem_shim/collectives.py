"""The collectives of ``nvshmem.core``, by this package's operators: all ranks of a team call them, in stream order of ``stream``.

The ranks of the team need direct pointers to each other (a node's have). dst, src: contiguous symmetric tensors of one dtype, or Buffers
where bytes are only moved. Nothing is returned, and the host does not wait. The first call on a stream allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import InvalidArgumentError
from ..runtime import streams
from ..runtime.foreign_streams import as_stream
from ..runtime.team import Team
from . import moves, teams
from .buffers import Buffer, contents, require_symmetric

OPERATIONS = ("sum", "min", "max")


def reduce(team: int, dst: Any, src: Any, op: str, stream: Any = None) -> None:
    """``src`` of all ranks of the team, element by element by ``op`` ("sum", "min" or "max"), into ``dst`` of every one of them.

    dst: as many elements as src; may be src. Adds as ``triton_dist.ops.all_reduce`` does. Raises InvalidArgumentError,
    NotSymmetricError.
    """
    from ..ops import all_reduce

    what = _checked_operation("nvshmem.core.reduce", op, dst, src)
    _run(what, team, dst, src, stream, lambda size: (1, 1), lambda out, x, members: all_reduce(x, op=op, out=out, group=members))


def reducescatter(team: int, dst: Any, src: Any, op: str, stream: Any = None) -> None:
    """``reduce`` of which each rank gets its part: dst has as many elements as one of the team's equal parts of src."""
    from ..ops import reduce_scatter

    what = _checked_operation("nvshmem.core.reducescatter", op, dst, src)
    _run(what, team, dst, src, stream, lambda size: (1, size), lambda out, x, members: reduce_scatter(x, op=op, out=out, group=members))


def fcollect(team: int, dst: Any, src: Any, stream: Any = None) -> None:
    """``src`` of all ranks of the team, one behind the other, in ``dst`` of every one of them, which has the room for all."""
    from ..ops import all_gather

    _run(
        "nvshmem.core.fcollect",
        team,
        dst,
        src,
        stream,
        lambda size: (size, 1),
        lambda out, x, members: all_gather(x, out=out, group=members),
    )


def alltoall(team: int, dst: Any, src: Any, stream: Any = None) -> None:
    """The n-th of the team's equal parts of ``src`` into ``dst`` of its n-th rank, behind those of the ranks before."""
    from ..ops import all_to_all

    _run(
        *("nvshmem.core.alltoall", team, dst, src, stream),
        lambda size: (size, size),
        lambda out, x, members: all_to_all(x, out=out, group=members),
    )


def broadcast(team: int, dst: Any, src: Any, root: int = 0, stream: Any = None) -> None:
    """``src`` of the team's rank at place ``root`` into ``dst`` of every rank of the team, its own, too."""
    from ..ops import broadcast as broadcast_of_ops

    what = "nvshmem.core.broadcast"
    members = teams.find(team, what)
    place = moves.index(root, "root", what)
    if not 0 <= place < members.size:
        raise InvalidArgumentError(f"{what}: root={root} must be a place in the team, 0 to {members.size - 1}")
    _run(
        *(what, team, dst, src, stream),
        lambda size: (1, 1),
        lambda out, x, members: broadcast_of_ops(x, members.ranks[place], out=out, group=members),
    )


def _checked_operation(what: str, op: str, dst: Any, src: Any) -> str:
    """``what``. Raises InvalidArgumentError for an operation that there is not, and for memory without a dtype."""
    if op not in OPERATIONS:
        raise InvalidArgumentError(f"{what}: op={op!r} must be one of {list(OPERATIONS)}")
    if isinstance(dst, Buffer) or isinstance(src, Buffer):
        raise InvalidArgumentError(f"{what}: a Buffer has no dtype to calculate in; pass tensors")
    return what


def _run(
    what: str,
    team: int,
    dst: Any,
    src: Any,
    stream: Any,
    parts: Callable[[int], tuple[int, int]],
    call: Callable[[torch.Tensor, torch.Tensor, Team], object],
) -> None:
    """Check both tensors and call the operator on them, flat, on the stream.

    parts: for the size of the team, of how many equal parts dst and src are.
    """
    members = teams.find(team, what)
    queue = as_stream(stream, what)
    target, source = contents(dst, what), contents(src, what)
    for name, tensor in (("dst", target), ("src", source)):
        if not tensor.is_contiguous():
            raise InvalidArgumentError(
                f"{what}: {name} must be contiguous, not of strides {list(tensor.stride())}; pass {name}.contiguous()"
            )
        require_symmetric(tensor, name, what)
    if isinstance(dst, Buffer) or isinstance(src, Buffer):
        target, source = (tensor.reshape(-1).view(torch.uint8) for tensor in (target, source))
    into, sent = parts(members.size)
    if target.dtype != source.dtype or source.numel() % sent or target.numel() != source.numel() // sent * into:
        raise InvalidArgumentError(
            f"{what}: dst is {target.dtype} {list(target.shape)} and src {source.dtype} {list(source.shape)}; in a team of {members.size} "
            f"dst has to be {into} and src {sent} equal part(s) of one dtype"
        )
    if source.numel():
        with streams.stream(queue):
            call(target.view(-1), source.view(-1), members)
