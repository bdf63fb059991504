"""All-gather, broadcast and all-to-all of equal parts, and the low-contention forms."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....errors import SymmetricMemoryError
from ...context import RankContext
from ..groups import handle_of, team_of
from ..meeting import Tensors
from .common import Operator, meet, reduction, same, symmetric, total, with_multicast


def _multimem_all_gather_out(rank: RankContext, input: torch.Tensor, group_name: str, out: torch.Tensor) -> torch.Tensor:
    """Every rank stores its ``input`` into the symmetric ``out`` of all."""
    name = "multimem_all_gather_out"
    members = with_multicast(rank, out, group_name, name)
    same(name, input, out, input.numel() * members.team.size)

    def run(parts: Sequence[Tensors]) -> None:
        everything = torch.cat([part["input"].reshape(-1) for part in parts])
        for part in parts:
            part["out"].view(-1).copy_(everything)

    meet(rank, members, name, {"input": input, "out": out}, run, read=[input], written=[out], agree=(input.numel(), input.dtype))
    return out


def _low_contention_all_gather(rank: RankContext, tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    name, size = "_low_contention_all_gather", team_of(rank, group_name).size
    output = tensor.new_empty((tensor.shape[0] * size, *tensor.shape[1:]) if tensor.dim() else (size,))

    def run(parts: Sequence[Tensors]) -> None:
        everything = torch.cat([part["tensor"].reshape(-1) for part in parts])
        for part in parts:
            part["output"].view(-1).copy_(everything)

    tensors = {"tensor": tensor, "output": output}
    meet(rank, group_name, name, tensors, run, read=[tensor], written=[output], agree=(tuple(tensor.shape), tensor.dtype))
    return output


def _low_contention_reduce_scatter(rank: RankContext, tensor: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    name, size = "_low_contention_reduce_scatter", team_of(rank, group_name).size
    operation = reduction(reduce_op, name)
    if not tensor.dim() or tensor.shape[0] % size:
        raise SymmetricMemoryError(f"{name}: dimension 0 of {list(tensor.shape)} is not divisible by the {size} ranks of the group")
    output = tensor.new_empty((tensor.shape[0] // size, *tensor.shape[1:]))

    def run(parts: Sequence[Tensors]) -> None:
        for part, chunk in zip(parts, total([part["tensor"] for part in parts], operation).chunk(size), strict=True):
            part["output"].copy_(chunk)

    tensors = {"tensor": tensor, "output": output}
    meet(rank, group_name, name, tensors, run, read=[tensor], written=[output], agree=(tuple(tensor.shape), tensor.dtype, reduce_op))
    return output


def _broadcast(rank: RankContext, input: torch.Tensor, root: int, group_name: str) -> torch.Tensor:
    name = "nvshmem_broadcast"
    members = symmetric(rank, input, group_name, name)
    if not 0 <= root < members.team.size:
        raise SymmetricMemoryError(f"{name}: root={root} is not in the group, whose ranks go from 0 to {members.team.size - 1}")

    def run(parts: Sequence[Tensors]) -> None:
        for part in parts:
            if part is not parts[root]:
                part["input"].copy_(parts[root]["input"])

    here = members.team.index == root
    read, written = ([input], []) if here else ([], [input])
    meet(rank, members, name, {"input": input}, run, read=read, written=written, agree=(input.numel(), input.dtype, root))
    return input


def _all_to_all(rank: RankContext, input: torch.Tensor, out: torch.Tensor, group_name: str) -> torch.Tensor:
    name = "nvshmem_all_to_all"
    members = symmetric(rank, input, group_name, name)
    symmetric(rank, out, group_name, name)
    size = members.team.size
    same(name, input, out)
    if input.numel() % size:
        raise SymmetricMemoryError(f"{name}: {input.numel()} elements are not divisible by the {size} ranks of the group")

    def run(parts: Sequence[Tensors]) -> None:
        sent = [part["input"].reshape(size, -1).clone() for part in parts]
        for place, part in enumerate(parts):
            part["out"].view(size, -1).copy_(torch.stack([chunks[place] for chunks in sent]))

    meet(rank, members, name, {"input": input, "out": out}, run, read=[input], written=[out], agree=(input.numel(), input.dtype))
    return out


def _remote_tensors(rank: RankContext, x: torch.Tensor, group_name: str) -> tuple[torch.Tensor, ...]:
    """Tensors over the same elements of all ranks."""
    handle = handle_of(rank, x, group_name, "get_remote_tensors")
    return tuple(handle.get_remote_tensor(peer, x.shape, x.dtype) for peer in range(handle.world_size))


OPERATORS: dict[str, Operator] = {
    "multimem_all_gather_out": _multimem_all_gather_out,
    "_low_contention_all_gather": _low_contention_all_gather,
    "_low_contention_reduce_scatter": _low_contention_reduce_scatter,
    "nvshmem_broadcast": _broadcast,
    "nvshmem_all_to_all": _all_to_all,
    "get_remote_tensors": _remote_tensors,
}
