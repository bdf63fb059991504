"""The integer functions of libdevice: bit counts, permutations, high halves of products, averages, absolute differences.

All functions take one-dimensional arrays of one length whose dtype is the symbol's own (unsigned symbols: uint32 or uint64), wrap on
overflow as the hardware does, and are called by ``libdevice.LibdeviceFunction`` under ``np.errstate``.
"""

from __future__ import annotations

import numpy as np

from triton_dist.sim.ops.libdevice_rounding import Array

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


def _bit_length_32(a: Array) -> Array:
    """How many bits a number below 2**32 needs (int32); a double holds it exactly, so its exponent tells."""
    return np.frexp(a.astype(np.float64))[1]


def count_leading_zeros(a: Array) -> Array:
    """The number of zero bits above the highest one, of uint32 or uint64; the width for 0. int32."""
    if a.dtype == np.uint32:
        return 32 - _bit_length_32(a)
    high = a >> _HALF_BITS
    return np.where(high != 0, 32 - _bit_length_32(high), 64 - _bit_length_32(a & _LOW_HALF))


def find_first_set(a: Array) -> Array:
    """1 + the position of the lowest set bit of uint32 or uint64, 0 for 0. int32."""
    lowest = a & (~a + a.dtype.type(1))
    # A power of two is exact in a double at either width.
    return np.frexp(lowest.astype(np.float64))[1]


def count_ones(a: Array) -> Array:
    """The number of set bits of uint32 or uint64. int32."""
    return np.bitwise_count(a).astype(np.int32)


def reverse_bits(a: Array) -> Array:
    """The bits of uint32 or uint64 in reverse order."""
    reversed_bits = a.byteswap()
    for shift, pattern in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        mask = a.dtype.type(int.from_bytes(bytes([pattern]) * a.dtype.itemsize, "little"))
        amount = a.dtype.type(shift)
        reversed_bits = ((reversed_bits >> amount) & mask) | ((reversed_bits & mask) << amount)
    return reversed_bits


def permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes picked from ``b:a`` (uint32): the low 3 bits of each nibble of ``selector`` name the byte, 0 the lowest one of ``a``."""
    source = (b.astype(np.uint64) << _HALF_BITS) | a
    result = np.zeros_like(a)
    for byte in range(4):
        position = (selector >> np.uint32(4 * byte)) & np.uint32(7)
        picked = (source >> (position.astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)
        result |= picked.astype(np.uint32) << np.uint32(8 * byte)
    return result


def multiply_high_32(a: Array, b: Array) -> Array:
    """The upper 32 bits of the 64-bit product of int32 or uint32."""
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    return ((a.astype(wide) * b.astype(wide)) >> wide(32)).astype(a.dtype)


def multiply_high_64(a: Array, b: Array) -> Array:
    """The upper 64 bits of the 128-bit product of int64 or uint64, by 32-bit halves."""
    x, y = a.view(np.uint64), b.view(np.uint64)
    x_low, x_high = x & _LOW_HALF, x >> _HALF_BITS
    y_low, y_high = y & _LOW_HALF, y >> _HALF_BITS
    middle = x_high * y_low + ((x_low * y_low) >> _HALF_BITS)
    carry = x_low * y_high + (middle & _LOW_HALF)
    high = x_high * y_high + (middle >> _HALF_BITS) + (carry >> _HALF_BITS)
    if a.dtype == np.int64:
        # A negative operand was read as itself + 2**64.
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def multiply_24(a: Array, b: Array) -> Array:
    """The lower 32 bits of the product of the lower 24 bits, of int32 (sign-extended) or uint32."""
    eight = a.dtype.type(8)
    return ((a << eight) >> eight) * ((b << eight) >> eight)


def sum_of_absolute_difference(a: Array, b: Array, c: Array) -> Array:
    """``|a - b| + c``: a and b int32 or uint32, c uint32; as uint32, wrapping."""
    difference = np.abs(a.astype(np.int64) - b.astype(np.int64))
    return (difference + c.astype(np.int64)).astype(np.uint32)


def average_down(a: Array, b: Array) -> Array:
    """(a + b) >> 1 without overflow, int32 or uint32."""
    return ((a.astype(np.int64) + b) >> np.int64(1)).astype(a.dtype)


def average_up(a: Array, b: Array) -> Array:
    """(a + b + 1) >> 1 without overflow, int32 or uint32."""
    return ((a.astype(np.int64) + b + 1) >> np.int64(1)).astype(a.dtype)
