"""Operands that make hardware show its rules: edge values of each type, and random bits that are the same everywhere."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype] = {
    "int1": np.dtype(np.bool_),
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
}
"""numpy dtype by Triton's name."""


def random_bits(count: int, seed: int) -> np.ndarray:
    """Random uint64 (splitmix64), the same with every version of numpy."""
    with np.errstate(over="ignore"):
        state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 0x632BE59BD9B4E019 % (1 << 64))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def is_float(name: str) -> bool:
    return name[0] in "fb"


def edges(name: str) -> np.ndarray:
    """The values of a type at which something happens."""
    dtype = DTYPES[name]
    if name == "int1":
        return np.array([False, True])
    if not is_float(name):
        info = np.iinfo(dtype)
        bits = info.bits
        values = [
            0,
            1,
            2,
            3,
            5,
            7,
            bits - 1,
            bits,
            bits + 1,
            100,
            info.max,
            info.max - 1,
            info.max // 2,
            info.min,
            info.min + 1,
            -1,
            -2,
            -3,
            -7,
        ]
        return np.array(sorted({value for value in values if info.min <= value <= info.max}), dtype)
    info = ml_dtypes.finfo(dtype)
    one = [
        0.0,
        0.1,
        0.5,
        1.0,
        1 + float(info.eps),
        1 - float(info.eps) / 2,
        1.5,
        2.0,
        2.5,
        3.0,
        3.1415927,
        10.0,
        88.5,
        100.0,
        127.5,
        128.0,
        255.5,
        448.0,
    ]
    one += [464.0, 480.0, 57344.0, 61440.0, 65504.0, 65520.0, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 1e-3, 1e-8, 1e-40]
    one += [
        float(info.max),
        float(info.max) / 2,
        float(info.smallest_normal),
        float(info.smallest_subnormal),
        float(info.smallest_normal) * 1.5,
    ]
    with np.errstate(over="ignore"):
        positive = np.array([*one, np.inf, np.nan], np.float64).astype(dtype)
        subnormal = np.array(float(info.smallest_normal) - float(info.smallest_subnormal), np.float64).astype(dtype)
    positive = np.concatenate([positive, subnormal.reshape(1)])
    bits = np.concatenate([positive, -positive]).view(f"u{dtype.itemsize}")
    return np.unique(bits).view(dtype)


def random_values(name: str, count: int, seed: int) -> np.ndarray:
    """Half random bits, half of a moderate size."""
    dtype = DTYPES[name]
    raw = random_bits(count, seed)
    if name == "int1":
        return (raw & np.uint64(1)).astype(np.bool_)
    values = raw.astype(f"u{dtype.itemsize}").view(dtype)
    moderate = (raw >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1
    half = count // 2
    if is_float(name):
        values[half:] = (moderate[half:] * 8).astype(dtype)
    else:
        values[half:] = (moderate[half:] * 20).astype(np.int64).astype(dtype)
    return values


def operand_sets(names: tuple[str, ...], count: int, seed: int = 1) -> list[np.ndarray]:
    """One array for each operand type: pairs of edge values, then random ones; every value, for one operand of at most 16 bits."""
    first = DTYPES[names[0]]
    if len(names) == 1 and first.itemsize <= 2 and names[0] != "int1":
        return [np.arange(1 << 8 * first.itemsize, dtype=f"u{first.itemsize}").view(first)]
    if len(names) == 1:
        special = [edges(names[0])]
    else:
        left, right = edges(names[0]), edges(names[1])
        special = [np.repeat(left, right.size), np.tile(right, left.size)]
        for name in names[2:]:
            third = edges(name)
            special.append(third[(np.arange(special[0].size) * 7 + 3) % third.size])
    size = special[0].size
    if size > count // 2:
        keep = np.argsort(random_bits(size, 99), kind="stable")[: count // 2]
        special = [values[keep] for values in special]
        size = count // 2
    return [
        np.concatenate([values, random_values(name, count - size, seed + 17 * position)])
        for position, (name, values) in enumerate(zip(names, special, strict=True))
    ]
