"""Builtins behind the functions that make vectors and take them apart; their callers in ``thread_functions`` carry the stamp."""

from __future__ import annotations

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives.values import describe, unwrap
from triton_dist.primitives.vector import join_bits, split_bits, vector


@tl.core.builtin
def build(args, stamp=None, _semantic=None):
    """``make_vector``."""
    args = unwrap(args)
    if not isinstance(args, tuple | list | tl.tuple | vector):
        raise PrimitiveArgumentError(f"make_vector: argument 'args' is {describe(args)}; allowed: a tuple or list of scalars")
    return vector(list(args), _semantic=_semantic)


@tl.core.builtin
def zeros(vec_size, dtype, stamp=None, _semantic=None):
    """``zeros_vector``."""
    size, element = unwrap(vec_size), unwrap(dtype)
    if not isinstance(size, int) or isinstance(size, bool):
        raise PrimitiveArgumentError(f"zeros_vector: argument 'vec_size' is {describe(size)}; allowed: an integer known when compiling")
    if not isinstance(element, tl.dtype):
        raise PrimitiveArgumentError(f"zeros_vector: argument 'dtype' is {describe(element)}; allowed: a type such as tl.float32")
    zero = _semantic.cast(_semantic.to_tensor(0), element)
    return vector([zero] * size)


@tl.core.builtin
def join(src, dst_type, stamp=None, _semantic=None):
    """``pack``."""
    if not isinstance(src, vector):
        raise PrimitiveArgumentError(f"pack: argument 'src' is {describe(src)}; allowed: a vector")
    return join_bits(_semantic, src.values, unwrap(dst_type))


@tl.core.builtin
def split(src, dst_type, stamp=None, _semantic=None):
    """``unpack``."""
    if not isinstance(src, tl.tensor) or isinstance(src, vector) or src.type.is_block():
        raise PrimitiveArgumentError(f"unpack: argument 'src' is {describe(src)}; allowed: a scalar")
    return vector(split_bits(_semantic, src, unwrap(dst_type)))
