"""Which loads a wait of the source guards."""

from __future__ import annotations

from dataclasses import dataclass

from ..sim.ir import Operation
from .operations import Flow, Wait, is_load, is_poll_loop, key_of_op, tree_without_poll_loops, waits_in
from .places import Key


@dataclass(frozen=True)
class Source:
    """What the checks need of a kernel as it was written.

    waits: by key. loads: the first op of each key. flow: what depends on what. by_token: for each wait whose token some load
    depends on, the keys of these loads.
    """

    tree: Operation
    waits: dict[Key, Wait]
    loads: dict[Key, Operation]
    flow: Flow
    by_token: dict[Key, frozenset[Key]]

    def may_guard(self, wait: Key, load: Key) -> bool:
        """Whether the wait is for the load, if it comes before it: the load depends on its token, or no load does."""
        tied = self.by_token.get(wait)
        return tied is None or load in tied


def read_source(tree: Operation) -> Source:
    """The waits and loads of the front end's IR."""
    waits = {wait.chain.key: wait for wait in waits_in(tree) if wait.chain.key}
    loads: dict[Key, Operation] = {}
    for op in loads_of(tree):
        loads.setdefault(key_of_op(op), op)
    loads.pop((), None)
    flow = Flow(tree)
    by_token: dict[Key, frozenset[Key]] = {}
    for key in waits:
        results = [value for wait in waits_in(tree) if wait.chain.key == key for value in wait.op.results]
        reached = flow.reached(results)
        tied = {name for op in loads_of(tree) if reached.intersection(op.operands) and (name := key_of_op(op))}
        if tied:
            by_token[key] = frozenset(tied)
    return Source(tree, waits, loads, flow, by_token)


def loads_of(tree: Operation) -> list[Operation]:
    """The loads in a tree, without those that are part of a wait."""
    return [op for op in tree_without_poll_loops(tree) if is_load(op) and not is_poll_loop(op)]
