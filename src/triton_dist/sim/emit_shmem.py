"""Handlers of the SHMEM functions: what is emitted for each of their opaque operations."""

from __future__ import annotations

from .codegen import FunctionEmitter
from .ir import Operation

_NAMES = {
    "shmem_put": "putmem",
    "shmem_get": "getmem",
    "shmem_put_signal": "putmem_signal",
    "shmem_broadcast": "broadcastmem",
    "shmem_fcollect": "fcollectmem",
}


def _called(name: str, parameters: dict[str, str]) -> str:
    """What the user called, for messages."""
    stem = _NAMES.get(name) or ("barrier" if parameters.get("completes") == "1" else "team_sync")
    level = parameters["level"]
    return stem + ("_nbi" if parameters.get("nbi") == "1" else "") + ("" if level == "thread" else f"_{level}")


def _copy(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    function = name.removeprefix("shmem_")
    signal = f"{parameters['op']!r}, {operation.operand_types[4].dtype.itemsize}, " if function == "put_signal" else ""
    arguments = ", ".join(emitter.values(operation))
    kind = f"{_called(name, parameters)!r}, {parameters['level']!r}, {parameters['nbi']}, {signal}{emitter.mask}"
    emitter.line("yield")
    emitter.line(f"shmem.{function}(C, {kind}, {arguments}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _meeting(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    completes = f", {parameters['completes']}" if "completes" in parameters else ""
    kind = f"{_called(name, parameters)!r}, {parameters['level']!r}{completes}, {emitter.mask}"
    arguments = ", ".join(emitter.values(operation))
    emitter.line(f"yield from shmem.{name.removeprefix('shmem_')}(C, {kind}, {arguments}, {emitter.location_number()})")
    emitter.alias(operation.results[0], "0")


def _signal(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    size = operation.operand_types[1].dtype.itemsize
    arguments = ", ".join(emitter.values(operation))
    emitter.line(f"shmem.signal(C, {parameters['op']!r}, {size}, {emitter.mask}, {arguments}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _signal_wait(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    dtype = emitter.module.dtype(operation.operand_types[1].dtype)
    arguments = ", ".join(emitter.values(operation))
    where = f"{parameters['cmp']!r}, {dtype}, {emitter.location_number()}"
    emitter.assign(operation, f"yield from shmem.signal_wait(C, {emitter.mask}, {arguments}, {where})")


def _store_scalar(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    dtype = emitter.module.dtype(operation.operand_types[1].dtype)
    arguments = ", ".join(emitter.values(operation))
    emitter.line(f"shmem.store_scalar(C, {dtype}, {emitter.mask}, {arguments}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _load_scalar(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    emitter.line("yield")
    call = f"shmem.load_scalar(C, {dtype}, {emitter.mask}, {', '.join(emitter.values(operation))})"
    if any(emitter.kind(operand).shape is not None for operand in operation.operands):
        emitter.assign(operation, call)
    else:
        emitter.assign_scalar(operation, call)


def _lookup(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    emitter.assign(operation, f"shmem.{name}(C, {emitter.mask}, {', '.join(emitter.values(operation))})")


def _multicast(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    emitter.assign(operation, f"shmem.remote_mc_ptr(C, {emitter.mask}, {', '.join(emitter.values(operation))})")


def _order(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    emitter.line(f"shmem.{name.removeprefix('shmem_')}(C, {emitter.mask})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


_EMITTERS = {
    "remote_ptr": _lookup,
    "remote_mc_ptr": _multicast,
    "team_my_pe": _lookup,
    "team_n_pes": _lookup,
    "team_translate_pe": _lookup,
    "shmem_put": _copy,
    "shmem_get": _copy,
    "shmem_put_signal": _copy,
    "shmem_signal": _signal,
    "shmem_signal_wait": _signal_wait,
    "shmem_p": _store_scalar,
    "shmem_g": _load_scalar,
    "shmem_barrier": _meeting,
    "shmem_quiet": _order,
    "shmem_fence": _order,
    "shmem_broadcast": _meeting,
    "shmem_fcollect": _meeting,
}


def shmem_handler(name: str):
    """What emits the SHMEM row ``name``, as the handlers of the other primitives are called; None if it is none."""
    emit = _EMITTERS.get(name)
    if emit is None:
        return None
    return lambda emitter, operation, parameters: emit(emitter, operation, parameters, name)
