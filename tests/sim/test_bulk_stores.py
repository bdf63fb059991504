"""A TMA store goes on behind its line: what orders it, and what does not."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

import triton_dist
import triton_dist.language as dl
from triton_dist import simulate
from triton_dist.errors import DataRaceError
from triton_dist.language.extra.language_extra import st, tid
from triton_dist.sim.check.bulk_stores import _TRITON_WAITS

pends = pytest.mark.skipif(_TRITON_WAITS, reason="from 3.9 on Triton itself waits for its TMA stores")


@triton.jit
def store_and_release_kernel(x, flag, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    desc.store([0, 0], tl.zeros((ROWS, COLUMNS), tl.float32))
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")


@pytest.mark.parametrize("capability", [90, 100])
def test_what_triton_waits_for(capability):
    """Between a TMA store and a release: for all of the store from 3.9 on, and before for nothing, or for the tile to have been read."""
    signature = {"x": "*fp32", "flag": "*i32", "ROWS": "constexpr", "COLUMNS": "constexpr"}
    source = ASTSource(store_and_release_kernel, signature, {"ROWS": 16, "COLUMNS": 32})
    ptx = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    between = ptx[ptx.index("cp.async.bulk.tensor") : ptx.index("atom.global.sys.release")]
    assert (re.search(r"cp\.async\.bulk\.wait_group\s+0;", between) is not None) == _TRITON_WAITS


HOW = ("notify", "fence", "atomic", "barrier", "first thread", "all threads", "nothing")
NOTIFY, FENCE, ATOMIC, BARRIER, FIRST, ALL, NOTHING = range(len(HOW))


@triton_dist.jit
def tell_kernel(desc, flag, out, HOW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rank 0 stores a tile of its own by TMA, tells the other program of it, and that one reads it."""
    offset = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if tl.program_id(0) == 0:
        desc.store([0, 0], tl.zeros((ROWS, COLUMNS), tl.float32) + 7)
        if HOW == 0:
            dl.notify(flag, dl.rank(), signal=1, sig_op="set", comm_scope="gpu")
        elif HOW == 1:
            dl.fence_gpu()
            tl.debug_barrier()
            tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
        elif HOW == 2:
            tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
        elif HOW == 3:
            tl.debug_barrier()
            tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
        elif HOW == 4:
            tl.debug_barrier()
            if tid(0) == 0:
                st(flag, 1, "gpu", "release")
        elif HOW == 5:
            tl.debug_barrier()
            st(flag, 1, "gpu", "release")
    elif HOW < 6:
        dl.wait(flag, 1, "gpu", "acquire", waitValue=1)
        tl.store(out + offset, desc.load([0, 0]))


def told(how: int) -> torch.Tensor:
    x, out = torch.zeros(16, 32), torch.zeros(16, 32)
    flag = triton_dist.symm_zeros((1,), torch.int32)
    tell_kernel[(2,)](TensorDescriptor.from_tensor(x, [16, 32]), flag, out, HOW=how, ROWS=16, COLUMNS=32)
    return (x if how == NOTHING else out).clone()


@pytest.mark.parametrize("how", [NOTIFY, FENCE, FIRST, NOTHING], ids=lambda how: HOW[how])
def test_what_waits_for_a_store(how):
    assert (simulate(told, 1, args=(how,), check="race")[0] == 7).all()


@pends
@pytest.mark.parametrize("how", [ATOMIC, BARRIER, ALL], ids=lambda how: HOW[how])
def test_what_does_not(how):
    with pytest.raises(DataRaceError, match=r"its TMA store at .*\n.*a TMA store goes on behind its line"):
        simulate(told, 1, args=(how,), check="race")


@triton_dist.jit
def made_kernel(x, flag, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    desc = tl.make_tensor_descriptor(x, [ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    offset = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if tl.program_id(0) == 0:
        desc.store([0, 0], tl.zeros((ROWS, COLUMNS), tl.float32) + 7)
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
    else:
        dl.wait(flag, 1, "gpu", "acquire", waitValue=1)
        tl.store(out + offset, tl.load(x + offset))


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200"])
def test_without_tma_a_descriptor_stores_as_any_other_store(gpu):
    def fn():
        made_kernel[(2,)](torch.zeros(16, 32), triton_dist.symm_zeros((1,), torch.int32), torch.zeros(16, 32), ROWS=16, COLUMNS=32)

    if gpu == "a100" or _TRITON_WAITS:
        simulate(fn, 1, check="race", gpu=gpu)
    else:
        with pytest.raises(DataRaceError, match="its TMA store"):
            simulate(fn, 1, check="race", gpu=gpu)


@triton_dist.jit
def again_kernel(desc, out, AGAIN: tl.constexpr, ORDERED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = tl.zeros((ROWS, COLUMNS), tl.float32)
    offset = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    desc.store([0, 0], tile)
    if ORDERED:
        dl.fence_gpu()
        tl.debug_barrier()
    if AGAIN == "load":
        tl.store(out + offset, desc.load([0, 0]))
    else:
        desc.store([0, 0], tile + 1)


def again(what: str, ordered: bool) -> None:
    x, out = torch.zeros(16, 32), torch.zeros(16, 32)
    again_kernel[(1,)](TensorDescriptor.from_tensor(x, [16, 32]), out, AGAIN=what, ORDERED=ordered, ROWS=16, COLUMNS=32)


@pends
@pytest.mark.parametrize("what", ["load", "store"])
def test_a_program_comes_behind_its_own_store_only_when_it_has_waited(what):
    simulate(again, 1, args=(what, True), check="race")
    with pytest.raises(DataRaceError, match="its TMA store"):
        simulate(again, 1, args=(what, False), check="race")


@triton.jit
def launch_kernel(desc, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = desc.load([tl.program_id(0) * ROWS, 0])
    desc.store([tl.program_id(0) * ROWS, 0], tile + 1)


def launches() -> torch.Tensor:
    x = torch.zeros(64, 32)
    for _ in range(3):
        launch_kernel[(4,)](TensorDescriptor.from_tensor(x, [16, 32]), ROWS=16, COLUMNS=32)
    return x.clone()


def test_a_kernel_ends_when_its_stores_have_arrived():
    assert (simulate(launches, 1, check="race")[0] == 3).all()


@triton_dist.jit
def many_kernel(desc, flag, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    for number in range(40):
        desc.store([0, 0], tl.zeros((ROWS, COLUMNS), tl.float32) + number)
        if number % 2:
            dl.notify(flag, dl.rank(), signal=number, sig_op="set", comm_scope="gpu")
        else:
            dl.fence_sys()
            tl.debug_barrier()


def test_many_stores_of_one_program():
    def fn():
        x = torch.zeros(16, 32)
        many_kernel[(1,)](TensorDescriptor.from_tensor(x, [16, 32]), triton_dist.symm_zeros((1,), torch.int32), ROWS=16, COLUMNS=32)
        return x.clone()

    assert (simulate(fn, 1, check="race")[0] == 39).all()
