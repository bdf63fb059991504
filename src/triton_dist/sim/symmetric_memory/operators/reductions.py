"""All-reduce, reduce and reduce-scatter of symmetric tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....errors import SymmetricMemoryError
from ...context import RankContext
from ..arguments import dimension, whole_number
from ..groups import rendezvous
from ..meeting import Tensors
from .common import Operator, check_multimem, meet, only_sum, reduction, same, same_shape, symmetric, total, with_multicast


def _all_reduce(name: str, *, multimem: bool) -> Operator:
    """An all-reduce of symmetric ``input`` into ``out``, of the ranks of a group."""

    def all_reduce_out(rank: RankContext, input: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor) -> torch.Tensor:
        only_sum(reduce_op, name)
        if multimem:
            check_multimem(name, input)
        members = (with_multicast if multimem else symmetric)(rank, input, group_name, name)
        same_shape(name, input, out)

        def run(parts: Sequence[Tensors]) -> None:
            result = total([part["input"] for part in parts])
            for part in parts:
                part["out"].copy_(result.view(part["out"].shape))

        meet(rank, members, name, {"input": input, "out": out}, run, read=[input], written=[out], agree=(input.numel(), input.dtype))
        return out

    return all_reduce_out


_one_shot = _all_reduce("one_shot_all_reduce", multimem=False)
_two_shot = _all_reduce("two_shot_all_reduce", multimem=False)
_multimem = _all_reduce("multimem_all_reduce", multimem=True)
_multimem_one_shot = _all_reduce("multimem_one_shot_all_reduce", multimem=True)


def _one_shot_copy_out(
    rank: RankContext, symm_buffer: torch.Tensor, local_input: torch.Tensor, reduce_op: str, group_name: str, out: torch.Tensor
) -> torch.Tensor:
    """Copy ``local_input`` into symmetric memory first, at the begin of ``symm_buffer``."""
    name = "one_shot_all_reduce_copy"
    if local_input.dtype != symm_buffer.dtype or local_input.numel() > symm_buffer.numel():
        raise SymmetricMemoryError(
            f"{name}: {local_input.numel()} elements of {local_input.dtype} do not fit into symm_buffer, which has "
            f"{symm_buffer.numel()} of {symm_buffer.dtype}"
        )
    symmetric(rank, symm_buffer, group_name, name)
    same_shape(name, local_input, out)
    staged = symm_buffer.view(-1)[: local_input.numel()].view(local_input.shape)
    staged.copy_(local_input)
    return _one_shot(rank, staged, reduce_op, group_name, out)


def _one_shot_copy(
    rank: RankContext, symm_buffer: torch.Tensor, local_input: torch.Tensor, reduce_op: str, group_name: str
) -> torch.Tensor:
    return _one_shot_copy_out(rank, symm_buffer, local_input, reduce_op, group_name, torch.empty_like(local_input))


def _new_result(operator: Operator) -> Operator:
    return lambda rank, input, reduce_op, group_name: operator(rank, input, reduce_op, group_name, torch.empty_like(input))


def _in_place(operator: Operator) -> Operator:
    return lambda rank, input, reduce_op, group_name: operator(rank, input, reduce_op, group_name, input)


def _multimem_one_shot_reduce_out(
    rank: RankContext, input: torch.Tensor, reduce_op: str, root: int, group_name: str, out: torch.Tensor
) -> torch.Tensor:
    """The sum on one rank."""
    name = "multimem_one_shot_reduce"
    only_sum(reduce_op, name)
    check_multimem(name, input)
    members = with_multicast(rank, input, group_name, name)
    _check_root(name, root, members.team.size)
    here = members.team.index == root
    if here:
        same_shape(name, input, out)

    def run(parts: Sequence[Tensors]) -> None:
        parts[root]["out"].copy_(total([part["input"] for part in parts]).view(parts[root]["out"].shape))

    written = [out] if here else []
    meet(rank, members, name, {"input": input, "out": out}, run, read=[input], written=written, agree=(input.numel(), input.dtype, root))
    return out


def _check_root(what: str, root: int, size: int) -> None:
    if not 0 <= whole_number(root, what, "root") < size:
        raise SymmetricMemoryError(f"{what}: root={root} is not in the group, whose ranks go from 0 to {size - 1}")


def _reduce_scatter_out(
    rank: RankContext, input: torch.Tensor, group_name: str, split_last_dim: bool, output: torch.Tensor
) -> torch.Tensor:
    """Each rank gets the sum of its part: of the rows, or of the last dimension."""
    name = "reduce_scatter_out"
    members = symmetric(rank, input, group_name, name)
    dim, size = (-1 if split_last_dim else 0), members.team.size
    if not input.dim() or input.shape[dim] % size:
        raise SymmetricMemoryError(f"{name}: dimension {dim} of {list(input.shape)} is not divisible by the {size} ranks of the group")
    step = min(_alignment(int(number) * input.element_size()) for number in (input.storage_offset(), input.numel()))
    part = (input.shape[-1] if split_last_dim else input.numel()) // size * input.element_size()
    if part % step:
        raise SymmetricMemoryError(f"{name}: {part} bytes for each rank are not divisible by the {step} that it moves at once")
    same(name, input, output, input.numel() // size)

    def run(parts: Sequence[Tensors]) -> None:
        chunks = total([part["input"] for part in parts]).chunk(size, dim)
        for part, chunk in zip(parts, chunks, strict=True):
            part["output"].copy_(chunk.reshape(part["output"].shape))

    meet(rank, members, name, {"input": input, "output": output}, run, read=[input], written=[output], agree=(tuple(input.shape), dim))
    return output


def _alignment(size: int) -> int:
    """Of so many bytes, as far as torch's kernels make use of it."""
    return next(step for step in (16, 8, 4, 2, 1) if size % step == 0)


def _reduce_scatter_offset(
    rank: RankContext,
    input: torch.Tensor,
    out: list[torch.Tensor],
    group_name: str,
    dim: int,
    offsets: list[int] | None,
    dst_ranks: list[int] | None,
    red_op: str,
) -> None:
    """Sums of blocks of a matrix, each to one rank. offsets: where blocks end along ``dim``; by default one equal block a rank."""
    name = "nccl_reduce_scatter_offset"
    only_sum(red_op, name)
    members = symmetric(rank, input, group_name, name)
    size = members.team.size
    dim = dimension(dim, input.dim(), name, "dim")
    ends = offsets if offsets is not None else [input.shape[dim] * (place + 1) // size for place in range(size)]
    targets = dst_ranks if dst_ranks is not None else [number % size for number in range(len(ends))]
    starts = [0, *ends[:-1]]
    if any(not start <= end <= input.shape[dim] for start, end in zip(starts, ends, strict=True)):
        raise SymmetricMemoryError(f"{name}: offsets={list(ends)} do not ascend to at most the {input.shape[dim]} of dimension {dim}")
    for target in targets:
        _check_root(name, target, size)
    mine = [number for number, target in enumerate(targets) if target == members.team.index]
    if len(targets) != len(ends) or len(out) != len(mine):
        raise SymmetricMemoryError(
            f"{name}: {len(ends)} blocks, {len(targets)} dst_ranks and {len(out)} outputs for the {len(mine)} blocks of rank {rank.rank}"
        )
    for number, into in zip(mine, out, strict=True):
        same(name, input, into, input.narrow(dim, starts[number], ends[number] - starts[number]).numel())

    def run(parts: Sequence[Tensors]) -> None:
        taken = [0] * size
        for start, end, target in zip(starts, ends, targets, strict=True):
            into = parts[target]["out"][taken[target]]
            taken[target] += 1
            into.copy_(total([part["input"].narrow(dim, start, end - start) for part in parts]).view(into.shape))

    meet(rank, members, name, {"input": input, "out": out}, run, read=[input], written=out, agree=(dim, tuple(ends), tuple(targets)))


def _tile_reduce(rank: RankContext, in_tile: torch.Tensor, out_tile: torch.Tensor, root: int, group_name: str, reduce_op: str) -> None:
    """The sum of a tile of a symmetric matrix, on one rank."""
    _multi_root_tile_reduce(rank, [in_tile], out_tile, [root], group_name, reduce_op)


def _multi_root_tile_reduce(
    rank: RankContext, in_tiles: list[torch.Tensor], out_tile: torch.Tensor, roots: list[int], group_name: str, reduce_op: str
) -> None:
    """The sums of several tiles, each on a rank of its own."""
    name = "multi_root_tile_reduce" if len(roots) > 1 else "tile_reduce"
    operation = reduction(reduce_op, name)
    if len(in_tiles) != len(roots) or len(set(roots)) != len(roots):
        raise SymmetricMemoryError(f"{name}: {len(in_tiles)} tiles for roots {roots}; give one different root for each tile")
    members = [rendezvous(rank, tile, group_name, name) for tile in (*in_tiles, out_tile)][0]
    for root in roots:
        _check_root(name, root, members.team.size)
    written = [out_tile] if members.team.index in roots else []
    for number, root in enumerate(roots):
        if root == members.team.index:
            same(name, in_tiles[number], out_tile)

    def run(parts: Sequence[Tensors]) -> None:
        for number, root in enumerate(roots):
            parts[root]["out"].copy_(total([part["in"][number] for part in parts], operation))

    meet(rank, members, name, {"in": in_tiles, "out": out_tile}, run, read=in_tiles, written=written, agree=(tuple(roots), reduce_op))


OPERATORS: dict[str, Operator] = {
    "one_shot_all_reduce": _new_result(_one_shot),
    "one_shot_all_reduce_out": _one_shot,
    "one_shot_all_reduce_copy": _one_shot_copy,
    "one_shot_all_reduce_copy_out": _one_shot_copy_out,
    "two_shot_all_reduce_": _in_place(_two_shot),
    "two_shot_all_reduce_out": lambda rank, input, reduce_op, group_name, output: _two_shot(rank, input, reduce_op, group_name, output),
    "multimem_all_reduce_": _in_place(_multimem),
    "multimem_one_shot_all_reduce": _new_result(_multimem_one_shot),
    "multimem_one_shot_all_reduce_out": _multimem_one_shot,
    "multimem_one_shot_reduce_out": _multimem_one_shot_reduce_out,
    "reduce_scatter_out": _reduce_scatter_out,
    "nccl_reduce_scatter_offset": _reduce_scatter_offset,
    "tile_reduce": _tile_reduce,
    "multi_root_tile_reduce": _multi_root_tile_reduce,
}
