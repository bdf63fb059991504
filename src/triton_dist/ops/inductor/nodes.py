"""Reading and building nodes of FX graphs whose metadata (``meta["val"]``) holds fake tensors, as Inductor's graphs do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from .report import Unsuitable

aten = torch.ops.aten
Size = int | Node
"""A dimension's size in a graph: a number, or the node that computes it."""

RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default, aten.alias.default)
"""Nodes with the same elements in the same order."""

SIZES = (aten.sym_size.int,)


def tensor_of(node: object) -> torch.Tensor:
    """The fake tensor that stands for a node's value. Raises Unsuitable if there is none."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor):
        raise Unsuitable(f"the graph does not say what {node} is: its nodes need fake tensors in meta['val']")
    return value


def argument(node: Node, name: str, default: Any = None) -> Any:
    """The argument that the operator's schema calls ``name``, however it was passed."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    place = next(index for index, each in enumerate(schema) if each.name == name)
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are equal whatever the symbols in them stand for. Adds no guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(left == right)


def call(graph: Graph, target: Any, *args: Any) -> Node:
    """A new node at the graph's insertion point, with metadata."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda each: each.meta["val"]))
    return node


def size_of(graph: Graph, node: Node, dim: int) -> Size:
    """The size of one dimension, for the arguments of new nodes."""
    size = tensor_of(node).shape[dim]
    if isinstance(size, int):
        return size
    new = graph.call_function(aten.sym_size.int, (node, dim))
    new.meta["val"] = size
    return new


def times(graph: Graph, sizes: Iterable[Size]) -> Size:
    """The product of sizes; 1 for none."""
    result: Size = 1
    for size in sizes:
        if isinstance(result, int) and isinstance(size, int):
            result *= size
        elif isinstance(result, int) and result == 1:
            result = size
        else:
            result = call(graph, operator.mul, result, size)
    return result


def put_in_place(node: Node, size: Size) -> None:
    """Let all users of a node that computes a size use ``size`` instead."""
    if isinstance(size, Node):
        node.replace_all_uses_with(size)
        return
    for user in list(node.users):
        user.args = torch.fx.node.map_arg(user.args, lambda each: size if each is node else each)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda each: size if each is node else each)


def replace_sizes(graph: Graph, node: Node, size: Callable[[int], Size]) -> None:
    """Let nothing ask ``node`` for its size. size(dim): the size along a dimension, found without ``node``; may insert nodes."""
    for user in [each for each in node.users if each.target in SIZES]:
        with graph.inserting_before(user):
            put_in_place(user, size(argument(user, "dim") % tensor_of(node).dim()))
        graph.erase_node(user)


def other_users(node: Node, known: Iterable[Node]) -> list[Node]:
    """Users of a node's value that are not among ``known`` and do more than ask for its size."""
    known = set(known)
    return [user for user in node.users if user not in known and user.target not in SIZES]


def keeps_rows(node: Node) -> bool:
    """Whether a node is a reshape that keeps the last dimension, so that rows stay rows, in their order."""
    if node.target not in RESHAPES or not isinstance(node.args[0], Node):
        return False
    before, after = tensor_of(node.args[0]), tensor_of(node)
    return before.dim() > 0 and after.dim() > 0 and same(before.shape[-1], after.shape[-1])


def positions(graph: Graph) -> dict[Node, int]:
    """The place of each node in the graph's order."""
    return {node: place for place, node in enumerate(graph.nodes)}


def descendants(node: Node) -> set[Node]:
    """All nodes that need a node's value, directly or not."""
    found: set[Node] = set()
    pending = list(node.users)
    while pending:
        user = pending.pop()
        if user not in found:
            found.add(user)
            pending.extend(user.users)
    return found


def erase_unused(graph: Graph, candidates: Iterable[Node]) -> None:
    """Remove those of the candidates that nobody uses any more, and sizes that nobody uses."""
    known = set(candidates)
    for node in reversed(list(graph.nodes)):
        is_size = node.op == "call_function" and isinstance(node.meta.get("val"), torch.SymInt)
        if (node in known or is_size) and not node.users:
            graph.erase_node(node)
