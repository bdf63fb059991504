"""The numbers that kernels pass. They are ``tl.constexpr``, so that a kernel may use them as globals."""

from __future__ import annotations

import torch
import triton.language as tl

from ...errors import InvalidArgumentError

BACKEND_DEFAULT = tl.constexpr(0)
"""What the context says. The numbers of backends are not those of ``SymmContext.Type``."""
BACKEND_NCCL = tl.constexpr(1)
BACKEND_NVSHMEM = tl.constexpr(2)

REDUCE_OP_SUM = tl.constexpr(0)
REDUCE_OP_MAX = tl.constexpr(1)
REDUCE_OP_MIN = tl.constexpr(2)
REDUCE_OP_PROD = tl.constexpr(3)

DTYPE_FLOAT32 = tl.constexpr(0)
DTYPE_FLOAT16 = tl.constexpr(1)
DTYPE_BFLOAT16 = tl.constexpr(2)
DTYPE_FLOAT64 = tl.constexpr(3)
DTYPE_INT32 = tl.constexpr(4)
DTYPE_INT64 = tl.constexpr(5)

_CODES = {
    torch.float32: DTYPE_FLOAT32,
    torch.float16: DTYPE_FLOAT16,
    torch.bfloat16: DTYPE_BFLOAT16,
    torch.float64: DTYPE_FLOAT64,
    torch.int32: DTYPE_INT32,
    torch.int64: DTYPE_INT64,
}


def dtype_code(dtype: torch.dtype) -> int:
    """The number of a dtype for ``symm_all_reduce``. Raises InvalidArgumentError."""
    if not isinstance(dtype, torch.dtype) or dtype not in _CODES:
        raise InvalidArgumentError(f"symm_all_reduce: {dtype!r} is not one of {', '.join(map(str, _CODES))}")
    return _CODES[dtype].value
