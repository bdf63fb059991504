"""One checked use of a primitive, as the lowering modules receive it, and the few emission functions they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import triton.language as tl

from triton_dist.primitives.table import Primitive


@dataclass(frozen=True)
class Call:
    """A primitive with its operands (checked and converted) and its compile-time choices, keyed by their public names.

    ``result`` is the type of the value to return, None for nothing. ``constants`` has the operands that were Python ints.
    ``generator`` is Triton's code generator, for lowerings that are themselves a jit function.
    """

    primitive: Primitive
    operands: Mapping[str, Any]
    choices: Mapping[str, str | int]
    result: Any
    constants: Mapping[str, int] = field(default_factory=dict)
    generator: Any = None

    def __getitem__(self, name: str) -> Any:
        """The operand with that public name."""
        return self.operands[name]

    def choice(self, name: str) -> Any:
        """The value of the compile-time parameter with that public name."""
        return self.choices[name]


Lowering = Callable[[Any, Call], Any]
"""A function of (Triton's semantic object, the call) that emits IR and returns a tensor, or None."""


def constant(semantic: Any, value: int, dtype: tl.dtype) -> tl.tensor:
    """A scalar constant of an integer type."""
    return semantic.scalar_constant(value, dtype=dtype)


def inline_asm(semantic: Any, text: str, constraints: str, operands: Sequence[tl.tensor], result: tl.dtype, *, pure: bool) -> tl.tensor:
    """Emits target assembly on scalars, run by every thread that reaches it; returns its one output."""
    builder = semantic.builder
    handles = [operand.handle for operand in operands]
    operation = builder.create_inline_asm(text, constraints, handles, [result.to_ir(builder)], pure, 1)
    return tl.tensor(operation.get_result(0), result)


def as_carrier(semantic: Any, value: tl.tensor) -> tl.tensor:
    """The bits of a scalar in a register that assembly takes: int64 for 64 bits, else int32 with the upper bits zero."""
    bits = value.dtype.primitive_bitwidth
    integer = semantic.bitcast(value, tl.core.get_int_dtype(bits, signed=False))
    return semantic.cast(integer, carrier_type(bits))


def carrier_type(bits: int) -> tl.dtype:
    """The type of the register that carries a scalar of that width."""
    return tl.int64 if bits == 64 else tl.int32


def from_carrier(semantic: Any, value: tl.tensor, dtype: tl.dtype) -> tl.tensor:
    """The inverse of ``as_carrier``."""
    integer = semantic.cast(value, tl.core.get_int_dtype(dtype.primitive_bitwidth, signed=False))
    return semantic.bitcast(integer, dtype)


def with_type(semantic: Any, ptr: tl.tensor, element: tl.dtype) -> tl.tensor:
    """The same pointer, pointing to ``element``."""
    return semantic.cast(ptr, tl.pointer_type(element, ptr.dtype.address_space))


def call_function(call: Call, function: Any, operands: Sequence[Any]) -> Any:
    """Calls a jit function from a lowering, as Triton's own builtins do for a reduction's combine function."""
    return call.generator.call_JitFunction(function, list(operands), {})
