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
    "shmem_alltoall": "alltoallmem",
    "shmem_reduce": "reduce",
}


def _called(name: str, parameters: dict[str, str]) -> str:
    """What the user called, for messages."""
    stem = _NAMES.get(name) or ("barrier" if parameters.get("completes") == "1" else "team_sync")
    level = parameters["level"]
    return stem + ("_nbi" if parameters.get("nbi") == "1" else "") + ("" if level == "thread" else f"_{level}")


def _choice(choice: str, function: str, values: list[str]) -> str:
    """A choice of the operation as code: a constant, or "*" for the number in the last of the operands, which is taken away."""
    return f"shmem.{function}({values.pop()})" if choice == "*" else repr(choice)


def _copy(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    function, values = name.removeprefix("shmem_"), emitter.values(operation)
    signal = ""
    if function == "put_signal":
        signal = f"{_choice(parameters['op'], 'signal_operation', values)}, {operation.operand_types[4].dtype.itemsize}, "
    arguments = ", ".join(values)
    kind = f"{_called(name, parameters)!r}, {parameters['level']!r}, {parameters['nbi']}, {signal}{emitter.mask}"
    emitter.line("yield")
    emitter.line(f"shmem.{function}(C, {kind}, {arguments}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _meeting(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    completes = f", {parameters['completes']}" if "completes" in parameters else ""
    kind = f"{_called(name, parameters)!r}, {parameters['level']!r}{completes}, {emitter.mask}"
    arguments = ", ".join(emitter.values(operation))
    module = "shmem_collectives" if name == "shmem_alltoall" else "shmem"
    emitter.line(f"yield from {module}.{name.removeprefix('shmem_')}(C, {kind}, {arguments}, {emitter.location_number()})")
    emitter.alias(operation.results[0], "0")


def _reduction(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    kind = f"{_called(name, parameters)!r}, {parameters['level']!r}, {parameters['op']!r}, {parameters['type']!r}, {emitter.mask}"
    arguments = ", ".join(emitter.values(operation))
    emitter.line(f"yield from shmem_collectives.reduce(C, {kind}, {arguments}, {emitter.location_number()})")
    emitter.alias(operation.results[0], "0")


def _signal(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    size, values = operation.operand_types[1].dtype.itemsize, emitter.values(operation)
    function = _choice(parameters["op"], "signal_operation", values)
    emitter.line(f"shmem.signal(C, {function}, {size}, {emitter.mask}, {', '.join(values)}, {emitter.location_number()})")
    emitter.line("yield")
    emitter.alias(operation.results[0], "0")


def _signal_wait(emitter: FunctionEmitter, operation: Operation, parameters: dict[str, str], name: str) -> None:
    dtype, values = emitter.module.dtype(operation.operand_types[1].dtype), emitter.values(operation)
    where = f"{_choice(parameters['cmp'], 'comparison', values)}, {dtype}, {emitter.location_number()}"
    arguments = ", ".join(values)
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
    "shmem_alltoall": _meeting,
    "shmem_reduce": _reduction,
}


def shmem_handler(name: str):
    """What emits the SHMEM row ``name``, as the handlers of the other primitives are called; None if it is none."""
    emit = _EMITTERS.get(name)
    if emit is None:
        return None
    return lambda emitter, operation, parameters: emit(emitter, operation, parameters, name)
