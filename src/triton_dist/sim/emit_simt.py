"""Handlers of what single threads and warps do beyond loads and stores: exchanges, votes, atomics, the shared memory of simt regions."""

from __future__ import annotations

from .codegen import FunctionEmitter
from .ir import Operation

_UPDATES = ("exch", "min", "max", "and", "or", "xor")


def _update(emitter: FunctionEmitter, operation: Operation, name: str, parameters: dict[str, str]) -> None:
    """An atomic that takes one value, done by every thread that comes here."""
    name = "u" + name if parameters.get("sign") == "u" else name
    kind = operation.result_types[0]
    emitter.line("yield")
    pointer, value = emitter.arrays(operation)
    arguments = f"{name!r}, {pointer}, {value}, {emitter.module.dtype(kind.dtype)}, {emitter.mask}, {emitter.location_number()}"
    emitter.assign(operation, f"warps.update_each(C, {arguments})")


def _shuffle(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    mask, value, lane = emitter.arrays(operation)
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    emitter.assign(operation, f"warps.shuffle(C, {parameters['mode']!r}, {mask}, {value}, {lane}, {dtype}, {emitter.mask})")


def _ballot(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    mask, predicate = emitter.arrays(operation)
    emitter.assign(operation, f"warps.ballot(C, {mask}, {predicate}, {emitter.mask})")


def _sync_warp(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.line(f"warps.sync_warp(C, {emitter.arrays(operation)[0]}, {emitter.mask})")
    emitter.alias(operation.results[0], "0")


def _shared_memory(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    key = f"{parameters['key']}/{parameters['bytes']}"
    emitter.assign(operation, f"block_memory.shared_memory(C, {key!r}, {parameters['bytes']})")


def _shared_load(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    kind = operation.result_types[0]
    address, dtype = emitter.array(operation.operands[0]), emitter.module.dtype(kind.dtype)
    if kind.shape is not None:
        emitter.forbid_divergence(operation)
        emitter.assign(operation, f"block_memory.shared_load_tile(C, np.broadcast_to({address}, {kind.dims}), {dtype})")
    elif emitter.is_tensor(operation):
        emitter.assign(operation, f"block_memory.shared_load_each(C, {address}, {dtype}, {emitter.mask})")
    else:
        emitter.assign_scalar(operation, f"block_memory.shared_load_one(C, {address}, {dtype}, {emitter.mask})")


def _shared_store(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    address, value = emitter.arrays(operation)
    kind = operation.operand_types[1]
    dtype = emitter.module.dtype(kind.dtype)
    if kind.shape is not None:
        emitter.forbid_divergence(operation)
        emitter.line(f"block_memory.shared_store_tile(C, np.broadcast_to({address}, {kind.dims}), {value}, {dtype})")
    else:
        emitter.line(f"block_memory.shared_store_each(C, {address}, {value}, {dtype}, {emitter.mask})")
    emitter.alias(operation.results[0], "0")


def _check_index(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    indices = ", ".join(emitter.arrays(operation))
    extents = ", ".join(parameters["shape"].split("x"))
    emitter.line(f"warps.check_index(C, ({indices},), ({extents},), {emitter.mask})")
    emitter.alias(operation.results[0], "0")


def _check_alignment(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    pointer = emitter.array(operation.operands[0])
    emitter.line(f"warps.check_alignment(C, {pointer}, {parameters['bytes']}, {parameters['what']!r}, {emitter.mask})")
    emitter.alias(operation.results[0], "0")


def _multicast_store(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    pointer, value = emitter.values(operation)
    dtype = emitter.module.dtype(operation.operand_types[1].dtype)
    mask = emitter.mask if emitter.is_tensor(operation) else None
    emitter.line(f"multicast.store(C, {pointer}, {value}, {dtype}, {mask}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _multicast_sum(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str]) -> None:
    emitter.line("yield")
    pointer, kind = emitter.values(operation)[0], f"{parameters['type']!r}, {parameters['acc']!r}"
    if emitter.is_tensor(operation):
        emitter.assign(operation, f"multicast.load_reduce_each(C, {pointer}, {kind}, {emitter.mask})")
    else:
        emitter.assign_scalar(operation, f"multicast.load_reduce(C, {pointer}, {kind})")


PRIMITIVES = {
    "multimem_st": _multicast_store,
    "multimem_ld_reduce": _multicast_sum,
    "shfl": _shuffle,
    "ballot": _ballot,
    "syncwarp": _sync_warp,
    "shared_memory": _shared_memory,
    "shared_load": _shared_load,
    "shared_store": _shared_store,
    "check_index": _check_index,
    "check_alignment": _check_alignment,
    **{
        f"atomic_{name}": lambda emitter, operation, parameters, name=name: _update(emitter, operation, name, parameters)  # type: ignore[misc]
        for name in _UPDATES
    },
}
"""Handlers by the name of the primitive."""
