"""Assertions, prints, register reads, library functions, inline assembly, and what a kernel is told about its target."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import cuda, libdevice
from triton.language.target_info import cuda_capability_geq, is_cuda, is_hip

from triton_dist.errors import DeviceAssertionError, UnsupportedOperationError


@triton.jit
def assert_kernel(x, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value < LIMIT, "value is too large")
    tl.device_assert(tl.sum(value) >= 0, "negative sum")


@pytest.mark.parametrize(
    ("values", "message"), [([0, 1, 99, 3], r"value is too large \(first at index \(2,\)"), ([-5, 1, 1, 1], "negative sum")]
)
def test_device_assert_fires_with_its_message_and_line(values, message):
    with pytest.raises(DeviceAssertionError, match=rf"(?s)test_op_debug\.py:\d+.*{message}"):
        assert_kernel[(1,)](torch.tensor(values, dtype=torch.int32), 10, 4, debug=True)


def test_device_assert_holds_or_is_left_out():
    assert_kernel[(1,)](torch.tensor([0, 1, 2, 3], dtype=torch.int32), 10, 4, debug=True)
    assert_kernel[(1,)](torch.tensor([99, 1, 2, 3], dtype=torch.int32), 10, 4)


@triton.jit
def overflow_kernel(out, a, b):
    tl.store(out, tl.load(a) + tl.load(b))


def test_sanitized_overflow_fires():
    """With debug=True Triton checks that signed sums of 32 bits do not overflow."""
    out, a = torch.zeros(1, dtype=torch.int32), torch.tensor([2**31 - 1], dtype=torch.int32)
    overflow_kernel[(1,)](out, a, torch.tensor([0], dtype=torch.int32), debug=True, sanitize_overflow=True)
    with pytest.raises(DeviceAssertionError, match="overflow"):
        overflow_kernel[(1,)](out, a, torch.tensor([1], dtype=torch.int32), debug=True, sanitize_overflow=True)


@triton.jit
def assume_kernel(out, x):
    value = tl.load(x)
    tl.assume(value > 3)
    tl.store(out, value)


def test_a_false_assumption_is_an_error():
    out = torch.zeros(1, dtype=torch.int32)
    assume_kernel[(1,)](out, torch.tensor([5], dtype=torch.int32))
    assert out.item() == 5
    with pytest.raises(DeviceAssertionError, match=r"(?s)test_op_debug\.py:\d+.*assume"):
        assume_kernel[(1,)](out, torch.tensor([3], dtype=torch.int32))


@triton.jit
def print_kernel(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("values", value, tl.program_id(0))
    tl.device_print("hexadecimal", value, hex=True)
    tl.device_print("unsigned", value.to(tl.uint32, bitcast=True))
    tl.device_print("floats", value.to(tl.bfloat16))
    tl.device_print("nothing else")


def test_device_print(capsys):
    print_kernel[(2,)](torch.tensor([1, -2], dtype=torch.int32), 2)
    text = capsys.readouterr().out
    assert "pid (0, 0, 0) values: [ 1 -2]" in text and "pid (1, 0, 0) values: 1" in text
    assert "[0x00000001 0xfffffffe]" in text and "4294967294" in text and "nothing else" in text


@triton.jit
def register_kernel(out, times):
    program = tl.program_id(0)
    tl.store(times + 2 * program, cuda.globaltimer())
    tl.store(out + 3 * program, cuda.smid())
    tl.store(out + 3 * program + 1, cuda.num_threads())
    tl.store(out + 3 * program + 2, cuda.num_warps())
    cuda.gdc_wait()
    cuda.gdc_launch_dependents()
    tl.store(times + 2 * program + 1, cuda.globaltimer())


def test_register_reads():
    out, times = torch.zeros(20, 3, dtype=torch.int32), torch.zeros(20, 2, dtype=torch.int64)
    register_kernel[(20,)](out, times, num_warps=8)
    assert (out[:, 1] == 256).all() and (out[:, 2] == 8).all()
    assert len(set(out[:, 0].tolist())) == 20  # programs that run at once are on different SMs
    assert (times[:, 1] > times[:, 0]).all()


@triton.jit
def assembly_kernel(out, x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    result = tl.inline_asm_elementwise("vadd2.u32.u32.u32 $0, $1, $1, $1;", "=r,r", [value], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + tl.arange(0, BLOCK), result)


def test_unknown_inline_assembly_is_a_named_error_with_its_line():
    x = torch.zeros(4, dtype=torch.int32)
    with pytest.raises(UnsupportedOperationError, match=r"test_op_debug\.py:\d+: inline assembly, line 1 of the assembly, 'vadd2"):
        assembly_kernel[(1,)](x, x, 4)


@triton.jit
def foreign_function_kernel(out, x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), foreign_function(value))


@tl.core.extern
def foreign_function(value, _semantic=None):
    symbols = {(tl.float32,): ("user_defined_function", tl.float32)}
    return tl.core.extern_elementwise("user", "user.bc", [value], symbols, is_pure=True, _semantic=_semantic)


def test_unknown_library_function_is_a_named_error_with_its_line():
    x = torch.zeros(4)
    with pytest.raises(UnsupportedOperationError, match=r"test_op_debug\.py:\d+: .*'user_defined_function'"):
        foreign_function_kernel[(1,)](x, x, 4)


@triton.jit
def library_kernel(out, integers, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.store(out + offsets, libdevice.tanh(value))
    tl.store(out + BLOCK + offsets, libdevice.pow(tl.abs(value), 1.5))
    tl.store(out + 2 * BLOCK + offsets, libdevice.round(value))
    tl.store(out + 3 * BLOCK + offsets, libdevice.acos(value / 10))
    tl.store(out + 4 * BLOCK, libdevice.log1p(tl.load(x)))
    tl.store(integers + offsets, libdevice.popc(offsets))
    tl.store(integers + BLOCK, libdevice.clz(tl.load(integers + BLOCK)))


def test_library_functions_on_tiles_and_scalars():
    x = torch.tensor([0.5, -0.25, 1.5, -2.5, 3.0, 0.0, -7.0, 8.5])
    out, integers = torch.zeros(33), torch.full((9,), 255, dtype=torch.int32)
    library_kernel[(1,)](out, integers, x, 8)
    rounded = torch.sign(x) * (x.abs() + 0.5).floor()
    expected = torch.cat([torch.tanh(x), x.abs() ** 1.5, rounded, torch.acos(x / 10), torch.log1p(x[:1])])
    torch.testing.assert_close(out, expected)
    assert integers.tolist() == [0, 1, 1, 2, 1, 2, 2, 3, 24]


@triton.jit
def target_kernel(out):
    if is_cuda():
        tl.store(out, 1)
    if is_hip():
        tl.store(out + 1, 1)
    if cuda_capability_geq(9, 0):
        tl.store(out + 2, 1)
    if cuda_capability_geq(10, 0):
        tl.store(out + 3, 1)


def test_a_kernel_takes_the_branches_of_the_pretended_gpu():
    out = torch.zeros(4, dtype=torch.int32)
    target_kernel[(1,)](out)
    assert out.tolist() == [1, 0, 1, 0]
