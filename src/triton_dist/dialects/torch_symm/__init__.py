"""torch's symmetric library for Triton kernels (``torch._extern_triton``), on stock Triton, over this package's heap.

The names of its page are here as they are: a kernel that imports them from here runs on the simulator, on CPU processes and on GPUs.
Beside them: more types and operations of ``symm_all_reduce``, and ``make_context``, which makes what the kernels take as ``ctx_ptr``.
"""

from .constants import (
    BACKEND_DEFAULT,
    BACKEND_NCCL,
    BACKEND_NVSHMEM,
    DTYPE_BFLOAT16,
    DTYPE_FLOAT16,
    DTYPE_FLOAT32,
    DTYPE_FLOAT64,
    DTYPE_INT32,
    DTYPE_INT64,
    REDUCE_OP_MAX,
    REDUCE_OP_MIN,
    REDUCE_OP_PROD,
    REDUCE_OP_SUM,
    dtype_code,
)
from .contexts import NCCLSymmContext, NVSHMEMSymmContext, SymmContext, make_context, on_device
from .device import symm_all_reduce
from .kernel import requires_torch_symm

__all__ = [
    "BACKEND_DEFAULT",
    "BACKEND_NCCL",
    "BACKEND_NVSHMEM",
    "DTYPE_BFLOAT16",
    "DTYPE_FLOAT16",
    "DTYPE_FLOAT32",
    "DTYPE_FLOAT64",
    "DTYPE_INT32",
    "DTYPE_INT64",
    "NCCLSymmContext",
    "NVSHMEMSymmContext",
    "REDUCE_OP_MAX",
    "REDUCE_OP_MIN",
    "REDUCE_OP_PROD",
    "REDUCE_OP_SUM",
    "SymmContext",
    "dtype_code",
    "make_context",
    "on_device",
    "requires_torch_symm",
    "symm_all_reduce",
]
