"""Kernels that do one thing each to other ranks' memory."""

from __future__ import annotations

import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.language.extra import language_extra, libshmem_device


@triton_dist.jit
def copy_kernel(source, target, peer, stride, TILE: tl.constexpr, GET: tl.constexpr = False):
    """One row to another rank, or from it."""
    lanes = tl.program_id(0) * stride + tl.arange(0, TILE)
    if GET:
        tl.store(target + lanes, tl.load(dl.symm_at(source, peer) + lanes))
    else:
        tl.store(dl.symm_at(target, peer) + lanes, tl.load(source + lanes))


@triton_dist.jit
def bulk_kernel(source, target, peer, n, TILE: tl.constexpr):
    """A tile to another rank by TMA."""
    to = tl.make_tensor_descriptor(dl.symm_at(target, peer), [n, TILE], [TILE, 1], [64, TILE])
    of = tl.make_tensor_descriptor(source, [n, TILE], [TILE, 1], [64, TILE])
    to.store([0, 0], of.load([0, 0]))


@triton_dist.jit
def words_kernel(words, peer):
    """Words by the functions of single threads, a wait of this package, and one of the user's own."""
    remote = dl.symm_at(words, peer)
    language_extra.st(remote, 5, "gpu", "release")
    seen = language_extra.ld(remote + 1, "sys", "acquire")
    tl.atomic_add(remote + 2, seen, sem="relaxed", scope="cta")
    dl.wait(words + 3, 1, "gpu", "acquire", waitValue=2)
    while tl.atomic_cas(words + 4, 1, 1, sem="acquire", scope="sys") != 1:
        pass
    language_extra.__syncthreads()


@triton_dist.jit
def put_kernel(dest, source, nbytes, peer, GET: tl.constexpr):
    """Bytes from here to another rank, or from there: by addresses that are integers, in assembly."""
    if GET:
        libshmem_device.getmem_block(dest, source, nbytes, peer)
    else:
        libshmem_device.putmem_block(dest, source, nbytes, peer)


@triton.jit
def own_kernel(x, out, TILE: tl.constexpr):
    """Nothing of other ranks."""
    lanes = tl.arange(0, TILE)
    tl.store(out + lanes, tl.sort(tl.load(x + lanes)))
