"""The copy loop that all SHMEM functions share, run on the simulator with its one unit of assembly replaced by loads and stores."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import simulate
from triton_dist.primitives import shmem, shmem_device


@triton.jit
def _move(to, start, ELEMENT: tl.constexpr):
    dl.st(to.to(tl.pointer_type(ELEMENT)), dl.ld(start.to(tl.pointer_type(ELEMENT))))


@triton.jit
def units_by_scalars(to, start, stride, WIDTH: tl.constexpr, COUNT: tl.constexpr):
    """``copy_units`` of words; the simulator checks their alignment, and 16 bytes are checked here."""
    for unit in tl.static_range(COUNT):
        place = unit * stride
        if WIDTH == 16:
            tl.device_assert(((to + place) | (start + place)) % 16 == 0, "16 bytes at once are aligned")
            _move(to + place, start + place, tl.int64)
            _move(to + place + 8, start + place + 8, tl.int64)
        elif WIDTH == 8:
            _move(to + place, start + place, tl.int64)
        elif WIDTH == 4:
            _move(to + place, start + place, tl.int32)
        elif WIDTH == 2:
            _move(to + place, start + place, tl.int16)
        else:
            _move(to + place, start + place, tl.int8)


@triton.jit(do_not_specialize=["to", "start", "nbytes"])
def copy_kernel(dest, source, to, start, nbytes, COUNT: tl.constexpr):
    """COUNT threads copy together."""
    index = dl.tid(0)
    if index < COUNT:
        place = index | (COUNT << 16)
        shmem_device.copy_bytes((dest + to).to(tl.int64), (source + start).to(tl.int64), nbytes.to(tl.int64), place)


def copies(threads: int, sizes: list[int]) -> list[tuple]:
    """The sizes and places at which the copy was not exactly what was asked for."""
    wrong = []
    source = torch.randint(0, 256, (3000,), dtype=torch.uint8, generator=torch.Generator().manual_seed(threads))
    for nbytes in sizes:
        for to, start in [(to, start) for to in (0, 1, 2, 4, 7, 8, 13, 15) for start in (0, 1, 4, 6, 8, 13, 15)]:
            dest = torch.full((3000,), 99, dtype=torch.uint8)
            # torch aligns its storages by 64 bytes.
            copy_kernel[(1,)](dest, source, to, start, nbytes, COUNT=threads, num_warps=1, debug=True)
            triton_dist.synchronize()
            expected = torch.full((3000,), 99, dtype=torch.uint8)
            expected[to : to + nbytes] = source[start : start + nbytes]
            if not torch.equal(dest, expected):
                wrong.append((nbytes, to, start))
    return wrong


@pytest.mark.parametrize("threads, sizes", [(1, [0, 1, 2, 3, 5, 8, 13, 16, 17, 40, 100]), (3, [15, 16, 64, 250]), (32, [31, 512, 2100])])
def test_every_byte_is_copied_and_no_other(monkeypatch, tmp_path, threads, sizes):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shmem, "copy_units", units_by_scalars)
    assert simulate(copies, 1, args=(threads, sizes)) == [[]]
