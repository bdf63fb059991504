"""TD205: waits in loops whose loads Triton pipelines."""

from __future__ import annotations

from collections.abc import Iterator

from ..lints import Finding
from ..sim.ir import Operation
from .guarded import Source
from .operations import LOOPS, chain_of, is_load, is_poll_loop, key_of_op, operations, shown, waits_in

_PRODUCTS = frozenset({"tt.dot", "tt.dot_scaled"})


def check_pipelined(source: Source, ttgir: Operation, num_stages: int, arch: int) -> Iterator[Finding]:
    """Innermost loops of more than one stage that have a wait and, guarded by it, loads that feed a product or an explicit pipeline."""
    for loop in operations(source.tree):
        if loop.name != "scf.for" or any(op.name in LOOPS and not is_poll_loop(op) for op in operations(loop)):
            continue
        chosen = loop.attributes.get("tt.num_stages")
        stages = chosen if isinstance(chosen, int) else num_stages
        waits = waits_in(loop)
        products = [op for op in operations(loop) if op.name in _PRODUCTS]
        if stages < 2 or not waits:
            continue
        for load in operations(loop):
            if not is_load(load):
                continue
            feeds = chosen is not None or any(source.flow.reached(load.results).intersection(op.operands[:2]) for op in products)
            wait = next((one for one in waits if source.may_guard(one.chain.key, key_of_op(load))), None)
            if feeds and wait is not None:
                yield _finding(loop, wait.chain, load, ttgir, stages, arch)
                break


def _finding(loop: Operation, wait, load: Operation, ttgir: Operation, stages: int, arch: int) -> Finding:
    place, head, read = shown(wait), shown(chain_of(loop)), shown(chain_of(load))
    copies = sum(1 for op in operations(ttgir) if is_load(op) and key_of_op(op) == key_of_op(load))
    outcome = (
        f"Triton issues the load at {read.file}:{read.line} ahead of the loop, for rounds whose wait has not been reached"
        if copies > 1
        else f"Triton does not pipeline the load at {read.file}:{read.line}, which takes the loop's speed"
    )
    return Finding(
        "TD205",
        f"this wait stands in the loop at {head.file}:{head.line} with num_stages={stages}; for sm_{arch} {outcome}; wait once, before the "
        "loop, for all that it loads, or give the loop num_stages=1",
        place.file or None,
        place.line or None,
    )
