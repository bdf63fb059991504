"""Philox: the same bits as a reference written in numpy, for every generator of the standard library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

KEY, ROUND_A, ROUND_B = (0x9E3779B9, 0xBB67AE85), 0xD2511F53, 0xCD9E8D57


def philox(seed: int, offsets: np.ndarray, rounds: int = 10) -> list[np.ndarray]:
    """Four streams of 32-bit numbers for each counter (offset, 0, 0, 0): Philox 4x32 of Salmon et al., "Parallel random numbers" (2011)."""
    counter = [offsets.astype(np.uint64) & 0xFFFFFFFF] + [np.zeros(offsets.shape, np.uint64)] * 3
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(rounds):
        product_a, product_b = counter[2] * np.uint64(ROUND_B), counter[0] * np.uint64(ROUND_A)
        counter = [
            (product_a >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]),
            product_a & np.uint64(0xFFFFFFFF),
            (product_b >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]),
            product_b & np.uint64(0xFFFFFFFF),
        ]
        key = [(part + step) & 0xFFFFFFFF for part, step in zip(key, KEY, strict=True)]
    return [part.astype(np.uint32) for part in counter]


def uniform(bits: np.ndarray) -> np.ndarray:
    """[0, 1) as Triton makes it: the sign is folded and 31 bits are scaled in fp32."""
    signed = bits.view(np.int32)
    return np.where(signed < 0, -signed.astype(np.int64) - 1, signed).astype(np.int32).astype(np.float32) * np.float32(4.6566127342e-10)


@triton.jit
def integers_kernel(out, seed, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + offsets, tl.randint(seed, offsets))


@triton.jit
def four_integers_kernel(out, seed, total, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, offsets)
    tl.store(out + offsets, a)
    tl.store(out + total + offsets, b)
    tl.store(out + 2 * total + offsets, c)
    tl.store(out + 3 * total + offsets, d)


@triton.jit
def uniform_kernel(out, seed, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + offsets, tl.rand(seed, offsets))


@triton.jit
def normal_kernel(out, seed, N: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + offsets, tl.randn(seed, offsets))


SEEDS = [0, 1, 42, 124, 2**31 - 1, 2**32 + 7, 2**63 - 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_integers_are_philox_bits(seed):
    out = torch.zeros(192, dtype=torch.int32)
    integers_kernel[(3,)](out, seed, 64)
    assert np.array_equal(out.numpy().view(np.uint32), philox(seed, np.arange(192))[0])
    four = torch.zeros(4, 192, dtype=torch.int32)
    four_integers_kernel[(3,)](four, seed, 192, 64)
    assert np.array_equal(four.numpy().view(np.uint32), np.stack(philox(seed, np.arange(192))))


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_numbers_have_the_same_bits(seed):
    out = torch.zeros(192)
    uniform_kernel[(3,)](out, seed, 64)
    assert np.array_equal(out.numpy(), uniform(philox(seed, np.arange(192))[0]))
    assert out.min() >= 0 and out.max() < 1


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_normal_numbers_are_box_muller(seed):
    out = torch.zeros(3072)
    normal_kernel[(3,)](out, seed, 1024)
    first, second = (uniform(bits).astype(np.float64) for bits in philox(seed, np.arange(3072))[:2])
    expected = np.sqrt(-2 * np.log(np.maximum(first, 1e-7))) * np.cos(6.283185307179586 * second)
    np.testing.assert_allclose(out.numpy(), expected, rtol=2e-5, atol=2e-6)
    assert abs(out.mean().item()) < 0.06 and abs(out.std().item() - 1) < 0.06


def test_rounds_of_the_reference():
    """Known answer of the Philox paper's own test vectors: counter and key zero."""
    assert [hex(part[0]) for part in philox(0, np.zeros(1, np.int64))] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def philox64(seed: int, offset: int, rounds: int = 10) -> int:
    """The first word of Philox 4x64, in Python's unlimited integers."""
    mask = 2**64 - 1
    counter, key = [offset, 0, 0, 0], [seed & mask, 0]
    for _ in range(rounds):
        product_a, product_b = counter[2] * 0xCA5A826395121157, counter[0] * 0xD2E7470EE14C6C93
        counter = [product_a >> 64 ^ counter[1] ^ key[0], product_a & mask, product_b >> 64 ^ counter[3] ^ key[1], product_b & mask]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    return counter[0]


@triton.jit
def wide_integers_kernel(out, seed, N: tl.constexpr):
    counter = tl.arange(0, N).to(tl.uint64) * 0x1000000001
    zero = counter * 0
    first, _, _, _ = tl.philox(seed, counter, zero, zero, zero)
    tl.store(out + tl.arange(0, N), first.to(tl.int64, bitcast=True))


def test_64_bit_counters_use_philox_4x64():
    out = torch.zeros(16, dtype=torch.int64)
    wide_integers_kernel[(1,)](out, 2**40 + 5, 16)
    assert [value & (2**64 - 1) for value in out.tolist()] == [philox64(2**40 + 5, index * 0x1000000001) for index in range(16)]
