"""How far the threads of a block may run apart behind a loop that they leave at different times.

In lock step, threads that have left a loop wait for those that have not. Where that would be for ever, because a thread spins for what
another one does behind the loop (a lock that every thread takes), those that have left go on by themselves, up to the next operation that
the threads of the block or of a warp do together. Here is found what lies before that.
"""

from __future__ import annotations

from collections.abc import Iterator

from .analysis import FunctionFacts
from .ir import Block, Operation
from .ptx.block import block_of

_SCALAR = (
    "arith.",
    "math.",
    "tt.addptr",
    "tt.bitcast",
    "tt.int_to_ptr",
    "tt.ptr_to_int",
    "tt.load",
    "tt.store",
    "scf.if",
    "scf.while",
    "scf.for",
)
_PURE = ("arith.", "math.", "tt.addptr", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int")
_ENDS = ("scf.yield", "scf.condition")
_TOGETHER = (
    *("wait", "notify", "shfl", "ballot", "syncwarp", "shared_memory"),
    *("shmem_barrier", "shmem_broadcast", "shmem_fcollect", "shmem_alltoall", "shmem_reduce"),
)
"""Primitives that threads do together, whatever their choices."""


def operations_behind(block: Block, start: int, limit: int, facts: FunctionFacts) -> tuple[int, list[str]]:
    """The operations from number ``start`` on, up to ``limit``, that each thread does for itself.

    Gives the number of the first that is left to all threads, and the values that are used outside. Such a value may differ from thread
    to thread; one that may not has to be the same whenever it is computed.
    """
    end = start
    while end < limit and _is_for_one_thread(block.operations[end]):
        end += 1
    while end > start:
        used = _used_outside(block.operations[start:end], facts)
        unfit = [number for number in range(start, end) if _changes_with_time(block.operations[number], used, facts)]
        if not unfit:
            return end, used
        end = unfit[0]
    return start, []


def _is_for_one_thread(operation: Operation) -> bool:
    kinds = [*operation.operand_types, *operation.result_types]
    if any(kind.shape is not None or kind.element == "desc" for kind in kinds):
        return False
    if operation.name == "tt.extern_elementwise":
        return _is_primitive_of_one_thread(str(operation.attributes["symbol"]))
    if operation.name in _ENDS:
        return True
    if operation.name == "tt.elementwise_inline_asm":
        block = block_of(operation)
        return block is not None and not block.meets
    if not operation.name.startswith(_SCALAR):
        return False
    return all(_is_for_one_thread(inner) for inner in _inside(operation))


def _is_primitive_of_one_thread(symbol: str) -> bool:
    if not symbol.startswith("td."):
        return True
    name, *pairs = symbol[3:].split(";")
    parameters = dict(pair.split("=", 1) for pair in pairs)
    return name not in _TOGETHER and parameters.get("level", "thread") == "thread"


def _inside(operation: Operation) -> Iterator[Operation]:
    """The operations in the regions of one, on all levels."""
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                yield inner
                yield from _inside(inner)


def _used_outside(operations: list[Operation], facts: FunctionFacts) -> list[str]:
    here = {id(operation) for operation in operations} | {id(inner) for operation in operations for inner in _inside(operation)}
    results = [name for operation in operations for name in operation.results]
    return [name for name in results if any(id(user) not in here for user, _ in facts.users[name])]


def _changes_with_time(operation: Operation, used: list[str], facts: FunctionFacts) -> bool:
    """Whether a value that the block takes for the same in all threads could differ between threads that come at different times."""
    uniform = [name for name in operation.results if name in used and name not in facts.varying]
    return bool(uniform) and not operation.name.startswith(_PURE)
