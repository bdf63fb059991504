"""Atomics of every kind and dtype, on scalars and tiles, with masks and with several elements at one address."""

from __future__ import annotations

import operator

import pytest
import torch
import triton
import triton.language as tl

INTEGERS = [torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def wrap(value: int, dtype: torch.dtype) -> int:
    bits = torch.iinfo(dtype).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


@triton.jit
def atomic(KIND: tl.constexpr, pointer, value, mask):
    if KIND == "add":
        result = tl.atomic_add(pointer, value, mask)
    elif KIND == "max":
        result = tl.atomic_max(pointer, value, mask)
    elif KIND == "min":
        result = tl.atomic_min(pointer, value, mask)
    elif KIND == "and":
        result = tl.atomic_and(pointer, value, mask)
    elif KIND == "or":
        result = tl.atomic_or(pointer, value, mask)
    elif KIND == "xor":
        result = tl.atomic_xor(pointer, value, mask, sem="relaxed", scope="sys")
    else:
        result = tl.atomic_xchg(pointer, value, mask, sem="acquire", scope="cta")
    return result


@triton.jit
def atomic_tile_kernel(memory, x, old, count, DIVISOR: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    before = atomic(KIND, memory + offsets // DIVISOR, tl.load(x + offsets, inside), inside)
    tl.store(old + offsets, before, inside)


@triton.jit
def atomic_scalar_kernel(memory, x, old, count, DIVISOR: tl.constexpr, KIND: tl.constexpr):
    for index in range(count):
        tl.store(old + index, atomic(KIND, memory + index // DIVISOR, tl.load(x + index), index != 5))


REFERENCES = {
    "add": operator.add,
    "max": max,
    "min": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "xchg": lambda old, new: new,
}


def values(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randint(-8, 8, (count,), generator=generator).to(dtype) / 4
    info = torch.iinfo(dtype)
    wide = torch.randint(-(2**62), 2**62, (count,), generator=generator)
    return torch.tensor([wrap(value * 3, dtype) for value in wide.tolist()] if info.bits else [], dtype=dtype)


def expected_after(kind: str, memory: torch.Tensor, x: torch.Tensor, divisor: int, skip: int | None) -> tuple[list, list]:
    """Memory and old values when the elements come one after the other."""
    words, old = memory.tolist(), []
    for index, value in enumerate(x.tolist()):
        place = index // divisor
        if index == skip:
            old.append(0)
            continue
        old.append(words[place])
        words[place] = REFERENCES[kind](words[place], value)
        if not memory.dtype.is_floating_point:
            words[place] = wrap(words[place], memory.dtype)
    return words, old


CASES = [(kind, dtype) for kind in REFERENCES for dtype in INTEGERS]
CASES += [(kind, dtype) for kind in ("max", "min", "xchg") for dtype in FLOATS[2:]] + [("add", dtype) for dtype in FLOATS]


@pytest.mark.parametrize("divisor", [1, 4], ids=["distinct", "duplicates"])
@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=lambda item: str(item).removeprefix("torch."))
def test_tiles_of_atomics(kind, dtype, divisor):
    count = 27
    memory, x = values(dtype, count, 1), values(dtype, count, 2)
    words, before = expected_after(kind, memory, x, divisor, None)
    old = torch.zeros(count, dtype=dtype)
    atomic_tile_kernel[(4,)](memory, x, old, count, divisor, kind, 8)
    if divisor == 1:
        assert old.tolist() == before
        assert memory.tolist() == words
    elif kind != "xchg":  # programs come in any order, so only the sum over all of them is fixed
        assert memory.tolist() == words
    else:
        assert all(word in x[4 * place : 4 * place + 4].tolist() for place, word in enumerate(memory.tolist()[:7]))


@pytest.mark.parametrize(("kind", "dtype"), CASES, ids=lambda item: str(item).removeprefix("torch."))
def test_scalar_atomics(kind, dtype):
    count = 9
    memory, x = values(dtype, count, 3), values(dtype, count, 4)
    words, before = expected_after(kind, memory, x, 2, 5)
    old = torch.zeros(count, dtype=dtype)
    atomic_scalar_kernel[(1,)](memory, x, old, count, 2, kind)
    old[5] = 0
    assert old.tolist() == before
    assert memory.tolist() == words


@pytest.mark.parametrize("kind", ["max", "min"])
def test_extrema_of_signed_zeros_and_infinities(kind):
    memory = torch.tensor([0.0, -0.0, -1.0, float("inf"), float("-inf"), -3.0])
    x = torch.tensor([-0.5, 0.5, -2.0, 1.0, -1.0, 2.0])
    expected = (torch.maximum if kind == "max" else torch.minimum)(memory, x)
    atomic_scalar_kernel[(1,)](memory, x, torch.zeros(6), 5, 1, kind)
    expected[5] = -3.0
    assert torch.equal(memory, expected)


@triton.jit
def compare_and_swap_kernel(memory, expected, desired, old, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    wanted, new = tl.load(expected + offsets), tl.load(desired + offsets)
    tl.store(old + offsets, tl.atomic_cas(memory + offsets, wanted, new))
    first = tl.atomic_cas(memory, tl.load(expected + 1), tl.load(desired + 2), sem="acq_rel", scope="sys")
    tl.store(old + BLOCK, first)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, *INTEGERS, *FLOATS], ids=str)
def test_compare_and_swap(dtype):
    memory = torch.tensor([1, 2, 3, 4], dtype=dtype)
    expected = torch.tensor([1, 9, 3, 9], dtype=dtype)
    desired = torch.tensor([9, 6, 7, 8], dtype=dtype)
    old = torch.zeros(5, dtype=dtype)
    compare_and_swap_kernel[(1,)](memory, expected, desired, old, 4)
    assert old.tolist() == [1, 2, 3, 4, 9]
    assert memory.tolist() == [7, 2, 7, 4]


@triton.jit
def compare_bits_kernel(memory, expected, new):
    tl.atomic_cas(memory, tl.load(expected), tl.load(new))


def test_compare_and_swap_compares_bits():
    """The hardware knows no floats here: -0 is not +0, and a NaN equals itself."""
    nan = float("nan")
    for word, wanted, after in ((0.0, -0.0, 0.0), (nan, nan, 5.0)):
        memory = torch.tensor([word])
        compare_bits_kernel[(1,)](memory, torch.tensor([wanted]), torch.tensor([5.0]))
        assert memory.item() == after


@triton.jit
def spin_lock_kernel(lock, total, count):
    for _ in range(count):
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
        value = tl.load(total)
        tl.store(total, value + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)


def test_spin_lock_between_programs():
    total = torch.zeros(1, dtype=torch.int32)
    spin_lock_kernel[(20,)](torch.zeros(1, dtype=torch.int32), total, 3)
    assert total.item() == 60


@triton.jit
def ordered_programs_kernel(flags, out):
    program = tl.program_id(0)
    if program > 0:
        while tl.atomic_add(flags + program - 1, 0, sem="acquire") == 0:
            pass
        previous = tl.load(out + program - 1)
    else:
        previous = 1
    tl.store(out + program, previous * 2 % 1009)
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1, sem="release")


def test_programs_wait_for_each_other():
    out = torch.zeros(30, dtype=torch.int32)
    ordered_programs_kernel[(30,)](torch.zeros(30, dtype=torch.int32), out)
    assert out.tolist() == [pow(2, power + 1, 1009) for power in range(30)]


@triton.jit
def poll_kernel(flags, out, timeout_flags, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    if program == 0:
        tl.atomic_poll(flags + offsets, offsets + 1)
        tl.store(out + offsets, tl.atomic_load(flags + offsets, mask=offsets != 2))
        tl.store(out + BLOCK, tl.atomic_poll(flags, 1, scope="sys").to(tl.int32))
        tl.store(out + BLOCK + 1, tl.atomic_poll(timeout_flags, 1, timeout_ns=5000).to(tl.int32))
        tl.store(out + BLOCK + 2, tl.atomic_load(flags + 3))
        some = tl.atomic_poll(timeout_flags + offsets, 7, timeout_ns=5000)
        tl.store(out + BLOCK + 4 + offsets, some.to(tl.int32))
    else:
        tl.atomic_store(flags + offsets, offsets + 1, mask=offsets < 2)
        tl.atomic_store(flags + 2, 3)
        tl.atomic_store(flags + 3, 4, sem="relaxed", scope="sys")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32], ids=str)
def test_poll_load_and_store(dtype, triton_version):
    if triton_version < (3, 9):
        pytest.skip("tl.atomic_poll, atomic_load and atomic_store are new in Triton 3.9")
    out = torch.full((12,), -1, dtype=torch.int32)
    timeouts = torch.tensor([0, 7, 0, 7], dtype=dtype)
    poll_kernel[(2,)](torch.zeros(4, dtype=dtype), out, timeouts, 4)
    assert out.tolist() == [1, 2, 0, 4, 1, 0, 4, -1, 0, 1, 0, 1]
