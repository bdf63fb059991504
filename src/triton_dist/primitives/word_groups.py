"""Builtins behind the functions that take several words at once, and multicast; their callers in ``word_functions`` carry the stamp."""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import lowering
from triton_dist.primitives.call import with_type
from triton_dist.primitives.values import describe, unwrap
from triton_dist.primitives.vector import vector

_PACKINGS = {"fp32": "f32", "fp16": "f16x2", "bf16": "bf16x2"}
"""By the element's type: what a 32-bit word of a multicast access holds."""


@tl.core.builtin
def pointer_to(ptr, dtype, function, stamp=None, _semantic=None):
    """A scalar pointer, pointing to ``dtype``. Raises PrimitiveArgumentError for anything else."""
    _check_pointer(unwrap(function), ptr)
    return with_type(_semantic, ptr, unwrap(dtype))


@tl.core.builtin
def words_of(values, dtype, function, stamp=None, _semantic=None):
    """A vector of ``dtype`` with the bits of scalars of the same width. Raises PrimitiveArgumentError for other widths."""
    return _words(_semantic, unwrap(function), unwrap(values), unwrap(dtype))


@tl.core.builtin
def multimem_store(ptr, values, dtype, function, stamp=None, _semantic=None, _generator=None):
    """Stores words of ``dtype`` (int32 or int64); several of them are of the floating type that ``ptr`` points to."""
    name, word = unwrap(function), unwrap(dtype)
    _check_pointer(name, ptr)
    words = _words(_semantic, name, unwrap(values), word)
    kind = f"b{word.primitive_bitwidth}" if len(words) == 1 else _packing(name, ptr)
    place = with_type(_semantic, ptr, word)
    lowering.emit("multimem_st", place, words, type=kind, function=function, _semantic=_semantic, _generator=_generator)


@tl.core.builtin
def multimem_sum(ptr, vec_size, acc_dtype, function, stamp=None, _semantic=None, _generator=None):
    """Words of the sum over the team, as float32 where ``ptr`` points to that, else two elements in an int32."""
    name, accumulator = unwrap(function), unwrap(acc_dtype)
    _check_pointer(name, ptr)
    kind = _packing(name, ptr)
    if accumulator not in (None, tl.float32, ptr.dtype.element_ty):
        raise PrimitiveArgumentError(
            f"{name}: argument 'acc_dtype' is {describe(accumulator)}; allowed: tl.float32, None for it, or the type that ptr points to"
        )
    own = "own" if accumulator not in (None, tl.float32) else "f32"
    place = with_type(_semantic, ptr, tl.int32)
    words = lowering.emit(
        "multimem_ld_reduce",
        place,
        type=kind,
        accumulator=own,
        vec_size=vec_size,
        function=function,
        _semantic=_semantic,
        _generator=_generator,
    )
    return words.recast(tl.float32, _semantic=_semantic) if kind == "f32" else words


def _check_pointer(function: str, ptr: Any) -> None:
    if not isinstance(ptr, tl.tensor) or isinstance(ptr, vector) or ptr.type.is_block() or not ptr.dtype.is_ptr():
        raise PrimitiveArgumentError(f"{function}: argument 'ptr' is {describe(ptr)}; allowed: a scalar pointer")


def _words(semantic: Any, function: str, values: Any, word: tl.dtype) -> vector:
    words = []
    for number, value in enumerate(values):
        value = unwrap(value)
        if isinstance(value, int) and not isinstance(value, bool):
            value = semantic.scalar_constant(value, dtype=tl.core.get_int_dtype(word.primitive_bitwidth, signed=value < 0))
        scalar = isinstance(value, tl.tensor) and not isinstance(value, vector) and not value.type.is_block()
        if not scalar or value.dtype.is_ptr() or value.dtype.primitive_bitwidth != word.primitive_bitwidth:
            raise PrimitiveArgumentError(
                f"{function}: argument 'val{number}' is {describe(value)}; allowed: a scalar of {word.primitive_bitwidth} bits"
            )
        words.append(semantic.bitcast(value, word))
    return vector(words)


def _packing(function: str, ptr: tl.tensor) -> str:
    element = ptr.dtype.element_ty.name
    if element not in _PACKINGS:
        raise PrimitiveArgumentError(
            f"{function}: argument 'ptr' points to {element}; allowed: a pointer to {', '.join(_PACKINGS)} (cast it with .to)"
        )
    return _PACKINGS[element]
