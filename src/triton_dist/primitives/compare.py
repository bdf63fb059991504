"""The compares of a wait, as a jit function in plain Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def holds(seen, value, CMP: tl.constexpr):
    """Whether ``seen`` compares to ``value`` as ``CMP`` says ("eq", "ne", "gt", "ge", "lt", "le"), both of one integer type.

    Looks at the sign of the difference, which survives wrap-around. The difference is taken in 64 bits, where Triton adds
    no overflow check, and cut back.
    """
    word: tl.constexpr = tl.int64 if seen.dtype.primitive_bitwidth == 64 else tl.int32
    difference = (seen.to(tl.int64) - value.to(tl.int64)).to(word)
    if CMP == "eq":
        result = difference == 0
    elif CMP == "ne":
        result = difference != 0
    elif CMP == "gt":
        result = difference > 0
    elif CMP == "ge":
        result = difference >= 0
    elif CMP == "lt":
        result = difference < 0
    else:
        result = difference <= 0
    return result
