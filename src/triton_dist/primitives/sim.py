"""Lowering for the simulator: each primitive becomes one opaque operation whose symbol carries its compile-time choices.

The symbol is ``td.<name>`` followed by ``;key=value`` pairs in alphabetical order. Operands keep the order of the table.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.primitives import sim_threads
from triton_dist.primitives.call import Call, Lowering
from triton_dist.primitives.table import PRIMITIVES, Result

_LIBRARY = "triton_dist"
_PARAMETERS_LEFT_OUT = {"rank": ("axis",), "num_ranks": ("axis",), "fence": ("order",)}


def symbol_of(call: Call) -> str:
    """The name under which the simulator finds what to do."""
    left_out = _PARAMETERS_LEFT_OUT.get(call.primitive.name, ())
    pairs = sorted((choice.key, call.choice(choice.name)) for choice in call.primitive.choices if choice.name not in left_out)
    return ";".join([f"td.{call.primitive.name}", *(f"{key}={value}" for key, value in pairs)])


def emit_opaque(semantic: Any, call: Call) -> tl.tensor:
    """Emits the operation; one without a result returns an int32 that nobody reads."""
    builder = semantic.builder
    result = tl.int32 if call.result is None else call.result
    handles = [call[operand.name].handle for operand in call.primitive.operands]
    handle = builder.create_extern_elementwise(_LIBRARY, "", symbol_of(call), handles, result.to_ir(builder), call.primitive.pure)
    return tl.tensor(handle, result)


def consume_token(semantic: Any, call: Call) -> tl.tensor:
    """Splats the token to the value's shape, since an elementwise operation takes operands of one shape."""
    value, token = call["value"], call["token"]
    if value.type.is_block():
        token = semantic.splat(token, value.type.get_block_shapes())
    return emit_opaque(semantic, Call(call.primitive, {"value": value, "token": token}, call.choices, call.result))


def symm_at(semantic: Any, call: Call) -> tl.tensor:
    """Gives the pointer and the rank one shape."""
    ptr, rank = semantic.broadcast_impl_value(call["ptr"], call["rank"])
    return emit_opaque(semantic, Call(call.primitive, {"ptr": ptr, "rank": rank}, call.choices, ptr.type))


def syncthreads(semantic: Any, call: Call) -> None:
    """The simulator knows Triton's own block barrier."""
    semantic.debug_barrier()


LOWERINGS: dict[str, Lowering] = {name: emit_opaque for name, row in PRIMITIVES.items() if row.result is not Result.CONSTEXPR}
LOWERINGS["symm_at"] = symm_at
LOWERINGS["consume_token"] = consume_token
LOWERINGS["syncthreads"] = syncthreads
LOWERINGS |= sim_threads.lowerings(emit_opaque)
