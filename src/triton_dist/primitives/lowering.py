"""From a call in a kernel to IR: checks the arguments against the table, picks the target, and lets its module emit.

``emit`` is a Triton builtin. Its text is not in Triton's cache key, so every caller (the jit functions in ``functions.py``)
passes the stamp of these modules as a literal, which is; see ``stamp.py``.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import arguments, cuda, hip, nvshmem, shmem, sim
from triton_dist.primitives.call import Call, Lowering
from triton_dist.primitives.table import PRIMITIVES, Kind, Primitive, Result
from triton_dist.primitives.vector import vector

TARGETS: dict[str, dict[str, Lowering]] = {
    "cuda": cuda.LOWERINGS | shmem.LOWERINGS,
    "nvshmem": cuda.LOWERINGS | shmem.LOWERINGS | nvshmem.LOWERINGS,
    "hip": hip.LOWERINGS | shmem.LOWERINGS,
    "sim": sim.LOWERINGS,
}
"""Lowerings by target, then by primitive."""

_DEFAULT_SEMANTIC = {"wait": "acquire", "ld_vector": "weak", "st_vector": "weak"}


def target_of(options: Any) -> str:
    """The target that a kernel is being compiled for: "cuda", "nvshmem" (CUDA with NVSHMEM's device library), "hip" or "sim"."""
    if getattr(options, "simulated", False):
        return "sim"
    if nvshmem.is_given(options):
        return "nvshmem"
    name = getattr(options, "backend_name", None)
    known = [target for target in TARGETS if target != "nvshmem"]
    if name not in known:
        raise PrimitiveArgumentError(f"triton_dist has no lowering for the Triton backend {name!r}; it has: {', '.join(known)}")
    return name


@tl.core.builtin
def emit(name, *operands, function=None, stamp=None, sem=None, _semantic=None, _generator=None, **choices):
    """Emits one primitive.

    ``name`` is its row in the table and ``operands`` are in the table's order; ``choices`` are its compile-time parameters.
    ``function`` is the name that the user called, for messages. ``stamp`` is unused here: it puts the version of the
    lowerings into the caller's cache key. Raises PrimitiveArgumentError for an argument the table does not allow.
    """
    primitive = PRIMITIVES[arguments.unwrap(name)]
    function = arguments.unwrap(function) or primitive.name
    if primitive.name == "st" and isinstance(arguments.unwrap(operands[1]), vector):
        primitive = PRIMITIVES["st_vector"]
    if any(choice.name == "semantic" for choice in primitive.choices):
        default = _DEFAULT_SEMANTIC.get(primitive.name, "relaxed")
        choices["semantic"] = arguments.one_of_two_names(function, choices.get("semantic"), sem, default)
    checked = {choice.name: arguments.check_choice(function, choice, choices[choice.name]) for choice in primitive.choices}
    if _needs_nothing(primitive.operands, operands):
        return operands[0]
    values = arguments.check_operands(_semantic, function, primitive, operands)
    constants = {row.name: arguments.unwrap(value) for row, value in zip(primitive.operands, operands, strict=True)}
    constants = {name: value for name, value in constants.items() if isinstance(value, int)}
    call = Call(primitive, values, checked, _result_type(primitive, values), constants, _generator)
    result = TARGETS[target_of(_semantic.builder.options)][primitive.name](_semantic, call)
    if primitive.name == "wait":
        # Without it Triton 3.9 merges loads across the wait, and warps that polled other words are not ordered.
        _semantic.debug_barrier()
    return None if primitive.result is Result.NONE else result


@tl.core.builtin
def polls_in_assembly(_semantic=None):
    """Whether ``emit_poll`` is there for the target, constexpr."""
    return tl.constexpr(target_of(_semantic.builder.options) in ("cuda", "nvshmem"))


@tl.core.builtin
def emit_poll(ptr, value, cmp, stamp=None, _semantic=None, _generator=None):
    """Emits one thread's wait for one word; ``value`` has the word's type. ``stamp`` as for ``emit``."""
    return cuda.poll(_semantic, _generator, ptr, value, arguments.unwrap(cmp))


@tl.core.builtin
def num_warps(_semantic=None):
    """Warps of the block, constexpr."""
    return tl.constexpr(_semantic.builder.options.num_warps)


@tl.core.builtin
def threads_per_warp(_semantic=None):
    """Threads of a warp, constexpr: 32 on NVIDIA, 64 on AMD's data-centre GPUs."""
    return tl.constexpr(getattr(_semantic.builder.options, "warp_size", 32))


@tl.core.builtin
def num_threads(_semantic=None):
    """Threads of the block, constexpr: num_warps * threads_per_warp."""
    return tl.constexpr(num_warps(_semantic=_semantic).value * threads_per_warp(_semantic=_semantic).value)


def _needs_nothing(rows: tuple, operands: tuple) -> bool:
    """Whether a token is consumed by something that the wait's block barrier orders by itself: a descriptor or a block pointer."""
    if not rows or rows[0].kind is not Kind.ANY:
        return False
    value = operands[0]
    if isinstance(value, tl.tensor):
        return value.type.is_ptr() and value.type.element_ty.is_block()
    return isinstance(value, tl.core.tensor_descriptor_base)


def _result_type(primitive: Primitive, values: dict[str, Any]) -> Any:
    """Type of the value that a primitive returns, None for nothing."""
    if primitive.result in (Result.INT32, Result.TOKEN):
        return tl.int32
    if primitive.result is Result.SAME:
        shaped = [value.type for value in values.values() if value.type.is_block()]
        first = values[primitive.operands[0].name].type
        return shaped[0].with_element_ty(first.scalar) if shaped else first
    if primitive.result is Result.SECOND:
        return values[primitive.operands[1].name].type
    if primitive.result in (Result.ELEMENT, Result.VECTOR):
        return values[primitive.operands[0].name].dtype.element_ty
    return None
