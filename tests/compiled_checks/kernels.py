"""Kernels in pairs, right and wrong by little, for each check of compiled code."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist.language as dl

POLL = tl.constexpr(
    "{ .reg .pred %again; POLL${:uid}: ld.acquire.sys.global.b32 $0, [$1]; setp.ne.b32 %again, $0, 1; @%again bra POLL${:uid}; }"
)
"""A wait as a user may write it."""

RELEASE = tl.constexpr("st.release.sys.global.b32 [$1], $2; mov.u32 $0, 0;")
"""A signal as a user may write it."""


@triton.jit
def own_wait(words):
    """Impure, and with no block barrier behind it."""
    return tl.inline_asm_elementwise(POLL, "=r,l", [words], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def read_twice_kernel(data, words, out, TILE: tl.constexpr, OWN: tl.constexpr):
    """The second load reads what the wait announces; Triton 3.9 takes it from the first one if the wait is no barrier."""
    lanes = tl.arange(0, TILE)
    before = tl.load(data + lanes)
    if OWN:
        own_wait(words)
    else:
        dl.wait(words, 1, "sys", "acquire")
    after = tl.load(data + lanes)
    tl.store(out + lanes, before + 2 * after)


@triton.jit
def product_kernel(a, b, c, words, K, WAIT: tl.constexpr, STAGES: tl.constexpr):
    """A product whose blocks of ``a`` are announced by words, one for all of them or one for each."""
    rows, inner = tl.arange(0, 128), tl.arange(0, 64)
    total = tl.zeros((128, 128), tl.float32)
    if WAIT == "before":
        dl.wait(words, 1, "sys", "acquire")
    for k in tl.range(0, K, 64, num_stages=STAGES):
        if WAIT == "inside":
            dl.wait(words + k, 1, "sys", "acquire")
        elif WAIT == "own":
            own_wait(words + k)
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + rows[None, :] * K + (k + inner)[:, None])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * 128 + rows[None, :], total.to(tl.float16))


@triton.jit
def announce_kernel(words, out, n, TILE: tl.constexpr, SIGNAL: tl.constexpr):
    """Tiles stored by TMA, each announced by a word."""
    target = tl.make_tensor_descriptor(out, [n, TILE], [TILE, 1], [64, TILE])
    for tile in range(tl.program_id(0), n // 64, tl.num_programs(0)):
        target.store([tile * 64, 0], tl.full((64, TILE), tile, tl.float32))
        if SIGNAL == "notify":
            dl.notify(words + tile, 1, comm_scope="intra_node")
        elif SIGNAL == "st":
            dl.st(words + tile, 1, scope="sys", semantic="release")
        elif SIGNAL == "relaxed":
            tl.atomic_add(words, 1, sem="relaxed")
        elif SIGNAL == "own":
            tl.inline_asm_elementwise(RELEASE, "=r,l,r", [words + tile, 1], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def bulk_read_kernel(data, words, out, n, TILE: tl.constexpr, OWN: tl.constexpr):
    """A tile that a peer has stored, loaded by TMA."""
    source = tl.make_tensor_descriptor(data, [n, TILE], [TILE, 1], [8, TILE])
    target = tl.make_tensor_descriptor(out, [n, TILE], [TILE, 1], [8, TILE])
    if OWN:
        while tl.atomic_cas(words, 1, 1, sem="acquire", scope="sys") != 1:
            pass
    else:
        dl.wait(words, 1, "sys", "acquire")
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def remote_copy_kernel(source, target, peer, stride, TILE: tl.constexpr):
    """Rows of this rank to another one."""
    row = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    tl.store(dl.symm_at(target, peer) + row * stride + lanes, tl.load(source + row * stride + lanes))


@triton.jit
def silenced_copy_kernel(source, target, peer, stride, TILE: tl.constexpr):
    """The same, meant to be so."""
    row = tl.program_id(0)
    lanes = tl.arange(0, TILE)
    tl.store(dl.symm_at(target, peer) + row * stride + lanes, tl.load(source + row * stride + lanes))  # td: ignore[TD206]


@triton.jit
def remote_read_kernel(source, target, peer, n, TILE: tl.constexpr, MASKED: tl.constexpr):
    """Another rank's tile to this one."""
    lanes = tl.arange(0, TILE)
    value = tl.load(dl.symm_at(source, peer) + lanes, mask=lanes < n if MASKED else None)
    tl.store(target + lanes, value)
