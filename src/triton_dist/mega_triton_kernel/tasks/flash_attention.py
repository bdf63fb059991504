"""Attention of many tokens at once: prefill. Method: arXiv 2205.14135, with a running maximum (1805.02867)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation
from ..kernel import tensor_of
from ..machine import Machine
from .checks import check, nbytes, steps_of

LOG2E = tl.constexpr(math.log2(math.e))


@dataclass(frozen=True)
class _FlashAttention:
    DTYPE: Any
    LENGTH: int
    KEYS: int
    Q_HEADS: int
    KV_HEADS: int
    DIM: int
    WIDTH: int
    Q_PITCH: int
    KV_PITCH: int
    K_OFFSET: int
    V_OFFSET: int
    SCALE: float
    SOFT_CAP: float
    CAUSAL: bool
    TILE_Q: int
    TILE_K: int
    STAGES: int


@triton.jit
def soft_capped(scores, SCALE, SOFT_CAP: tl.constexpr):
    """Scaled scores times log2(e), for exp2: ``cap * tanh(score / cap)`` if there is a cap (not 0)."""
    scaled = scores * SCALE
    if SOFT_CAP != 0.0:
        # tanh by the sigmoid: 2 sigmoid(2 x) - 1
        scaled = SOFT_CAP * (2 * tl.sigmoid(scaled * (2 / SOFT_CAP)) - 1)
    return scaled * LOG2E


@triton.jit
def _attend(q, sums, most, total, keys, values, key, last, C: tl.constexpr, MASKED: tl.constexpr):
    """Adds ``TILE_K`` keys, from number ``key`` on, to a tile's running softmax."""
    number = key + tl.arange(0, C.TILE_K)
    deep = tl.arange(0, C.WIDTH)
    place = number[:, None].to(tl.int64) * C.KV_PITCH + deep[None, :]
    inside = (number[:, None] < C.KEYS) & (deep[None, :] < C.DIM)
    k = tl.load(keys + place, mask=inside, other=0.0)
    scores = soft_capped(tl.dot(q, k.T, input_precision="ieee"), C.SCALE, C.SOFT_CAP)
    if MASKED:
        scores = tl.where((number[None, :] <= last[:, None]) & (number[None, :] < C.KEYS), scores, float("-inf"))
    higher = tl.maximum(most, tl.max(scores, 1))
    # A row whose keys are all masked so far keeps weights of 0.
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(most - base)
    v = tl.load(values + place, mask=inside, other=0.0)
    sums = tl.dot(weights.to(C.DTYPE), v, sums * shrink[:, None], input_precision="ieee")
    return sums, higher, total * shrink + tl.sum(weights, 1)


@triton.jit
def flash_attention_task(task, tile, run, C: tl.constexpr):
    """``TILE_Q`` rows of one head. Tensors: q, k, v (or all three packed, by offsets), out (batch, LENGTH, Q_HEADS, DIM)."""
    blocks: tl.constexpr = (C.LENGTH + C.TILE_Q - 1) // C.TILE_Q
    # The rows with the most keys first.
    block = blocks - 1 - tile // C.Q_HEADS % blocks
    head, sequence = tile % C.Q_HEADS, (tile // (C.Q_HEADS * blocks)).to(tl.int64)
    row = block * C.TILE_Q + tl.arange(0, C.TILE_Q)
    deep = tl.arange(0, C.WIDTH)
    inside = (row[:, None] < C.LENGTH) & (deep[None, :] < C.DIM)
    q_place = (sequence * C.LENGTH + row[:, None].to(tl.int64)) * C.Q_PITCH + head * C.DIM + deep[None, :]
    q = tl.load(tensor_of(task, 0, C.DTYPE) + q_place, mask=inside, other=0.0)
    kv = sequence * C.KEYS * C.KV_PITCH + head // (C.Q_HEADS // C.KV_HEADS) * C.DIM
    keys = tensor_of(task, 1, C.DTYPE) + kv + C.K_OFFSET
    values = tensor_of(task, 2, C.DTYPE) + kv + C.V_OFFSET
    sums = tl.zeros((C.TILE_Q, C.WIDTH), tl.float32)
    most = tl.full((C.TILE_Q,), float("-inf"), tl.float32)
    total = tl.zeros((C.TILE_Q,), tl.float32)
    if C.CAUSAL:
        # The last key that a row sees; the last row sees all.
        last = row + (C.KEYS - C.LENGTH)
        seen_by_all = (block * C.TILE_Q + C.KEYS - C.LENGTH + 1) // C.TILE_K * C.TILE_K
        end = tl.minimum(block * C.TILE_Q + C.TILE_Q + C.KEYS - C.LENGTH, C.KEYS)
        for key in tl.range(0, seen_by_all, C.TILE_K, num_stages=C.STAGES):
            sums, most, total = _attend(q, sums, most, total, keys, values, key, last, C, False)
        for key in tl.range(seen_by_all, end, C.TILE_K, num_stages=C.STAGES):
            sums, most, total = _attend(q, sums, most, total, keys, values, key, last, C, True)
    else:
        last = tl.zeros_like(row) + C.KEYS
        for key in tl.range(0, C.KEYS, C.TILE_K, num_stages=C.STAGES):
            sums, most, total = _attend(q, sums, most, total, keys, values, key, last, C, C.KEYS % C.TILE_K != 0)
    out = tensor_of(task, 3, C.DTYPE) + ((sequence * C.LENGTH + row[:, None].to(tl.int64)) * C.Q_HEADS + head) * C.DIM + deep[None, :]
    tl.store(out, (sums / total[:, None]).to(C.DTYPE), mask=inside)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    machine: Machine,
    *,
    scale: float | None,
    soft_cap: float,
    causal: bool,
) -> Operation:
    """See ``ModelBuilder.make_flash_attn``."""
    what = "make_flash_attn"
    check(what, "q", q, (None, None, None, None))
    batch, length, q_heads, dim = q.shape
    check(what, "k", k, (batch, None, None, dim), q.dtype)
    check(what, "v", v, k.shape, q.dtype)
    check(what, "output", out, q.shape, q.dtype)
    keys, kv_heads = k.shape[1:3]
    return _operation(
        what, "flash_attn", (q, k, v), out, (q_heads * dim, kv_heads * dim, 0, 0, 0), keys, kv_heads, scale, soft_cap, causal, machine
    )


def qkv_pack_flash_attention(
    qkv: torch.Tensor, out: torch.Tensor, machine: Machine, *, scale: float | None, soft_cap: float, causal: bool
) -> Operation:
    """See ``ModelBuilder.make_qkv_pack_flash_attn``."""
    what = "make_qkv_pack_flash_attn"
    check(what, "qkv", qkv, (None, None, None, None))
    batch, length, heads, dim = qkv.shape
    check(what, "output", out, (batch, length, None, dim), qkv.dtype)
    q_heads = out.shape[2]
    if heads <= q_heads or (heads - q_heads) % 2:
        raise InvalidArgumentError(
            f"{what}: qkv has {heads} heads and output {q_heads}; qkv holds the heads of q, then those of k, then as many of v"
        )
    kv_heads = (heads - q_heads) // 2
    layout = (heads * dim, heads * dim, q_heads, q_heads + kv_heads, 0)
    return _operation(what, "qkv_pack_flash_attn", (qkv, qkv, qkv), out, layout, length, kv_heads, scale, soft_cap, causal, machine)


def _operation(
    what: str, name: str, operands: tuple[torch.Tensor, ...], out: torch.Tensor, layout: tuple[int, ...], keys: int, kv_heads: int,
    scale: float | None, soft_cap: float, causal: bool, machine: Machine,
) -> Operation:  # fmt: skip
    """layout: elements from one token of q to the next, the same of k and v, and the heads before k's first, v's first and q's first."""
    batch, length, q_heads, dim = out.shape
    q_pitch, kv_pitch, k_first, v_first, q_first = layout
    if q_heads % kv_heads or (causal and keys < length):
        raise InvalidArgumentError(
            f"{what}: {q_heads} heads of q, {kv_heads} of k; {length} tokens of q, {keys} of k: q has to have a multiple of k's heads, "
            "and under the causal mask no more tokens than k"
        )
    width = max(16, triton.next_power_of_2(dim))
    itemsize = out.element_size()
    tile_q = min(128 if itemsize * width <= 256 else 64, max(16, triton.next_power_of_2(length)))
    tile_k = 64 if itemsize * width <= 256 else 32
    steps = steps_of(machine, tile_q * width * itemsize, 2 * tile_k * width * itemsize)
    blocks = triton.cdiv(length, tile_q)
    share = q_heads // kv_heads
    places = [
        (sequence, (blocks - 1 - block) * tile_q, head) for sequence in range(batch) for block in range(blocks) for head in range(q_heads)
    ]
    rows = [(sequence * length + row, sequence * length + min(length, row + tile_q), head) for sequence, row, head in places]
    of_keys = [
        (sequence * keys, sequence * keys + (min(keys, row + tile_q + keys - length) if causal else keys), head // share)
        for sequence, row, head in places
    ]

    def access(tensor: torch.Tensor, pitch: int, first: int, boxes: list[tuple[int, int, int]]) -> Access:
        return Access.of_boxes(tensor, pitch, [(row, end, (first + head) * dim, (first + head + 1) * dim) for row, end, head in boxes])

    q, k, v = operands
    reads = (access(q, q_pitch, q_first, rows), access(k, kv_pitch, k_first, of_keys), access(v, kv_pitch, v_first, of_keys))
    constants = _FlashAttention(
        TRITON_DTYPES[out.dtype], length, keys, q_heads, kv_heads, dim, width, q_pitch, kv_pitch, k_first * dim, v_first * dim,
        float(dim**-0.5 if scale is None else scale), float(soft_cap), bool(causal), tile_q, tile_k, steps,
    )  # fmt: skip
    writes = (access(out, q_heads * dim, 0, rows),)
    return Operation(
        name, flash_attention_task, constants, (*operands, out), len(places), reads, writes, nbytes=nbytes(*set(operands), out)
    )
