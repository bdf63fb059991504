"""Handlers of barriers, and of device primitives and library functions."""

from __future__ import annotations

from ..errors import DivergentNotifyError
from . import emit_simt
from .codegen import FunctionEmitter, handles
from .emit_shmem import shmem_handler
from .ir import Operation
from .ops.libdevice import LIBDEVICE
from .ops.twins import find_twin


@handles("gpu.barrier", "ttg.barrier")
def _barrier(emitter: FunctionEmitter, operation: Operation) -> None:
    if emitter.mask is not None:
        emitter.line(f"primitives.check_all_threads(C, {emitter.mask})")
    if emitter.facts.uses_block_memory:
        emitter.line("block_memory.order(C)")


@handles("tt.extern_elementwise")
def _extern(emitter: FunctionEmitter, operation: Operation) -> None:
    symbol = str(operation.attributes["symbol"])
    if symbol.startswith("td."):
        _primitive(emitter, operation, symbol)
        return
    function = LIBDEVICE.get(symbol)
    if function is None:
        library = operation.attributes.get("libname", "")
        raise emitter.fail(f"the simulator has no Python meaning of {symbol!r} of the library {library!r}")
    name = emitter.module.constant(function, "libdevice")
    arguments = ", ".join(emitter.arrays(operation))
    emitter.assign_scalar(operation, f"np.asarray({name}({arguments}))[()]")


def _parse_symbol(symbol: str) -> tuple[str, dict[str, str]]:
    name, *pairs = symbol.split(";")
    return name[3:], dict(pair.split("=", 1) for pair in pairs)


def _primitive(emitter: FunctionEmitter, operation: Operation, symbol: str) -> None:
    name, parameters = _parse_symbol(symbol)
    handler = _PRIMITIVES.get(name) or shmem_handler(name)
    if handler is None:
        raise emitter.fail(f"the simulator does not know the primitive {name!r}")
    handler(emitter, operation, parameters)
    if emitter.facts.uses_block_memory and (name in _ORDERING or parameters.get("sem", "relaxed") != "relaxed"):
        # It may order some threads' accesses to a tile; which ones is not followed, so that no right program is blamed.
        emitter.line("block_memory.order(C)")


_ORDERING = ("fence", "syncwarp", "wait", "notify")


def _rank(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.assign(operation, "C.rank")


def _num_ranks(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.assign(operation, "C.world_size")


def _symm_at(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    pointer, rank = operation.operands
    if operation.result_types[0].shape is None and emitter.is_tensor(operation):
        arguments = f"{emitter.array(pointer)}, {emitter.array(rank)}, {emitter.mask}"
        emitter.assign(operation, f"primitives.symm_at_each(C, {arguments})")
    elif emitter.is_tensor(operation):
        emitter.assign(operation, f"primitives.symm_at_tile(C, {emitter.value(pointer)}, {emitter.array(rank)})")
    else:
        emitter.assign(operation, f"primitives.symm_at(C, {emitter.value(pointer)}, {emitter.value(rank)})")


def _consume_token(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.alias(operation.results[0], emitter.value(operation.operands[0]))


def _wait(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    pointer, count, expected = operation.operands
    dtype = emitter.module.dtype(operation.operand_types[2].dtype)
    compare = parameters["cmp"]
    if emitter.mask is not None or emitter.is_tensor(operation):
        arguments = f"{emitter.array(pointer)}, {emitter.array(count)}, {emitter.array(expected)}, {compare!r}, {dtype}, {emitter.mask}"
        arguments += f", {emitter.location_number()}"
        emitter.line(f"yield from primitives.wait_each(C, {arguments})")
        emitter.alias(operation.results[0], "0")
        return
    size = operation.operand_types[2].dtype.itemsize
    arguments = (
        f"{emitter.value(pointer)}, {emitter.value(count)}, {emitter.value(expected)}, {compare!r}, {size}, {emitter.location_number()}"
    )
    emitter.assign(operation, f"yield from primitives.wait(C, {arguments})")


def _notify(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    if emitter.mask is not None:
        raise DivergentNotifyError(
            f"{emitter.location}: notify is a call of the whole block, but only some threads of the block come here; use st or atomic_add"
        )
    if any(name in emitter.facts.varying for name in operation.operands):
        raise DivergentNotifyError(
            f"{emitter.location}: notify is a call of the whole block, but an argument varies from thread to thread; use st or atomic_add"
        )
    pointer, rank, value = emitter.values(operation)
    size = operation.operand_types[2].dtype.itemsize
    kind = f"{parameters['op']!r}, {parameters['scope']!r}"
    emitter.line(f"primitives.notify(C, {pointer}, {rank}, {value}, {kind}, {size}, {emitter.location_number()})")
    emitter.yield_after_release()
    emitter.alias(operation.results[0], "0")


def _load_word(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    pointer = operation.operands[0]
    emitter.line("yield")
    if emitter.is_tensor(operation):
        emitter.assign(operation, f"primitives.load_each(C, {emitter.array(pointer)}, True, {dtype}, {emitter.mask})")
    else:
        emitter.assign_scalar(operation, f"primitives.load_word(C, {emitter.value(pointer)}, {dtype}, {emitter.origin(pointer)})")


def _store_word(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    pointer, value = operation.operands
    dtype = emitter.module.dtype(operation.operand_types[1].dtype)
    where = emitter.location_number()
    if emitter.is_tensor(operation):
        emitter.line(f"primitives.store_each(C, {emitter.array(pointer)}, {emitter.array(value)}, {dtype}, {emitter.mask}, {where})")
    else:
        arguments = f"{emitter.value(pointer)}, {emitter.value(value)}, {dtype}, {emitter.origin(pointer)}, {where}"
        emitter.line(f"memory.store_scalar(C, {arguments})")
    emitter.yield_after_release()
    emitter.alias(operation.results[0], "0")


def _atomic_each(emitter: FunctionEmitter, operation: Operation, name: str) -> None:
    """Every thread does its own: a block of 128 threads adds 128 times."""
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    emitter.line("yield")
    arguments = ", ".join(emitter.arrays(operation))
    emitter.assign(operation, f"primitives.{name}(C, {arguments}, {dtype}, {emitter.mask}, {emitter.location_number()})")


def _atomic_add(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    _atomic_each(emitter, operation, "atomic_add_each")


def _atomic_cas(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    _atomic_each(emitter, operation, "atomic_cas_each")


def _tid(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.assign(operation, "primitives.thread_index(C)" if parameters["axis"] == "0" else "np.zeros(C.threads, np.int32)")


def _fence(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    """Memory is sequentially consistent here; the order matters to the checks only."""
    emitter.alias(operation.results[0], "0")


def _extern_function(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], pure: bool) -> None:
    """A function of a bitcode library: its twin runs."""
    symbol, types = parameters["symbol"], tuple(parameters["types"].split(","))
    if find_twin(symbol) is None:
        raise emitter.fail(
            f"the simulator has no Python twin of {symbol!r} of the library {parameters['library']!r}; give it one: a function of the same "
            f"arguments under @triton_dist.extern_twin({symbol!r}), before the launch"
        )
    once = pure and not emitter.is_tensor(operation)
    operands = "".join(f"{operand}, " for operand in emitter.arrays(operation))
    if not once:
        emitter.line("yield")
    call = f"twins.call(C, {symbol!r}, {types!r}, ({operands}), {emitter.mask}, {once}, {emitter.location_number()})"
    if once:
        emitter.assign_scalar(operation, call)
    else:
        emitter.assign(operation, call)
        emitter.line("yield")


def _extern_call(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    _extern_function(emitter, operation, parameters, pure=False)


def _extern_pure(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    _extern_function(emitter, operation, parameters, pure=True)


_PRIMITIVES = {
    "rank": _rank,
    "extern_call": _extern_call,
    "extern_pure": _extern_pure,
    "num_ranks": _num_ranks,
    "symm_at": _symm_at,
    "consume_token": _consume_token,
    "wait": _wait,
    "notify": _notify,
    "ld": _load_word,
    "st": _store_word,
    "atomic_add": _atomic_add,
    "atomic_cas": _atomic_cas,
    "tid": _tid,
    "fence": _fence,
    **emit_simt.PRIMITIVES,
}


@handles("tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents")
def _grid_dependency(emitter: FunctionEmitter, operation: Operation) -> None:
    """A dependent launch may only start earlier than stream order lets it; here it starts in stream order."""
