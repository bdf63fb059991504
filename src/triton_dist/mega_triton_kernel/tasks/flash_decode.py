"""Attention of one new token to all before it, whose keys and values lie in pages: decoding.

The keys of a sequence are split over several tasks. The one that is ready last combines the results of all by their logarithms of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation, RunWords
from ..kernel import tensor_of
from ..machine import Machine
from .checks import check, nbytes, steps_of
from .flash_attention import soft_capped

_MOST_SPLITS = 32
_MOST_KEYS, _FEWEST_KEYS = 128, 16
"""That a task looks at at a time; a matrix product takes no fewer."""
_COMBINED = 8192
"""Elements of a block of shares that are combined."""


@dataclass(frozen=True)
class _FlashDecode:
    DTYPE: Any
    Q_HEADS: int
    KV_HEADS: int
    DIM: int
    WIDTH: int
    V_DIM: int
    V_WIDTH: int
    GROUP: int
    """Heads of q that share a head of k, up to what a matrix product takes."""
    SPLITS: int
    """Shares: a power of 2, since how many have arrived is counted over all runs, and the count wraps around."""
    TILE_K: int
    STAGES: int
    PAGE_SIZE: int
    BLOCKS: int
    SCALE: float
    SOFT_CAP: float
    COMBINED: int
    """Heads whose shares are combined at a time: a power of 2."""


@triton.jit
def _combine(task, sequence, kv_head, step, C: tl.constexpr):
    """``COMBINED`` of the heads of q that share a head of k, from number ``step`` of them on."""
    share: tl.constexpr = C.Q_HEADS // C.KV_HEADS
    member, split, deep = step + tl.arange(0, C.COMBINED), tl.arange(0, C.SPLITS), tl.arange(0, C.V_WIDTH)
    head = sequence * C.Q_HEADS + kv_head * share + member
    row = head[:, None] * C.SPLITS + split[None, :]
    there = member < share
    inside = there[:, None, None] & (deep < C.V_DIM)[None, None, :]
    lse = tl.load(tensor_of(task, 7, tl.float32) + row, mask=there[:, None], other=float("-inf"))
    partial = tl.load(tensor_of(task, 6, tl.float32) + row[:, :, None] * C.V_DIM + deep[None, None, :], mask=inside, other=0.0)
    most = tl.max(lse, 1)
    weight = tl.where(lse == float("-inf"), 0.0, tl.exp2(lse - most[:, None]))
    total = tl.sum(weight, 1)
    # A sequence without keys gets zeros.
    result = tl.sum(partial * weight[:, :, None], 1) / tl.where(total > 0, total, 1.0)[:, None]
    out = tensor_of(task, 5, C.DTYPE) + head[:, None] * C.V_DIM + deep[None, :]
    tl.store(out, result.to(C.DTYPE), mask=there[:, None] & (deep < C.V_DIM)[None, :])


@triton.jit
def flash_decode_task(task, tile, run, C: tl.constexpr):
    """One share of the keys of one sequence, for the heads of q that share one of k.

    Tensors: q (batch, Q_HEADS, DIM), key_cache (pages, PAGE_SIZE, KV_HEADS, DIM), value_cache, block_tables (batch, BLOCKS), kv_lens;
    out (batch, Q_HEADS, V_DIM), and where there are several shares partial (batch, Q_HEADS, SPLITS, V_DIM) fp32, lse (batch, Q_HEADS,
    SPLITS) fp32, in powers of 2, -inf for a share without keys, and arrived (batch, KV_HEADS) int32, shares that were ready in all runs.
    """
    share: tl.constexpr = C.Q_HEADS // C.KV_HEADS
    split, kv_head = tile % C.SPLITS, tile // C.SPLITS % C.KV_HEADS
    sequence = (tile // (C.SPLITS * C.KV_HEADS)).to(tl.int64)
    keys = tl.load(tensor_of(task, 4, tl.int32) + sequence)
    per_split = tl.cdiv(tl.cdiv(keys, C.SPLITS), C.TILE_K) * C.TILE_K
    member = tl.arange(0, C.GROUP)
    head = kv_head * share + member
    deep, v_deep = tl.arange(0, C.WIDTH), tl.arange(0, C.V_WIDTH)
    taken = member < share
    q_place = (sequence * C.Q_HEADS + head[:, None]) * C.DIM + deep[None, :]
    q = tl.load(tensor_of(task, 0, C.DTYPE) + q_place, mask=taken[:, None] & (deep[None, :] < C.DIM), other=0.0)
    key_cache, value_cache = tensor_of(task, 1, C.DTYPE), tensor_of(task, 2, C.DTYPE)
    table = tensor_of(task, 3, tl.int32) + sequence * C.BLOCKS
    sums = tl.zeros((C.GROUP, C.V_WIDTH), tl.float32)
    most = tl.full((C.GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((C.GROUP,), tl.float32)
    for first in tl.range(split * per_split, tl.minimum((split + 1) * per_split, keys), C.TILE_K, num_stages=C.STAGES):
        number = first + tl.arange(0, C.TILE_K)
        there = number < keys
        page = tl.load(table + number // C.PAGE_SIZE, mask=there, other=0)
        slot = (page.to(tl.int64) * C.PAGE_SIZE + number % C.PAGE_SIZE) * C.KV_HEADS + kv_head
        k = tl.load(key_cache + slot[:, None] * C.DIM + deep[None, :], mask=there[:, None] & (deep[None, :] < C.DIM), other=0.0)
        scores = soft_capped(tl.dot(q, k.T, input_precision="ieee"), C.SCALE, C.SOFT_CAP)
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(most - higher)
        v = tl.load(value_cache + slot[:, None] * C.V_DIM + v_deep[None, :], mask=there[:, None] & (v_deep[None, :] < C.V_DIM), other=0.0)
        sums = tl.dot(weights.to(C.DTYPE), v, sums * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        most = higher
    # A share without keys has a total of 0: its result is 0, or not looked at.
    result = sums / tl.where(total > 0, total, 1.0)[:, None]
    row = (sequence * C.Q_HEADS + head.to(tl.int64)) * C.SPLITS + split
    place, inside = row[:, None] * C.V_DIM + v_deep[None, :], taken[:, None] & (v_deep[None, :] < C.V_DIM)
    if C.SPLITS == 1:
        tl.store(tensor_of(task, 5, C.DTYPE) + place, result.to(C.DTYPE), mask=inside)
    else:
        tl.store(tensor_of(task, 6, tl.float32) + place, result, mask=inside)
        tl.store(tensor_of(task, 7, tl.float32) + row, tl.where(total > 0, most + tl.log2(total), float("-inf")), mask=taken)
        tl.debug_barrier()
        arrived = tensor_of(task, 8, tl.int32) + tile // C.SPLITS
        before = tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu")
        if before & (C.SPLITS - 1) == C.SPLITS - 1:
            for step in range(0, share, C.COMBINED):
                _combine(task, sequence, kv_head, step, C)


def _keys_and_steps(what: str, machine: Machine, group: int, width: int, v_width: int, itemsize: int) -> tuple[int, int]:
    """Keys at a time, and steps of the pipeline, by what shared memory has room for beside the block of q. Raises InvalidArgumentError."""
    q, key = group * width * itemsize, (width + v_width) * itemsize
    # Many keys at a time, since what takes the time is that they are found by pages; but two steps rather than many keys.
    keys = _MOST_KEYS
    while keys > _FEWEST_KEYS and steps_of(machine, q, keys * key) < 2:
        keys //= 2
    # In one step, values come when the keys are not needed any more, together with their weights.
    least = q + keys * (max(width, v_width) + group) * itemsize
    if least > machine.shared:
        raise InvalidArgumentError(
            f"{what}: {group} heads of q that share one of k, in blocks of {width} elements, need {least} bytes of shared memory, and a "
            f"program has {machine.shared}: pass fewer heads of q for one of k, or narrower ones"
        )
    return keys, steps_of(machine, q, keys * key)


def flash_decode(
    q: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, block_tables: torch.Tensor, kv_lens: torch.Tensor,
    out: torch.Tensor, machine: Machine, *, scale: float | None, soft_cap: float,
) -> Operation:  # fmt: skip
    """See ``ModelBuilder.make_flash_decode``."""
    what = "make_flash_decode"
    check(what, "query", q, (None, None, None, None))
    batch, length, q_heads, dim = q.shape
    if length != 1:
        raise InvalidArgumentError(f"{what}: query has {length} tokens a sequence; it takes one: use make_flash_attn for more")
    check(what, "key_cache", key_cache, (None, None, None, dim), q.dtype)
    pages, page_size, kv_heads, _ = key_cache.shape
    check(what, "value_cache", value_cache, (pages, page_size, kv_heads, None), q.dtype)
    v_dim = value_cache.shape[3]
    check(what, "block_tables", block_tables, (batch, None), torch.int32)
    check(what, "kv_lens", kv_lens, (batch,), torch.int32)
    check(what, "output", out, (batch, 1, q_heads, v_dim), q.dtype)
    if q_heads % kv_heads:
        raise InvalidArgumentError(f"{what}: {q_heads} heads of q, {kv_heads} of k: q has to have a multiple of k's heads")
    share = q_heads // kv_heads
    group, width, v_width = (max(16, triton.next_power_of_2(size)) for size in (share, dim, v_dim))
    keys, steps = _keys_and_steps(what, machine, group, width, v_width, q.element_size())
    splits = 1
    while 2 * splits * batch * kv_heads <= machine.programs and splits * keys < block_tables.shape[1] * page_size and splits < _MOST_SPLITS:
        splits *= 2
    combined = max(1, min(triton.next_power_of_2(share), _COMBINED // (splits * v_width)))
    constants = _FlashDecode(
        TRITON_DTYPES[q.dtype], q_heads, kv_heads, dim, width, v_dim, v_width, group, splits, keys, steps, page_size, block_tables.shape[1],
        float(dim**-0.5 if scale is None else scale), float(soft_cap), combined,
    )  # fmt: skip
    places = [(sequence, head, split) for sequence in range(batch) for head in range(kv_heads) for split in range(splits)]
    tiles, slots = len(places), pages * page_size
    heads = [(sequence, sequence + 1, head * share * dim, (head + 1) * share * dim) for sequence, head, _ in places]
    in_cache = [(0, slots, head, head + 1) for _, head, _ in places]
    rows = [((sequence * kv_heads + head) * share, (sequence * kv_heads + head + 1) * share, split) for sequence, head, split in places]
    reads = (
        Access.of_boxes(q, q_heads * dim, heads),
        Access.of_boxes(key_cache, kv_heads * dim, [(row, end, head * dim, last * dim) for row, end, head, last in in_cache]),
        Access.of_boxes(value_cache, kv_heads * v_dim, [(row, end, head * v_dim, last * v_dim) for row, end, head, last in in_cache]),
        Access.of_all(block_tables, tiles),
        Access.of_all(kv_lens, tiles),
    )

    def of_splits(tensor: torch.Tensor, columns: int) -> Access:
        """A tensor with ``columns`` elements for each split of a head."""
        return Access.of_boxes(tensor, splits * columns, [(row, end, at * columns, (at + 1) * columns) for row, end, at in rows])

    # Any share of a head may be the one that writes its result.
    result = Access.of_boxes(out, v_dim, [(row, end, 0, v_dim) for row, end, _ in rows])
    inputs = (q, key_cache, value_cache, block_tables, kv_lens)
    if splits == 1:
        return Operation("flash_decode", flash_decode_task, constants, (*inputs, out), tiles, reads, (result,), nbytes=nbytes(q, out))
    partial = torch.empty((batch, q_heads, splits, v_dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, q_heads, splits), dtype=torch.float32, device=q.device)
    arrived = RunWords(batch * kv_heads, symmetric=False)
    return Operation(
        "flash_decode", flash_decode_task, constants, (*inputs, out, partial, lse), tiles, reads,
        (result, of_splits(partial, v_dim), of_splits(lse, 1)), nbytes=nbytes(q, out), together=splits, words=(arrived,),
    )  # fmt: skip
