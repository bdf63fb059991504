"""A tensor cut into equal pieces along one dimension that are joined along another: how torch gathers and scatters along any dimension."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from .nodes import argument, aten, same, tensor_of

SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)


@dataclass(frozen=True)
class Pieces:
    """``join``: the pieces of ``origin`` along ``cut``, in their order, one behind the other along ``joined``. nodes: what is between."""

    origin: Node
    cut: int
    joined: int
    nodes: tuple[Node, ...]


def pieces_of(join: Node, count: int) -> Pieces | None:
    """What ``join`` joins, if that is all ``count`` pieces of one tensor, as large as each other."""
    if join.target is not aten.cat.default or len(parts := list(argument(join, "tensors"))) != count:
        return None
    if all(part.target is operator.getitem for part in parts):
        split = parts[0].args[0]
        if split.target not in SPLITS or [part.args for part in parts] != [(split, index) for index in range(count)]:
            return None
        if len(split.meta["val"]) != count:
            return None
        origin, cut, between = split.args[0], argument(split, "dim", 0), (split, *parts)
    elif all(part.target is aten.slice.Tensor for part in parts):
        origin, cut, between = parts[0].args[0], argument(parts[0], "dim", 0), tuple(parts)
        if any(part.args[0] is not origin or argument(part, "dim", 0) != cut or argument(part, "step", 1) != 1 for part in parts):
            return None
        length = tensor_of(parts[0]).shape[cut]
        if not all(same(_start(part), index * length) for index, part in enumerate(parts)):
            return None
        if not same(tensor_of(origin).shape[cut], count * length):
            return None
    else:
        return None
    if not all(same(tensor_of(part).shape[cut], tensor_of(parts[0]).shape[cut]) for part in parts):
        return None
    dimensions = tensor_of(origin).dim()
    return Pieces(origin, cut % dimensions, argument(join, "dim", 0) % dimensions, (*between, join))


def _start(part: Node) -> Any:
    """Where a slice begins: a number, or what the graph's symbols make of it."""
    start = argument(part, "start")
    return start.meta["val"] if isinstance(start, Node) else start or 0
