"""All-to-all of parts whose sizes are in device memory, for experts spread over ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....errors import OutOfBoundsError, SymmetricMemoryError
from ...context import RankContext
from ..meeting import Tensors
from .common import Operator, meet, symmetric


def _all_to_all_vdev(
    rank: RankContext, input: torch.Tensor, out: torch.Tensor, in_splits: torch.Tensor, out_splits_offsets: torch.Tensor, group_name: str
) -> None:
    """Rows of ``input`` go to each rank. in_splits: rows for each. out_splits_offsets: rows from each rank, and where they begin."""
    _exchange(rank, "all_to_all_vdev", input, out, in_splits, None, out_splits_offsets, group_name, _BY_RANK, align=0)


def _all_to_all_vdev_2d(
    rank: RankContext,
    input: torch.Tensor,
    out: torch.Tensor,
    in_splits: torch.Tensor,
    out_splits_offsets: torch.Tensor,
    group_name: str,
    major_align: int | None,
) -> None:
    """Rows for the experts of each rank (by rank, then by expert) come by expert, then by rank. An expert begins at a multiple of
    ``major_align`` and has that many rows at least, 1 by default."""
    align = 1 if major_align is None else major_align
    if align < 1:
        raise SymmetricMemoryError(f"all_to_all_vdev_2d: major_align={align} must be positive")
    _exchange(rank, "all_to_all_vdev_2d", input, out, in_splits, None, out_splits_offsets, group_name, _BY_RANK, align=align)


def _all_to_all_vdev_2d_offset(
    rank: RankContext,
    input: torch.Tensor,
    out: torch.Tensor,
    in_splits_offsets: torch.Tensor,
    out_splits_offsets: torch.Tensor,
    group_name: str,
) -> None:
    """The way back: rows by expert, then by rank, at given offsets, come by rank, then by expert."""
    name = "all_to_all_vdev_2d_offset"
    if in_splits_offsets.dim() != 2 or in_splits_offsets.shape[0] != 2:
        raise SymmetricMemoryError(f"{name}: in_splits_offsets of shape {list(in_splits_offsets.shape)} must have two rows")
    splits, offsets = in_splits_offsets[0], in_splits_offsets[1]
    _exchange(rank, name, input, out, splits, offsets, out_splits_offsets, group_name, _BY_EXPERT, align=0)


_BY_RANK, _BY_EXPERT = "by rank", "by expert"


def _exchange(
    rank: RankContext,
    name: str,
    input: torch.Tensor,
    out: torch.Tensor,
    splits: torch.Tensor,
    offsets: torch.Tensor | None,
    results: torch.Tensor,
    group_name: str,
    order: str,
    align: int,
) -> None:
    members = symmetric(rank, input, group_name, name)
    for tensor in (out, splits, results):
        symmetric(rank, tensor, group_name, name)
    size, count = members.team.size, splits.numel()
    if results.shape != (2, count) or count % size or splits.dtype != torch.int64 or results.dtype != torch.int64:
        raise SymmetricMemoryError(
            f"{name}: splits {splits.dtype} {list(splits.shape)} and results {results.dtype} {list(results.shape)}; they must be int64, "
            f"of a multiple of {size} splits and of shape (2, that)"
        )
    if input.dtype != out.dtype or input.shape[1:] != out.shape[1:]:
        raise SymmetricMemoryError(
            f"{name}: input {input.dtype} {list(input.shape)} and out {out.dtype} {list(out.shape)} must have equal rows"
        )
    experts = count // size
    if name == "all_to_all_vdev" and experts != 1:
        raise SymmetricMemoryError(f"{name}: {count} splits for {size} ranks; it takes one a rank")

    def run(parts: Sequence[Tensors]) -> None:
        given = [_taken(part, name) for part in parts]
        for target, part in enumerate(parts):
            sources = _sources(target, size, experts, order)
            lengths = [given[source][0][number] for source, number in sources]
            minor = size if order == _BY_RANK else experts
            begins = _begins(lengths, minor, align)
            for (source, number), length, begin in zip(sources, lengths, begins, strict=True):
                start = given[source][1][number]
                _check_rows(name, "input", parts[source]["input"], start, length, members.team.ranks[source])
                _check_rows(name, "out", part["out"], begin, length, members.team.ranks[target])
                part["out"][begin : begin + length] = parts[source]["input"][start : start + length]
            part["results"][0].copy_(torch.tensor(lengths))
            part["results"][1].copy_(torch.tensor(begins))

    tensors = {"input": input, "out": out, "splits": splits, "offsets": offsets, "results": results}
    read = [input, splits, *([offsets] if offsets is not None else [])]
    meet(rank, members, name, tensors, run, read=read, written=[results], agree=(count, input.dtype, align))


def _taken(part: Tensors, name: str) -> tuple[list[int], list[int]]:
    """Lengths of a rank's splits and where each begins in its input."""
    lengths = part["splits"].tolist()
    if min(lengths, default=0) < 0:
        raise SymmetricMemoryError(f"{name}: splits {lengths} have a negative length")
    if part["offsets"] is not None:
        return lengths, part["offsets"].tolist()
    return lengths, [sum(lengths[:number]) for number in range(len(lengths))]


def _sources(target: int, size: int, experts: int, order: str) -> list[tuple[int, int]]:
    """For each split that a rank gets, in the order of its output: from which rank, and the number of the split there."""
    if order == _BY_RANK:
        return [(source, target * experts + expert) for expert in range(experts) for source in range(size)]
    return [(source, expert * size + target) for source in range(size) for expert in range(experts)]


def _begins(lengths: list[int], minor: int, align: int) -> list[int]:
    """Where splits begin, ``minor`` of them following each other before the next multiple of ``align`` (0: no alignment)."""
    begins, start = [], 0
    for first in range(0, len(lengths), minor):
        row = lengths[first : first + minor]
        begins += [start + sum(row[:place]) for place in range(len(row))]
        used = sum(row)
        start += max(-(-used // align) * align, align) if align else used
    return begins


def _check_rows(what: str, name: str, tensor: torch.Tensor, begin: int, length: int, rank: int) -> None:
    if length and not 0 <= begin <= begin + length <= tensor.shape[0]:
        raise OutOfBoundsError(f"{what}: rows {begin} to {begin + length} of {name!r} of rank {rank}, which has {tensor.shape[0]} rows")


OPERATORS: dict[str, Operator] = {
    "all_to_all_vdev": _all_to_all_vdev,
    "all_to_all_vdev_2d": _all_to_all_vdev_2d,
    "all_to_all_vdev_2d_offset": _all_to_all_vdev_2d_offset,
}
