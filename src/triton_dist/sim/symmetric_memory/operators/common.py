"""What the operators share: their symmetric arguments, and the meeting of the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....errors import SymmetricMemoryError
from ....runtime.team import Team
from ...collectives import reduce_tensors
from ...context import RankContext
from ...torch_mode import register
from ..allocations import Members
from ..groups import rendezvous, team_of
from ..meeting import Part, Run, Tensors

Operator = Callable[..., Any]
"""Takes the calling rank and the arguments of the schema by name."""

MULTIMEM_DTYPES = (torch.float32, torch.bfloat16)

REDUCTIONS = {"sum": "SUM", "avg": "AVG"}


def symmetric(rank: RankContext, tensor: torch.Tensor, group_name: str, what: str) -> Members:
    """The group's memory that an argument lies in; a rendezvous, if there was none. Raises NotSymmetricError, SymmetricMemoryError."""
    if not tensor.is_contiguous():
        raise SymmetricMemoryError(f"{what}: takes contiguous tensors, not one of shape {list(tensor.shape)} and stride {tensor.stride()}")
    return rendezvous(rank, tensor, group_name, what)


def with_multicast(rank: RankContext, tensor: torch.Tensor, group_name: str, what: str) -> Members:
    """As ``symmetric``, of memory that has a multicast address. Raises SymmetricMemoryError where it has none."""
    members = symmetric(rank, tensor, group_name, what)
    if not members.multicast:
        raise SymmetricMemoryError(
            f"{what}: {members.name!r} has no multicast address: the GPU {rank.machine.gpu.name!r} has no multicast, "
            "TORCH_SYMM_MEM_DISABLE_MULTICAST is 1, or the ranks of the group allocated differently; use the operator "
            "without multimem in its name"
        )
    return members


def only_sum(reduce_op: str, what: str) -> None:
    """Raise SymmetricMemoryError for what torch's kernels do not reduce by."""
    if reduce_op != "sum":
        raise SymmetricMemoryError(f"{what}: reduce_op={reduce_op!r}; there is only 'sum'")


def reduction(reduce_op: str, what: str) -> str:
    """The name of a reduction in ``torch.distributed``."""
    if reduce_op not in REDUCTIONS:
        raise SymmetricMemoryError(f"{what}: reduce_op={reduce_op!r} is not one of {sorted(REDUCTIONS)}")
    return REDUCTIONS[reduce_op]


def same(what: str, first: torch.Tensor, second: torch.Tensor, numel: int | None = None) -> None:
    """Raise SymmetricMemoryError unless two tensors have one dtype and the second has ``numel`` elements (default: as many)."""
    wanted = first.numel() if numel is None else numel
    if first.dtype != second.dtype or second.numel() != wanted:
        raise SymmetricMemoryError(
            f"{what}: a tensor of {second.numel()} elements of {second.dtype} is given where {wanted} of {first.dtype} are expected"
        )


def same_shape(what: str, first: torch.Tensor, second: torch.Tensor) -> None:
    """As ``same``, and of one shape."""
    same(what, first, second)
    if first.shape != second.shape:
        raise SymmetricMemoryError(f"{what}: the shapes of input and output differ, {list(first.shape)} and {list(second.shape)}")


def check_multimem(what: str, tensor: torch.Tensor) -> None:
    """Raise SymmetricMemoryError for what torch's kernels do not reduce by multicast."""
    if tensor.dtype not in MULTIMEM_DTYPES:
        raise SymmetricMemoryError(f"{what}: takes torch.float32 and torch.bfloat16, not {tensor.dtype}; use one_shot_all_reduce")
    nbytes, offset = tensor.numel() * tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    if nbytes % 4 or offset % 4:
        raise SymmetricMemoryError(
            f"{what}: {nbytes} bytes from byte {offset} on; both have to be multiples of 4, so use an even number of elements"
        )


def meet(
    rank: RankContext,
    where: Members | str,
    what: str,
    tensors: Tensors,
    run: Run,
    *,
    read: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    agree: tuple = (),
) -> None:
    """Queue this rank's part of an operator on its current stream.

    where: the memory by whose signal pad torch's kernels meet, or the name of a group. agree: what must be the same on all ranks.
    """
    team: Team = where.team if isinstance(where, Members) else team_of(rank, where)
    key: Any = where.pads[team.index] if isinstance(where, Members) else where
    for tensor in (*read, *written):
        register(rank, tensor)
    part = Part(f"symm_mem.{what}", tensors, tuple(read), tuple(written), agree)
    group_name = where.group_name if isinstance(where, Members) else where
    rank.simulation.symmetric_memory.meetings.join(rank, key, team, group_name, part, run)


def total(values: Sequence[torch.Tensor], operation: str = "SUM") -> torch.Tensor:
    """The tensors of all ranks combined, in the shape of the first."""
    return reduce_tensors(values, operation).view(values[0].shape)
