"""Bodies over torch's symmetric library, for every kind of machine."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.dialects.torch_symm import (
    BACKEND_DEFAULT,
    BACKEND_NCCL,
    BACKEND_NVSHMEM,
    DTYPE_FLOAT32,
    REDUCE_OP_MAX,
    REDUCE_OP_MIN,
    REDUCE_OP_PROD,
    REDUCE_OP_SUM,
    NCCLSymmContext,
    SymmContext,
    dtype_code,
    make_context,
    on_device,
    requires_torch_symm,
    symm_all_reduce,
)


def make_my_kernel(backend):
    """The page's recommended pattern."""

    @requires_torch_symm(backend=backend)
    @triton.jit
    def my_kernel(ctx_ptr, buffer_ptr, num_elements: tl.constexpr, backend_hint: tl.constexpr):
        byte_offset: tl.int64 = 0
        n_elems: tl.int64 = num_elements
        result = symm_all_reduce(ctx_ptr, buffer_ptr, byte_offset, n_elems, REDUCE_OP_SUM, DTYPE_FLOAT32, backend_hint)  # noqa: F841

    return my_kernel


@requires_torch_symm
@triton.jit
def constant_kernel(context, buffer, offset, count, status, OP: tl.constexpr, DTYPE: tl.constexpr, HINT: tl.constexpr):
    tl.store(status, symm_all_reduce(context, buffer, offset, count, OP, DTYPE, HINT))


@requires_torch_symm
@triton.jit
def runtime_kernel(context, buffer, offset, count, status, op, dtype, HINT: tl.constexpr):
    """Which operation and type is known only when it runs."""
    tl.store(status, symm_all_reduce(context, buffer, offset, count, op, dtype, HINT))


def status_of(context, buffer, *, offset=0, count=None, op=REDUCE_OP_SUM, dtype=DTYPE_FLOAT32, hint=BACKEND_DEFAULT, kernel=None) -> int:
    """What ``symm_all_reduce`` returns."""
    status = torch.full((1,), 77, dtype=torch.int32, device=triton_dist.device())
    numbers = [number.value if isinstance(number, tl.constexpr) else number for number in (op, dtype, hint)]
    (kernel or constant_kernel)[(1,)](context, buffer, offset, buffer.numel() if count is None else count, status, *numbers)
    triton_dist.synchronize()
    return status.item()


def pages_kernel() -> None:
    """As it is printed, by both hints, context by tensor and by address."""
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    for backend in (BACKEND_DEFAULT, BACKEND_NVSHMEM):
        buffer = triton_dist.symm_empty((1000,))
        for context in (make_context(buffer), make_context(buffer).data_ptr()):
            keep = make_context(buffer)
            buffer.copy_(torch.arange(1000, device=device) + 1000 * rank)
            make_my_kernel(backend)[(1,)](keep if isinstance(context, torch.Tensor) else keep.data_ptr(), buffer, 1000, backend)
            triton_dist.synchronize()
            expected = size * torch.arange(1000.0, device=device) + 1000 * sum(range(size))
            assert torch.equal(buffer, expected), (backend, buffer[:4])


COUNTS = (0, 1, 5, 1023, 1024, 3500)
OPERATIONS = {REDUCE_OP_SUM: "sum", REDUCE_OP_MAX: "amax", REDUCE_OP_MIN: "amin", REDUCE_OP_PROD: "prod"}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64)


def part(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """A rank's elements, whose results are exact in every type."""
    generator = torch.Generator().manual_seed(17 * rank + count)
    return torch.randint(-3, 4, (count,), generator=generator).to(dtype)


def reduces(dtype: torch.dtype, kernel_name: str) -> None:
    """Every operation and count of a type, behind an offset, with elements around it that stay."""
    size, rank, device = triton_dist.world_size(), triton_dist.rank(), triton_dist.device()
    kernel = globals()[kernel_name]
    buffer = triton_dist.symm_empty((4000,), dtype)
    context = make_context(buffer)
    for op, name in OPERATIONS.items():
        for count in COUNTS:
            buffer.fill_(9)
            buffer[16 : 16 + count] = part(rank, count, dtype).to(device)
            code = status_of(context, buffer, offset=16 * dtype.itemsize, count=count, op=op, dtype=dtype_code(dtype), kernel=kernel)
            stacked = torch.stack([part(each, count, dtype) for each in range(size)])
            expected = getattr(stacked.double() if dtype.is_floating_point else stacked, name)(0).to(dtype)
            assert code == 0 and torch.equal(buffer[16 : 16 + count].cpu(), expected), (dtype, name, count)
            assert (buffer[:16] == 9).all() and (buffer[16 + count :] == 9).all(), (dtype, name, count)


def error_codes() -> None:
    """Each code, with constants and with numbers that come at run time; the buffer stays."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    buffer = triton_dist.symm_full((8,), float(rank))
    good = make_context(buffer)
    nccl = on_device(NCCLSymmContext(type=SymmContext.Type.NCCL, rank=rank, world_size=size, local_buffer=buffer.data_ptr()))
    unknown = on_device(SymmContext(type=5, rank=rank, world_size=size))
    other_world = on_device(SymmContext(type=SymmContext.Type.NVSHMEM, rank=rank, world_size=size + 1))
    for kernel in (constant_kernel, runtime_kernel):
        codes = {
            "null": status_of(0, buffer, kernel=kernel),
            "null and more": status_of(0, buffer, op=99, dtype=99, hint=BACKEND_NCCL, kernel=kernel),
            "nccl": status_of(nccl, buffer, kernel=kernel),
            "nccl by hint": status_of(nccl, buffer, hint=BACKEND_NCCL, kernel=kernel),
            "hint of nccl": status_of(good, buffer, hint=BACKEND_NCCL, kernel=kernel),
            "hint of nvshmem": status_of(nccl, buffer, hint=BACKEND_NVSHMEM, kernel=kernel),
            "unknown type": status_of(unknown, buffer, op=99, kernel=kernel),
            "another world": status_of(other_world, buffer, kernel=kernel),
            "operation": status_of(good, buffer, op=4, kernel=kernel),
            "operation below": status_of(good, buffer, op=-1, dtype=99, kernel=kernel),
            "type": status_of(good, buffer, dtype=6, kernel=kernel),
            "type below": status_of(good, buffer, dtype=-1, kernel=kernel),
        }
        assert codes == {
            "null": -1, "null and more": -1, "nccl": -2, "nccl by hint": -2, "hint of nccl": -2, "hint of nvshmem": -2,
            "unknown type": -2, "another world": -2, "operation": -3, "operation below": -3, "type": -4, "type below": -4,
        }, codes  # fmt: skip
        assert (buffer == rank).all()
    assert status_of(good, buffer) == 0


def not_a_number() -> None:
    """A NaN of any rank is one in every result."""
    rank, device = triton_dist.rank(), triton_dist.device()
    buffer = triton_dist.symm_empty((4,))
    context = make_context(buffer)
    for op in OPERATIONS:
        buffer.copy_(torch.tensor([1.0, float("nan") if rank == 1 else 2.0, 3.0, float("inf")], device=device))
        assert status_of(context, buffer, op=op) == 0
        assert buffer.isnan().tolist() == [False, True, False, False], (op, buffer)
