"""What is emitted besides, for a run that looks for data races: where an access stands in the source, what it orders, and barriers.

The functions that access memory report by themselves (``check.checker``); generated code only sets ``C.at``, ``C.order`` and ``C.active``
before their calls, and only in kernels that were generated for such a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .check.order import ORDERS, SCOPES, VOLATILE, Order
from .ir import Operation

if TYPE_CHECKING:
    from .codegen import FunctionEmitter

_PLAIN = ("tt.load", "tt.store", "tt.descriptor_")
_ATOMIC = ("tt.atomic_",)
_UPDATES = ("tt.atomic_rmw", "tt.atomic_cas")
_BARRIERS = ("gpu.barrier", "ttg.barrier")

_SEMANTICS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}
_SCOPES = {1: "gpu", 2: "cta", 3: "sys"}
"""Semantics and scopes of Triton's atomics, numbered as in the IR."""

_DEFAULT_SEMANTIC = {"tt.atomic_load": "acquire", "tt.atomic_store": "release", "tt.atomic_poll": "acquire"}


def _parameters(operation: Operation) -> tuple[str, dict[str, str]]:
    """Name and parameters of a primitive; an empty name for another op."""
    symbol = str(operation.attributes.get("symbol", ""))
    if operation.name != "tt.extern_elementwise" or not symbol.startswith("td."):
        return "", {}
    name, *pairs = symbol.split(";")
    return name[3:], dict(pair.split("=", 1) for pair in pairs)


def _order(operation: Operation, parameters: dict[str, str]) -> Order | None:
    """What an op orders, if it is an atomic access."""
    if operation.name.startswith(_ATOMIC):
        semantic = _SEMANTICS.get(operation.attributes.get("sem", 0), _DEFAULT_SEMANTIC.get(operation.name, "acq_rel"))
        return ORDERS[semantic, _SCOPES.get(operation.attributes.get("scope", 1), "gpu")]
    if operation.name == "tt.load" and operation.attributes.get("isVolatile"):
        return VOLATILE
    if "sem" in parameters and parameters.get("scope") in SCOPES:
        return ORDERS[parameters["sem"], parameters["scope"]]
    return None


def emit_checked(emitter: FunctionEmitter, operation: Operation, begin: int) -> None:
    """Add to what the handler of an op has emitted from line number ``begin`` on."""
    name, parameters = _parameters(operation)
    if operation.name in _BARRIERS:
        emitter.line("C.race.block_barrier()")
        return
    if name == "fence":
        mask = emitter.mask or "None"
        if parameters["scope"] != "cta":
            emitter.line(f"C.race.bulk_waited({mask})")
        emitter.line(f"C.race.fence({SCOPES[parameters['scope']]}, thread_of({mask}, C.threads))")
        return
    order = _order(operation, parameters)
    if operation.name in _UPDATES and order is not None and operation.result_types[0].shape is None:
        order = replace(order, alone=not emitter.facts.users[operation.results[0]])
    if not name and order is None and not operation.name.startswith(_PLAIN):
        return
    lines = emitter.module.lines
    if len(lines) == begin:
        return  # nothing is done
    if lines[begin].strip() == "yield":
        begin += 1  # what runs there may set the same
    state = [f"C.at = {emitter.location_number()}"]
    after = []
    if name and order is not None and order.release:
        state.append(f"C.race.bulk_waited({emitter.mask or 'None'})")
    if order is not None:
        state.append(f"C.order = {emitter.module.constant(order, 'order')}")
        after.append("C.order = None")
    if emitter.mask is not None:
        state.append(f"C.active = {emitter.mask}")
        after.append("C.active = None")
    emitter.module.lines.insert(begin, "    " * emitter.indent + "; ".join(state))
    emitter.module.locations.insert(begin, emitter.location)
    if after:
        emitter.line("; ".join(after))
