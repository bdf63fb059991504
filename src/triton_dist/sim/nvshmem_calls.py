"""Kernels that call NVSHMEM's device functions by their own names, as torch's Triton functions for NVSHMEM do.

Their calls become the simulator's SHMEM operations when the kernel's IR has been read, so that nothing else has to know them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .ir import Block, Operation
from .types import parse_type


@dataclass(frozen=True)
class _Call:
    """symbol: of the simulator's operation; a choice "*" is the number in its last operand. operands: places of its operands in the call.

    of_world: the team of all ranks is its first operand.
    """

    symbol: str
    operands: tuple[int, ...] = ()
    of_world: bool = False


_CALLS = {
    "nvshmem_my_pe": _Call("td.rank"),
    "nvshmem_n_pes": _Call("td.num_ranks"),
    "nvshmemx_putmem_block": _Call("td.shmem_put;level=block;nbi=0", (0, 1, 2, 3)),
    "nvshmemx_putmem_nbi_block": _Call("td.shmem_put;level=block;nbi=1", (0, 1, 2, 3)),
    "nvshmemx_getmem_block": _Call("td.shmem_get;level=block;nbi=0", (0, 1, 2, 3)),
    "nvshmemx_getmem_nbi_block": _Call("td.shmem_get;level=block;nbi=1", (0, 1, 2, 3)),
    "nvshmemx_putmem_signal_block": _Call("td.shmem_put_signal;level=block;nbi=0;op=*", (0, 1, 2, 3, 4, 6, 5)),
    "nvshmemx_putmem_signal_nbi_block": _Call("td.shmem_put_signal;level=block;nbi=1;op=*", (0, 1, 2, 3, 4, 6, 5)),
    "nvshmemx_signal_op": _Call("td.shmem_signal;op=*", (0, 1, 3, 2)),
    "nvshmem_int_wait_until": _Call("td.shmem_signal_wait;cmp=*", (0, 2, 1)),
    "nvshmem_signal_wait_until": _Call("td.shmem_signal_wait;cmp=*", (0, 2, 1)),
    "nvshmem_fence": _Call("td.shmem_fence"),
    "nvshmem_quiet": _Call("td.shmem_quiet"),
    "nvshmem_barrier_all": _Call("td.shmem_barrier;completes=1;level=block", of_world=True),
    "nvshmem_sync_all": _Call("td.shmem_barrier;completes=0;level=block", of_world=True),
    "nvshmemx_alltoallmem_block": _Call("td.shmem_alltoall;level=block", (0, 1, 2, 3)),
    "nvshmemx_broadcastmem_block": _Call("td.shmem_broadcast;level=block", (0, 1, 2, 3, 4)),
}
"""By NVSHMEM's name. Barriers and reductions are a thread's, and Triton lets every thread of a block call them: one call of the block."""

_REDUCTION = re.compile(r"nvshmem_(\w+)_(sum|max|min|prod)_reduce")
_WORLD = "%nvshmem_team_world"


def translate(module: Operation) -> None:
    """Replace the calls in a module."""
    for function in _functions(module):
        body = function.regions[0]
        takes_world = False
        for block in _blocks(body):
            for operation in block.operations:
                takes_world |= _translate(operation)
        if takes_world:
            integer = parse_type("i32")
            constant = Operation("arith.constant", [_WORLD], [], {"value": 0}, [], [], [], [integer], function.location)
            body[0].operations.insert(0, constant)


def _translate(operation: Operation) -> bool:
    """Replace one call; whether it takes the team of all ranks now."""
    if operation.name != "tt.extern_elementwise":
        return False
    call = _call_of(str(operation.attributes["symbol"]))
    if call is None:
        return False
    operation.attributes["symbol"] = call.symbol
    operation.operands = [operation.operands[place] for place in call.operands]
    operation.operand_types = [operation.operand_types[place] for place in call.operands]
    if call.of_world:
        operation.operands.insert(0, _WORLD)
        operation.operand_types.insert(0, parse_type("i32"))
    return call.of_world


def _call_of(symbol: str) -> _Call | None:
    found = _CALLS.get(symbol)
    reduction = _REDUCTION.fullmatch(symbol)
    if found is None and reduction is not None:
        return _Call(f"td.shmem_reduce;level=block;op={reduction[2]};type={reduction[1]}", (0, 1, 2, 3))
    return found


def _functions(module: Operation) -> Iterator[Operation]:
    for block in _blocks(module.regions[0]):
        for operation in block.operations:
            if operation.name == "tt.func" and operation.regions and operation.regions[0]:
                yield operation


def _blocks(region: list[Block]) -> Iterator[Block]:
    """The blocks of a region and of all regions in it."""
    for block in region:
        yield block
        for operation in block.operations:
            for inner in operation.regions:
                yield from _blocks(inner)
