"""A small vector of scalars that each thread holds in registers, as a Triton value.

Elements are kept apart while the kernel is traced, so that a vector costs nothing by itself. It is a ``tl.tensor`` for Triton's code
generator only, which then lets its operators meet constants and scalars; it has no handle, and no tile op takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives.values import describe, unwrap

MAX_VECTOR_SIZE = 128
"""Most elements of a vector."""


class vector_type(tl.core.base_type):
    """Type of a vector: the element's type and their number, a power of two."""

    def __init__(self, elem_type: tl.dtype, vec_size: int) -> None:
        self.elem_type = elem_type
        self.vec_size = vec_size
        self.name = f"{elem_type}_v{vec_size}"

    @property
    def scalar(self) -> tl.dtype:
        """Type of an element."""
        return self.elem_type

    def is_block(self) -> bool:
        """A vector is not a tile."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, vector_type) and (self.elem_type, self.vec_size) == (other.elem_type, other.vec_size)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def mangle(self) -> str:
        """Part of the name of a function that takes it."""
        return f"V{self.vec_size}_{self.elem_type.mangle()}_V"

    def _flatten_ir_types(self, builder: Any, out: list) -> None:
        for _ in range(self.vec_size):
            self.elem_type._flatten_ir_types(builder, out)

    def _unflatten_ir(self, handles: list, cursor: int) -> tuple[vector, int]:
        values = []
        for _ in range(self.vec_size):
            value, cursor = self.elem_type._unflatten_ir(handles, cursor)
            values.append(value)
        return vector(values), cursor


class vector(tl.tensor):
    """A vector of 1 to 128 scalars of one type, a power of two of them; each thread has its own.

    ``args`` are the elements: scalars, or Python numbers beside at least one scalar. In a kernel use ``make_vector`` or ``zeros_vector``.
    ``+``, ``-`` and ``*`` take a vector of the same size or a scalar, element by element, with Triton's type rules; the vector stands on
    the left, unless the other side is a number. Raises PrimitiveArgumentError for elements of different types and for other sizes.
    """

    __triton_builtin__ = True

    def __init__(self, args: Sequence, _semantic: Any = None) -> None:
        values = [unwrap(value) for value in unwrap(args)]
        if not 1 <= len(values) <= MAX_VECTOR_SIZE or len(values) & (len(values) - 1):
            raise PrimitiveArgumentError(
                f"a vector has 1 to {MAX_VECTOR_SIZE} elements, a power of two of them; this one has {len(values)}"
            )
        kinds = {str(value.type): value.type for value in values if isinstance(value, tl.tensor)}
        if len(kinds) != 1 or next(iter(kinds.values())).is_block() or isinstance(next(iter(kinds.values())), vector_type):
            seen = ", ".join(describe(value) for value in values)
            raise PrimitiveArgumentError(f"the elements of a vector are scalars of one type; these are {seen}")
        elem_type = next(iter(kinds.values()))
        self.values = [value if isinstance(value, tl.tensor) else _cast(value, elem_type, _semantic) for value in values]
        self.type = vector_type(elem_type, len(values))
        self.dtype = elem_type

    def _flatten_ir(self, handles: list) -> None:
        for value in self.values:
            value._flatten_ir(handles)

    def _set_name(self, builder: Any, name: str) -> None:
        for number, value in enumerate(self.values):
            value._set_name(builder, f"{name}.{number}")

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tl.tensor]:
        return iter(self.values)

    def __str__(self) -> str:
        return f"vector of {self.type}"

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        if name == "handle":
            raise PrimitiveArgumentError(f"a {self} can't be used here; only its elements can: take v[0], v[1], ...")
        raise AttributeError(f"a vector has no attribute {name!r}")

    @tl.core.builtin
    def __getitem__(self, idx, _semantic=None):
        """The element at a constant index."""
        return self.values[self._position(idx)]

    @tl.core.builtin
    def __setitem__(self, idx, value, _semantic=None):
        """Replaces the element at a constant index. In a kernel ``v[i] = x`` makes a new vector: see ``with_element``."""
        self.values[self._position(idx)] = _cast(value, self.dtype, _semantic)

    def with_element(self, idx: Any, value: Any, semantic: Any) -> vector:
        """A vector that differs in one element, converted to the element's type. What ``v[i] = x`` becomes."""
        changed = vector(self.values)
        changed.__setitem__(idx, value, _semantic=semantic)
        return changed

    def _position(self, idx: Any) -> int:
        seen = unwrap(idx)
        if isinstance(seen, tl.tuple) and len(seen) == 1:
            seen = unwrap(seen[0])
        if not isinstance(seen, int) or isinstance(seen, bool):
            raise PrimitiveArgumentError(
                f"the index of a vector is known when the kernel is compiled (a literal, or from tl.static_range), not {describe(idx)}"
            )
        if not -len(self) <= seen < len(self):
            raise PrimitiveArgumentError(f"index {seen} is outside a vector of {len(self)} elements")
        return seen % len(self)

    def _each(self, name: str, other: Any, semantic: Any) -> vector:
        other = unwrap(other)
        if isinstance(other, vector):
            if len(other) != len(self):
                raise PrimitiveArgumentError(f"vectors of {len(self)} and of {len(other)} elements can't be combined")
            others = list(other)
        elif isinstance(other, tl.tensor) and other.type.is_block():
            raise PrimitiveArgumentError(f"a vector is combined with a vector or a scalar, not with {describe(other)}")
        else:
            others = [other] * len(self)
        return vector([getattr(value, name)(right, _semantic=semantic) for value, right in zip(self, others, strict=True)])

    @tl.core.builtin
    def __add__(self, other, _semantic=None):
        """Element-wise sum."""
        return self._each("__add__", other, _semantic)

    @tl.core.builtin
    def __radd__(self, other, _semantic=None):
        return self._each("__radd__", other, _semantic)

    @tl.core.builtin
    def __sub__(self, other, _semantic=None):
        """Element-wise difference."""
        return self._each("__sub__", other, _semantic)

    @tl.core.builtin
    def __rsub__(self, other, _semantic=None):
        return self._each("__rsub__", other, _semantic)

    @tl.core.builtin
    def __mul__(self, other, _semantic=None):
        """Element-wise product."""
        return self._each("__mul__", other, _semantic)

    @tl.core.builtin
    def __rmul__(self, other, _semantic=None):
        return self._each("__rmul__", other, _semantic)

    @tl.core.builtin
    def recast(self, new_elem_dtype, _semantic=None):
        """The same bits as elements of another type; narrower elements come lowest bits first, as they lie in memory."""
        dtype = unwrap(new_elem_dtype)
        old_bits, new_bits = self.dtype.primitive_bitwidth, dtype.primitive_bitwidth
        if old_bits >= new_bits:
            return vector([piece for value in self for piece in split_bits(_semantic, value, dtype)])
        ratio = new_bits // old_bits
        if len(self) % ratio:
            raise PrimitiveArgumentError(f"recast: {len(self)} elements of {self.dtype} are not a whole number of {dtype}")
        groups = [self.values[start : start + ratio] for start in range(0, len(self), ratio)]
        return vector([join_bits(_semantic, group, dtype) for group in groups])

    @tl.core.builtin
    def to(self, dtype, fp_downcast_rounding=None, bitcast=False, _semantic=None):
        """Each element converted, with the keywords of ``tl.cast``."""
        rounding, bits = unwrap(fp_downcast_rounding), unwrap(bitcast)
        return vector([tl.cast(value, unwrap(dtype), rounding, bits, _semantic=_semantic) for value in self])


def split_bits(semantic: Any, value: tl.tensor, dtype: tl.dtype) -> list[tl.tensor]:
    """The bits of a scalar as values of a type that is not wider, lowest bits first. Raises PrimitiveArgumentError."""
    bits, part = value.dtype.primitive_bitwidth, dtype.primitive_bitwidth
    if part < 8 or part > bits:
        raise PrimitiveArgumentError(f"a value of {value.dtype}, of {bits} bits, can't be split into {dtype}")
    if part == bits:
        return [tl.cast(value, dtype, bitcast=True, _semantic=semantic)]
    whole = semantic.bitcast(value, tl.core.get_int_dtype(bits, signed=False))
    pieces = []
    for number in range(bits // part):
        amount = semantic.scalar_constant(number * part, dtype=whole.dtype)
        shifted = semantic.lshr(whole, amount) if number else whole
        pieces.append(semantic.bitcast(semantic.cast(shifted, tl.core.get_int_dtype(part, signed=False)), dtype))
    return pieces


def join_bits(semantic: Any, values: Sequence[tl.tensor], dtype: tl.dtype) -> tl.tensor:
    """Scalars of one type as one value of ``dtype``, the first in the lowest bits. Raises PrimitiveArgumentError unless they fill it."""
    part, bits = values[0].dtype.primitive_bitwidth, dtype.primitive_bitwidth
    if part * len(values) != bits or bits > 64 or part < 8:
        raise PrimitiveArgumentError(f"{len(values)} values of {values[0].dtype} do not fill one {dtype}, of {bits} bits")
    wide = tl.core.get_int_dtype(bits, signed=False)
    joined = None
    for number, value in enumerate(values):
        piece = semantic.cast(semantic.bitcast(value, tl.core.get_int_dtype(part, signed=False)), wide)
        if number:
            piece = semantic.shl(piece, semantic.scalar_constant(number * part, dtype=wide))
        joined = piece if joined is None else semantic.or_(joined, piece)
    return semantic.bitcast(joined, dtype)


def _cast(value: Any, dtype: tl.dtype, semantic: Any) -> tl.tensor:
    """A scalar or a number in the element's type."""
    value = unwrap(value)
    if isinstance(value, int | float) and semantic is not None:
        value = semantic.to_tensor(value)
    if not isinstance(value, tl.tensor) or isinstance(value, vector) or value.type.is_block():
        raise PrimitiveArgumentError(f"an element of a vector is a scalar, not {describe(value)}")
    return semantic.cast(value, dtype) if value.dtype != dtype else value
