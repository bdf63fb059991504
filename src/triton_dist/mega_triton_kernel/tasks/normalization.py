"""RMS normalization of whole rows, and of the heads of q and k with their rotary embedding. Method: arXiv 1910.07467 and 2104.09864."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...errors import InvalidArgumentError
from ...triton_dtypes import TRITON_DTYPES
from ..graph import Access, Operation, near
from ..kernel import tensor_of
from .checks import check, nbytes, width_of_blocks
from .elementwise import add_task

_MOST_COLUMNS = 8192
_MOST_TOKENS = 32


@dataclass(frozen=True)
class _RmsNorm:
    DTYPE: Any
    COLUMNS: int
    BLOCK: int
    EPS: float


@triton.jit
def _norm_of_row(value, weight, out, column, C: tl.constexpr):
    """Normalizes a row that is one block, in fp32, and stores it."""
    scale = tl.rsqrt(tl.sum(value * value) / C.COLUMNS + C.EPS)
    inside = column < C.COLUMNS
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, (value * scale * factor).to(C.DTYPE), mask=inside)


@triton.jit
def rms_norm_task(task, tile, run, C: tl.constexpr):
    """``out = x / rms(x) * weight`` for one row, in fp32, rounded once. Tensors: x, weight, out."""
    x = tensor_of(task, 0, C.DTYPE) + tile.to(tl.int64) * C.COLUMNS
    weight, out = tensor_of(task, 1, C.DTYPE), tensor_of(task, 2, C.DTYPE) + tile.to(tl.int64) * C.COLUMNS
    column = tl.arange(0, C.BLOCK)
    if C.COLUMNS <= C.BLOCK:
        value = tl.load(x + column, mask=column < C.COLUMNS, other=0.0).to(tl.float32)
        _norm_of_row(value, weight, out, column, C)
    else:
        squares = tl.zeros((C.BLOCK,), tl.float32)
        for first in range(0, C.COLUMNS, C.BLOCK):
            value = tl.load(x + first + column, mask=first + column < C.COLUMNS, other=0.0).to(tl.float32)
            squares += value * value
        scale = tl.rsqrt(tl.sum(squares) / C.COLUMNS + C.EPS)
        for first in range(0, C.COLUMNS, C.BLOCK):
            inside = first + column < C.COLUMNS
            value = tl.load(x + first + column, mask=inside, other=0.0).to(tl.float32)
            factor = tl.load(weight + first + column, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + first + column, (value * scale * factor).to(C.DTYPE), mask=inside)


@triton.jit
def add_rms_norm_task(task, tile, run, C: tl.constexpr):
    """``total = lhs + rhs``, rounded, and ``out = total / rms(total) * weight``, one row. Tensors: lhs, rhs, total, weight, out."""
    row = tile.to(tl.int64) * C.COLUMNS
    column = tl.arange(0, C.BLOCK)
    inside = column < C.COLUMNS
    lhs = tl.load(tensor_of(task, 0, C.DTYPE) + row + column, mask=inside, other=0.0).to(tl.float32)
    rhs = tl.load(tensor_of(task, 1, C.DTYPE) + row + column, mask=inside, other=0.0).to(tl.float32)
    total = (lhs + rhs).to(C.DTYPE)
    tl.store(tensor_of(task, 2, C.DTYPE) + row + column, total, mask=inside)
    _norm_of_row(total.to(tl.float32), tensor_of(task, 3, C.DTYPE), tensor_of(task, 4, C.DTYPE) + row, column, C)


def with_add(add: Operation, norm: Operation) -> Operation | None:
    """Both in one, with the same results, which saves a wait; None where the second does not follow from the first, or rows are long."""
    if norm.body is not rms_norm_task or add.body is not add_task or norm.constants.COLUMNS > norm.constants.BLOCK:
        return None
    lhs, rhs, total = add.tensors
    x, weight, out = norm.tensors
    same = (x.data_ptr(), x.numel(), x.dtype) == (total.data_ptr(), total.numel(), total.dtype)
    # What one task stores to one place twice has no order.
    pairs = ((total, out), (total, weight), (out, weight))
    if not same or any(near(Access.of_all(one, 1), Access.of_all(other, 1)) for one, other in pairs):
        return None
    columns, rows = norm.constants.COLUMNS, norm.tiles
    boxes = [(row, row + 1, 0, columns) for row in range(rows)]
    reads = [Access.of_boxes(tensor, columns, boxes) for tensor in (lhs, rhs)]
    writes = tuple(Access.of_boxes(tensor, columns, boxes) for tensor in (total, out))
    return Operation(
        "add_rms_norm", add_rms_norm_task, norm.constants, (lhs, rhs, total, weight, out), rows, (*reads, Access.of_all(weight, rows)),
        writes, nbytes=add.nbytes + norm.nbytes, interleaved=True,
    )  # fmt: skip


def rms_norm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, eps: float) -> Operation:
    """x, out: (..., columns), of one dtype; out may be x. weight: (columns,)."""
    check("make_rms_norm", "input", x, (None,) * max(1, x.dim()) if isinstance(x, torch.Tensor) else ())
    columns = x.shape[-1]
    check("make_rms_norm", "rms_weight", weight, (columns,), x.dtype)
    check("make_rms_norm", "output", out, x.shape, x.dtype)
    rows = x.numel() // columns
    boxes = [(row, row + 1, 0, columns) for row in range(rows)]
    constants = _RmsNorm(TRITON_DTYPES[x.dtype], columns, min(_MOST_COLUMNS, triton.next_power_of_2(columns)), float(eps))
    reads = (Access.of_boxes(x, columns, boxes), Access.of_all(weight, rows))
    writes = (Access.of_boxes(out, columns, boxes),)
    return Operation(
        "rms_norm", rms_norm_task, constants, (x, weight, out), rows, reads, writes, nbytes=nbytes(x, weight, out), interleaved=True
    )


@dataclass(frozen=True)
class _QkNormRope:
    DTYPE: Any
    TOKENS: int
    LENGTH: int
    Q_HEADS: int
    KV_HEADS: int
    DIM: int
    HALF: int
    TILE: int
    Q_EPS: float
    K_EPS: float
    NORM_Q: bool
    NORM_K: bool
    COS_BATCH: int
    """int32 elements from one sequence's row 0 to the next one's in the tables of cosines and sines; 0: all share one."""
    PAGED: bool
    PAGE_SIZE: int
    BLOCKS: int


@triton.jit
def _normalized(first, second, weight, NORM: tl.constexpr, EPS, pair, inside, C: tl.constexpr):
    """The two halves of heads after their normalization, in fp32."""
    if NORM:
        scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / C.DIM + EPS)[:, None]
        first = first * scale * tl.load(weight + pair, mask=inside, other=0.0).to(tl.float32)[None, :]
        second = second * scale * tl.load(weight + pair + C.DIM // 2, mask=inside, other=0.0).to(tl.float32)[None, :]
    return first, second


@triton.jit
def qk_norm_rope_task(task, tile, run, C: tl.constexpr):
    """``TILE`` tokens of one head of q or k, normalized and rotated; with a head of k goes the same head of v, as it is.

    Tensors: qkv (batch, LENGTH, heads of q, k and v, DIM), kv_lens, q_weight, k_weight, cos, sin, q out, k out, v out, block_tables.
    PAGED: k out and v out are caches of pages, and ``kv_lens`` counts these tokens already; else they are as q out, and it does not.
    A token whose position would be negative has no place in the pages: its q is 0, and nothing of its k and v is stored.
    """
    heads: tl.constexpr = C.Q_HEADS + C.KV_HEADS
    pitch: tl.constexpr = (C.Q_HEADS + 2 * C.KV_HEADS) * C.DIM
    head = tile % heads
    token = tile // heads * C.TILE + tl.arange(0, C.TILE)
    pair = tl.arange(0, C.HALF)
    here, inside_head = token < C.TOKENS, pair < C.DIM // 2
    inside = here[:, None] & inside_head[None, :]
    sequence = token // C.LENGTH
    position = tl.load(tensor_of(task, 1, tl.int32) + sequence, mask=here, other=0) + token % C.LENGTH
    if C.PAGED:
        position -= C.LENGTH
    placed = here & (position >= 0)
    stored = placed[:, None] & inside_head[None, :]
    x = tensor_of(task, 0, C.DTYPE) + token[:, None].to(tl.int64) * pitch + head * C.DIM + pair[None, :]
    first = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + C.DIM // 2, mask=inside, other=0.0).to(tl.float32)
    if head < C.Q_HEADS:
        first, second = _normalized(first, second, tensor_of(task, 2, C.DTYPE), C.NORM_Q, C.Q_EPS, pair, inside_head, C)
    else:
        first, second = _normalized(first, second, tensor_of(task, 3, C.DTYPE), C.NORM_K, C.K_EPS, pair, inside_head, C)
    row = sequence[:, None].to(tl.int64) * C.COS_BATCH + position[:, None].to(tl.int64) * C.DIM + pair[None, :]
    cosine = tl.load(tensor_of(task, 4, tl.float32) + row, mask=stored, other=0.0)
    sine = tl.load(tensor_of(task, 5, tl.float32) + row, mask=stored, other=0.0)
    turned_first = (first * cosine - second * sine).to(C.DTYPE)
    turned_second = (second * cosine + first * sine).to(C.DTYPE)
    if head < C.Q_HEADS:
        out = tensor_of(task, 6, C.DTYPE) + (token[:, None].to(tl.int64) * C.Q_HEADS + head) * C.DIM + pair[None, :]
        tl.store(out, turned_first, mask=inside)
        tl.store(out + C.DIM // 2, turned_second, mask=inside)
    else:
        kv_head = head - C.Q_HEADS
        slot = token.to(tl.int64)
        if C.PAGED:
            page = tl.load(tensor_of(task, 9, tl.int32) + sequence * C.BLOCKS + position // C.PAGE_SIZE, mask=placed, other=0)
            slot = page.to(tl.int64) * C.PAGE_SIZE + position % C.PAGE_SIZE
        target = (slot[:, None] * C.KV_HEADS + kv_head) * C.DIM + pair[None, :]
        out = tensor_of(task, 7, C.DTYPE) + target
        tl.store(out, turned_first, mask=stored)
        tl.store(out + C.DIM // 2, turned_second, mask=stored)
        value, value_out = x + C.KV_HEADS * C.DIM, tensor_of(task, 8, C.DTYPE) + target
        tl.store(value_out, tl.load(value, mask=inside, other=0.0), mask=stored)
        tl.store(value_out + C.DIM // 2, tl.load(value + C.DIM // 2, mask=inside, other=0.0), mask=stored)


@dataclass(frozen=True)
class Norms:
    """Weights (head_dim,) of the normalization of q's and k's heads; whether a head is normalized at all."""

    q_weight: torch.Tensor
    k_weight: torch.Tensor
    q_eps: float = 1e-6
    k_eps: float = 1e-6
    norm_q: bool = True
    norm_k: bool = True


def _operation(
    what: str, qkv: torch.Tensor, kv_lens: torch.Tensor, norms: Norms, cos: torch.Tensor, sin: torch.Tensor,
    q_out: torch.Tensor, k_out: torch.Tensor, v_out: torch.Tensor, tables: torch.Tensor | None, programs: int,
) -> Operation:  # fmt: skip
    """Either of the two, of checked outputs. tables: where the outputs of k and v are caches of pages."""
    batch, length, heads, dim = qkv.shape
    q_heads, kv_heads = q_out.shape[2], k_out.shape[2]
    check(what, "kv_lens", kv_lens, (batch,), torch.int32)
    check(what, "q_rms_weight", norms.q_weight, (dim,), qkv.dtype)
    check(what, "k_rms_weight", norms.k_weight, (dim,), qkv.dtype)
    cos_batch = _check_tables(what, cos, sin, batch, dim)
    tokens = batch * length
    tile = width_of_blocks(tokens, max(1, programs // (q_heads + kv_heads)), 1, _MOST_TOKENS)
    pitch, places = heads * dim, [(first, head) for first in range(0, tokens, tile) for head in range(q_heads + kv_heads)]
    values = q_heads + kv_heads

    def boxes(pairs: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        """Of each tile: its tokens, and one head; no head where it is negative."""
        return [
            (first, min(tokens, first + tile) if head >= 0 else first, max(head, 0) * dim, (max(head, 0) + 1) * dim)
            for first, head in pairs
        ]

    of_kv = [(first, head - q_heads) for first, head in places]
    reads = [
        Access.of_boxes(qkv, pitch, boxes(places)),
        Access.of_boxes(qkv, pitch, boxes([(first, values + head if head >= 0 else -1) for first, head in of_kv])),
        *(Access.of_all(tensor, len(places)) for tensor in (kv_lens, norms.q_weight, norms.k_weight, cos, sin)),
    ]
    writes = [Access.of_boxes(q_out, q_heads * dim, boxes([(first, head if head < q_heads else -1) for first, head in places]))]
    for out in (k_out, v_out):
        if tables is None:
            writes.append(Access.of_boxes(out, kv_heads * dim, boxes(of_kv)))
        else:
            slots = out.shape[0] * out.shape[1]
            anywhere = [(0, slots if head >= 0 else 0, max(head, 0) * dim, (max(head, 0) + 1) * dim) for _, head in of_kv]
            writes.append(Access.of_boxes(out, kv_heads * dim, anywhere, exact=False))
    if tables is not None:
        reads.append(Access.of_all(tables, len(places)))
    constants = _QkNormRope(
        TRITON_DTYPES[qkv.dtype], tokens, length, q_heads, kv_heads, dim, max(2, triton.next_power_of_2(dim // 2)), tile,
        float(norms.q_eps), float(norms.k_eps), bool(norms.norm_q), bool(norms.norm_k), cos_batch, tables is not None,
        1 if tables is None else k_out.shape[1], 0 if tables is None else tables.shape[1],
    )  # fmt: skip
    tensors: tuple[torch.Tensor, ...] = (qkv, kv_lens, norms.q_weight, norms.k_weight, cos, sin, q_out, k_out, v_out)
    tensors = tensors if tables is None else (*tensors, tables)
    name = what.removeprefix("make_")
    return Operation(
        name, qk_norm_rope_task, constants, tensors, len(places), tuple(reads), tuple(writes), nbytes=nbytes(qkv, q_out), interleaved=True
    )


def _check_tables(what: str, cos: torch.Tensor, sin: torch.Tensor, batch: int, dim: int) -> int:
    """fp32 elements from one sequence's rows in the tables to the next one's. Raises InvalidArgumentError."""
    for name, tensor in (("cos_cache", cos), ("sin_cache", sin)):
        dims = tensor.dim() if isinstance(tensor, torch.Tensor) else 0
        check(what, name, tensor, (None, dim) if dims == 2 else (None, None, dim), torch.float32)
    if cos.shape != sin.shape or cos.dim() == 3 and cos.shape[0] not in (1, batch):
        raise InvalidArgumentError(
            f"{what}: cos_cache is {tuple(cos.shape)} and sin_cache {tuple(sin.shape)}; both have to be (positions, {dim}), "
            f"(1, positions, {dim}) or ({batch}, positions, {dim})"
        )
    return cos.shape[1] * dim if cos.dim() == 3 and cos.shape[0] > 1 else 0


def _check_qkv(what: str, qkv: torch.Tensor, q_out: torch.Tensor, kv_heads: int) -> None:
    """Raises InvalidArgumentError."""
    check(what, "qkv", qkv, (None, None, None, None))
    batch, length, heads, dim = qkv.shape
    check(what, "q_norm_rope", q_out, (batch, length, None, dim), qkv.dtype)
    if heads != q_out.shape[2] + 2 * kv_heads or dim % 2:
        raise InvalidArgumentError(
            f"{what}: qkv is {tuple(qkv.shape)}; with {q_out.shape[2]} heads of q and {kv_heads} of k and of v it has to have "
            f"{q_out.shape[2] + 2 * kv_heads} heads, of an even number of elements"
        )


def qk_norm_rope_update_kvcache(
    qkv: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, block_tables: torch.Tensor, kv_lens: torch.Tensor,
    norms: Norms, cos: torch.Tensor, sin: torch.Tensor, q_out: torch.Tensor, programs: int,
) -> Operation:  # fmt: skip
    """See ``ModelBuilder.make_qk_norm_rope_update_kvcache``."""
    what = "make_qk_norm_rope_update_kvcache"
    check(what, "qkv", qkv, (None, None, None, None))
    check(what, "key_cache", key_cache, (None, None, None, qkv.shape[3]), qkv.dtype)
    check(what, "value_cache", value_cache, key_cache.shape, qkv.dtype)
    check(what, "block_tables", block_tables, (qkv.shape[0], None), torch.int32)
    _check_qkv(what, qkv, q_out, key_cache.shape[2])
    return _operation(what, qkv, kv_lens, norms, cos, sin, q_out, key_cache, value_cache, block_tables, programs)


def qkv_pack_qk_norm_rope_split_v(
    qkv: torch.Tensor, kv_lens: torch.Tensor, norms: Norms, cos: torch.Tensor, sin: torch.Tensor,
    q_out: torch.Tensor, k_out: torch.Tensor, v_out: torch.Tensor, programs: int,
) -> Operation:  # fmt: skip
    """See ``ModelBuilder.make_qkv_pack_qk_norm_rope_split_v``."""
    what = "make_qkv_pack_qk_norm_rope_split_v"
    check(what, "qkv", qkv, (None, None, None, None))
    check(what, "k_norm_rope", k_out, (*qkv.shape[:2], None, qkv.shape[3]), qkv.dtype)
    check(what, "v", v_out, k_out.shape, qkv.dtype)
    _check_qkv(what, qkv, q_out, k_out.shape[2])
    return _operation(what, qkv, kv_lens, norms, cos, sin, q_out, k_out, v_out, None, programs)
