"""Signals by inline PTX: each thread runs the block for itself, and the checks follow what it orders."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.errors import DataRaceError, DeadlockError, MisuseError, TrapError
from triton_dist.sim.simulate import simulate


@triton.jit
def thread_index():
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def send(addresses, SEMANTIC: tl.constexpr):
    """0 becomes 1."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 %seen<1>;
            .reg .pred %done<1>;
            again:
                atom.global.{SEMANTIC}.sys.cas.b32 %seen0, [$1], 0, 1;
                setp.eq.u32 %done0, %seen0, 0;
                @!%done0 bra again;
        }}
        """,
        "=r, l",
        [addresses],
        dtype=addresses.dtype,
        is_pure=False,
        pack=1,
    )


@triton.jit
def receive(addresses, SEMANTIC: tl.constexpr):
    """1 becomes 0."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 %seen<1>;
            .reg .pred %done<1>;
            again:
                atom.global.{SEMANTIC}.sys.cas.b32 %seen0, [$1], 1, 0;
                setp.eq.u32 %done0, %seen0, 1;
                @!%done0 bra again;
        }}
        """,
        "=r, l",
        [addresses],
        dtype=addresses.dtype,
        is_pure=False,
        pack=1,
    )


@triton.jit
def one_shot_kernel(data, pads, out, WORLD: tl.constexpr, SEND: tl.constexpr, MEET: tl.constexpr, LOST: tl.constexpr):
    """All ranks meet by words of a signal pad, one thread a peer, then each sums what all have."""
    rank = dl.rank()
    elements = tl.arange(0, 256)
    tl.store(data + elements, rank + 1)
    peers = tl.arange(0, WORLD)
    send_to = dl.symm_at(pads + rank + 0 * peers, peers)
    tl.debug_barrier()
    if thread_index() < WORLD:
        send(send_to, SEND)
        if rank != LOST:
            receive(pads + peers, "acquire")
    if MEET:
        tl.debug_barrier()
    total = tl.zeros((256,), tl.int32)
    for peer in range(WORLD):
        total += tl.load(dl.symm_at(data, peer) + elements)
    tl.store(out + elements, total)


def one_shot(calls=1, send="release", meet=True, lost=-1):
    """What each rank runs."""
    data = triton_dist.symm_empty((256,), torch.int32)
    pads = triton_dist.symm_zeros((16,), torch.int32)
    out = torch.zeros(256, dtype=torch.int32)
    for _ in range(calls):
        one_shot_kernel[(1,)](data, pads, out, 4, send, meet, lost)
    return out, pads.clone()


@pytest.mark.parametrize("seed", range(3))
def test_a_barrier_of_compare_and_swaps(seed):
    for out, pads in triton_dist.simulate(one_shot, 4, seed=seed, check="all"):
        assert (out == 10).all() and not pads.any()


def test_a_signal_that_releases_nothing_is_a_race():
    with pytest.raises(DataRaceError, match=r"(?s)of one_shot_kernel .*relaxed, with no fence before it"):
        triton_dist.simulate(one_shot, 4, kwargs={"send": "relaxed"}, check="race")


def test_what_one_thread_acquires_the_others_do_not_know():
    with pytest.raises(DataRaceError, match=r"data\[0\.\.255\] of rank"):
        triton_dist.simulate(one_shot, 4, kwargs={"meet": False}, check="race")


def test_a_loop_that_never_ends_says_what_it_waits_for():
    """A rank that takes no signals: the second send to it finds the first one there."""
    with pytest.raises(DeadlockError) as raised:
        triton_dist.simulate(one_shot, 4, kwargs={"lost": 2, "calls": 2})
    text = str(raised.value)
    assert "test_signals.py" in text
    assert "waits for pads[1] of rank 2 == 0; it is 1, last written by rank 1" in text


@triton.jit
def flag_kernel(data, flag, out, STORE: tl.constexpr, LOAD: tl.constexpr):
    """Rank 0 sets a flag behind its data, by every thread; rank 1 polls it."""
    rank = dl.rank()
    there = dl.symm_at(data, 1) + tl.arange(0, 64)
    if rank == 0:
        tl.store(there, 5)
        tl.debug_barrier()
        tl.inline_asm_elementwise(f"{STORE} mov.u32 $0, 0;", "=r,l", [dl.symm_at(flag, 1)], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.inline_asm_elementwise(
            f"""
            {{
                .reg .pred %p;
            poll:
                {LOAD}
                setp.ne.u32 %p, $0, 1;
                @%p bra poll;
            }}
            """,
            "=r,l",
            [flag],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
        tl.debug_barrier()
        tl.store(out + tl.arange(0, 64), tl.load(data + tl.arange(0, 64)))


def by_flag(store, load):
    """What both ranks run."""
    data = triton_dist.symm_zeros((64,), torch.int32)
    flag = triton_dist.symm_zeros((1,), torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    flag_kernel[(1,)](data, flag, out, store, load)
    return out


RIGHT = [
    ("st.global.release.sys.u32 [$1], 1;", "ld.global.acquire.sys.u32 $0, [$1];"),
    ("fence.acq_rel.sys; st.relaxed.sys.global.u32 [$1], 1;", "ld.acquire.sys.global.b32 $0, [$1];"),
    ("membar.sys; st.volatile.global.u32 [$1], 1;", "ld.relaxed.sys.global.u32 $0, [$1]; fence.sc.sys;"),
    ("red.release.sys.global.max.u32 [$1], 1;", "ld.volatile.global.u32 $0, [$1]; membar.sys;"),
    ("{ .reg .u32 %o; atom.acq_rel.sys.global.exch.b32 %o, [$1], 1; }", "atom.acquire.sys.global.or.b32 $0, [$1], 0;"),
    ("{ .reg .pred %q; .reg .u32 %t; mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0; @%q red.release.sys.global.add.u32 [$1], 1; }",
     "ld.global.acquire.sys.u32 $0, [$1];"),
]  # fmt: skip

WRONG = [
    ("st.global.u32 [$1], 1;", "ld.global.acquire.sys.u32 $0, [$1];"),
    ("st.global.relaxed.sys.u32 [$1], 1;", "ld.global.acquire.sys.u32 $0, [$1];"),
    ("st.global.release.sys.u32 [$1], 1;", "ld.global.relaxed.sys.u32 $0, [$1];"),
    ("st.global.release.sys.u32 [$1], 1;", "ld.volatile.global.u32 $0, [$1];"),
    ("st.global.release.gpu.u32 [$1], 1;", "ld.global.acquire.sys.u32 $0, [$1];"),
    ("fence.acq_rel.gpu; st.relaxed.sys.global.u32 [$1], 1;", "ld.acquire.sys.global.b32 $0, [$1];"),
]


@pytest.mark.parametrize("store, load", RIGHT)
def test_what_orders(store, load):
    assert (triton_dist.simulate(by_flag, 2, args=(store, load), check="race")[1] == 5).all()


@pytest.mark.parametrize("store, load", WRONG)
def test_what_does_not(store, load):
    with pytest.raises(DataRaceError):
        triton_dist.simulate(by_flag, 2, args=(store, load), check="race")


@triton.jit
def count_kernel(counters, TEXT: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r,l", [counters], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def count_tile_kernel(counters, BLOCK: tl.constexpr):
    tl.inline_asm_elementwise(
        "red.global.add.u32 [$1], 1; mov.u32 $0, 0;", "=r,l", [counters + tl.arange(0, BLOCK)], dtype=tl.int32, is_pure=False, pack=1
    )


FIRST_THREAD = """
{
    .reg .pred %first;
    .reg .u32 %index;
    mov.u32 %index, %tid.x;
    setp.eq.u32 %first, %index, 0;
    @%first red.relaxed.gpu.global.add.u32 [$1], 1;
    mov.u32 $0, 0;
}
"""


def test_every_thread_runs_a_block_for_itself():
    counters = torch.zeros(1, dtype=torch.int32)
    count_kernel[(3,)](counters, "red.relaxed.gpu.global.add.u32 [$1], 1; mov.u32 $0, 0;", num_warps=2)
    assert counters.item() == 3 * 64
    count_kernel[(3,)](counters, FIRST_THREAD, num_warps=2)
    assert counters.item() == 3 * 64 + 3


@pytest.mark.parametrize("block, times", [(4, 32), (128, 1), (512, 1)])
def test_a_tile_smaller_than_the_block_is_in_several_threads(block, times):
    counters = torch.zeros(block, dtype=torch.int32)
    count_tile_kernel[(1,)](counters, block)
    assert (counters == times).all()


LOCK = """
{
    .reg .pred %taken, %left;
    .reg .u32 %old;
    .reg .u32 %count;
lock:
    atom.acquire.gpu.global.cas.b32 %old, [$1], 0, 1;
    setp.ne.u32 %left, %old, 0;
    @%left bra lock;
    ld.global.u32 %count, [$1+4];
    add.u32 %count, %count, 1;
    st.global.u32 [$1+4], %count;
    atom.release.gpu.global.exch.b32 %old, [$1], 0;
    mov.u32 $0, %count;
}
"""


@triton.jit
def lock_kernel(words, seen, TEXT: tl.constexpr):
    got = tl.inline_asm_elementwise(TEXT, "=r,l", [words], dtype=tl.int32, is_pure=False, pack=1)
    dl.st(seen + dl.tid(0), got, "gpu", "relaxed")


def test_a_lock_that_every_thread_takes():
    """Threads that have the lock go on while others spin for it."""
    words, seen = torch.zeros(2, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    lock_kernel[(1,)](words, seen, LOCK, num_warps=1)
    assert words.tolist() == [0, 32] and sorted(seen.tolist()) == list(range(1, 33))


@triton.jit
def counted_kernel(flag, LIMIT: tl.constexpr, COMPARE: tl.constexpr):
    """Rank 0 adds to a word of rank 1, which waits for a number."""
    if dl.rank() == 0:
        for _ in range(3):
            tl.atomic_add(dl.symm_at(flag, 1), 1, sem="release", scope="sys")
    else:
        tl.inline_asm_elementwise(
            f"""
            {{
                .reg .pred %p;
            poll:
                ld.acquire.sys.global.u32 $0, [$1];
                setp.{COMPARE}.u32 %p, $0, {LIMIT};
                @%p bra poll;
            }}
            """,
            "=r,l",
            [flag],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


def counted(compare):
    """What both ranks run."""
    counted_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32, name="flag"), 2, compare)


def test_lints_know_what_a_loop_waits_for():
    """An equality wait on a word that is added to may be overtaken, whether it was in this run or not."""
    triton_dist.simulate(counted, 2, args=("lt",), check="all")
    with pytest.raises((MisuseError, DeadlockError), match="TD108"):
        triton_dist.simulate(counted, 2, args=("ne",), check="all")


@triton.jit
def early_kernel(data, flag, out):
    """Rank 0 counts to 2 but writes the second half of its data before the second count only; rank 1 waits for 1 or more."""
    elements = tl.arange(0, 64)
    if dl.rank() == 0:
        for part in range(2):
            tl.store(dl.symm_at(data, 1) + 64 * part + elements, 1)
            tl.debug_barrier()
            tl.atomic_add(dl.symm_at(flag, 1), 1, sem="release", scope="sys")
    else:
        tl.inline_asm_elementwise(
            """
            {
                .reg .pred %p;
            poll:
                ld.acquire.sys.global.u32 $0, [$1];
                setp.lt.u32 %p, $0, 1;
                @%p bra poll;
            }
            """,
            "=r,l",
            [flag],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
        tl.debug_barrier()
        tl.store(out + elements, tl.load(data + 64 + elements))


@pytest.mark.parametrize("seed", range(6))
def test_a_wait_that_may_end_early_is_taken_to(seed):
    """Whether the second count had come in this run or not."""

    def early():
        data = triton_dist.symm_zeros((128,), torch.int32, name="data")
        early_kernel[(1,)](data, triton_dist.symm_zeros((1,), torch.int32), torch.zeros(64, dtype=torch.int32))

    with pytest.raises(DataRaceError, match=r"data\[64"):
        triton_dist.simulate(early, 2, seed=seed, check="race")


@triton.jit
def reset_kernel(signal_pads, RANK: tl.constexpr, SIGNAL: tl.constexpr, RESET: tl.constexpr, RESETTER: tl.constexpr, BARRIER: tl.constexpr):
    """Signals the peer, waits for its signal in thread 0, and sets the word back, by that thread or another one."""
    tables = signal_pads.to(tl.pointer_type(tl.uint64))
    there = tl.load(tables + 1 - RANK).to(tl.pointer_type(tl.uint32)) + RANK
    mine = tl.load(tables + RANK).to(tl.pointer_type(tl.uint32)) + (1 - RANK)
    thread = thread_index()
    if thread == 0:
        tl.inline_asm_elementwise(SIGNAL, "=r,l", [there], dtype=tl.int32, is_pure=False, pack=1)
        tl.inline_asm_elementwise(
            "{ .reg .u32 %seen; .reg .pred %more; again: ld.volatile.global.u32 %seen, [$1]; setp.ne.u32 %more, %seen, 1;"
            " @%more bra again; }",
            "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    if BARRIER:
        tl.debug_barrier()
    if thread == RESETTER:
        tl.inline_asm_elementwise(RESET, "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1)


SIGNALS = [
    "membar.sys; st.volatile.global.u32 [$1], 1;", "st.relaxed.sys.global.u32 [$1], 1;", "red.relaxed.sys.global.add.u32 [$1], 1;",
    "st.release.sys.global.u32 [$1], 1;",
]  # fmt: skip
RESETS = [
    "membar.sys; st.volatile.global.u32 [$1], 0; membar.sys;",
    "st.relaxed.sys.global.u32 [$1], 0;",
    "st.release.sys.global.u32 [$1], 0;",
]


def reset(*arguments):
    def fn():
        dist.init_process_group("nccl")
        handle = symm_mem.rendezvous(symm_mem.empty(4), dist.group.WORLD)
        reset_kernel[(1,)](handle.signal_pad_ptrs_dev, handle.rank, *arguments)
        triton_dist.synchronize()
        dist.barrier()

    return fn


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("way_back", RESETS)
@pytest.mark.parametrize("resetter, barrier", [(0, False), (0, True), (5, True)])
def test_who_has_seen_a_signal_may_set_it_back(signal, way_back, resetter, barrier):
    """Reads and writes of one word by one thread are in order, and so is what it has read before what it writes."""
    for seed in range(2):
        simulate(reset(signal, way_back, resetter, barrier), 2, check="lint", seed=seed)


@pytest.mark.parametrize("signal", SIGNALS[:3])
@pytest.mark.parametrize("way_back", RESETS)
def test_a_thread_that_has_not_seen_it_may_not(signal, way_back):
    """In another schedule it sets the word back before the signal comes, which then stays."""
    with pytest.raises(MisuseError, match="TD107"):
        for seed in range(6):
            simulate(reset(signal, way_back, 40, False), 2, check="lint", seed=seed)


@triton.jit
def read_behind_wait_kernel(buffers, signal_pads, out, RANK: tl.constexpr, BEFORE: tl.constexpr, BEHIND: tl.constexpr):
    tables, places = signal_pads.to(tl.pointer_type(tl.uint64)), tl.arange(0, 256)
    own = tl.load(buffers.to(tl.pointer_type(tl.uint64)) + RANK).to(tl.pointer_type(tl.float32))
    peer = tl.load(buffers.to(tl.pointer_type(tl.uint64)) + 1 - RANK).to(tl.pointer_type(tl.float32))
    there = tl.load(tables + 1 - RANK).to(tl.pointer_type(tl.uint32)) + RANK
    mine = tl.load(tables + RANK).to(tl.pointer_type(tl.uint32)) + (1 - RANK)
    tl.store(own + places, places + 1.0)
    if BEFORE:
        tl.debug_barrier()
    if thread_index() == 0:
        tl.inline_asm_elementwise("st.release.sys.global.u32 [$1], 1;", "=r,l", [there], dtype=tl.int32, is_pure=False, pack=1)
        tl.inline_asm_elementwise(
            "{ .reg .u32 %seen; .reg .pred %more; again: ld.acquire.sys.global.u32 %seen, [$1]; setp.ne.u32 %more, %seen, 1;"
            " @%more bra again; }",
            "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    if BEHIND:
        tl.debug_barrier()
    tl.store(out + places, tl.load(peer + places))


@pytest.mark.parametrize("before, behind, cure", [(True, True, ""), (True, False, "behind the wait"), (False, True, "before the release")])
def test_a_block_barrier_that_is_missing_on_either_side_is_named(before, behind, cure):
    def fn():
        dist.init_process_group("nccl")
        handle = symm_mem.rendezvous(symm_mem.empty(256), dist.group.WORLD)
        read_behind_wait_kernel[(1,)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, torch.empty(256), handle.rank, before, behind
        )  # fmt: skip
        triton_dist.synchronize()
        dist.barrier()

    if not cure:
        simulate(fn, 2, check="race")
        return
    with pytest.raises(DataRaceError, match=rf"(?s)put\s+tl.debug_barrier\(\)\s+{cure}.*\[TD103\]"):
        simulate(fn, 2, check="race")


@triton.jit
def impatient_kernel(signal_pads, RANK: tl.constexpr, THREAD: tl.constexpr):
    mine = tl.load(signal_pads.to(tl.pointer_type(tl.uint64)) + RANK).to(tl.pointer_type(tl.uint32))
    if thread_index() == THREAD:
        tl.inline_asm_elementwise(
            "{ .reg .u32 %seen, %tries; .reg .pred %more, %late; mov.u32 %tries, 0;\n"
            "again: ld.acquire.sys.global.u32 %seen, [$1]; add.u32 %tries, %tries, 1; setp.gt.u32 %late, %tries, 20;\n"
            "@%late trap;\n"
            "setp.ne.u32 %more, %seen, 1; @%more bra again; }",
            "=r,l", [mine], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@pytest.mark.parametrize("thread", [0, 77])
def test_a_loop_that_gives_up_ends_the_run(thread):
    def fn():
        dist.init_process_group("nccl")
        handle = symm_mem.rendezvous(symm_mem.empty(4), dist.group.WORLD)
        if handle.rank:
            impatient_kernel[(1,)](handle.signal_pad_ptrs_dev, handle.rank, thread)
        triton_dist.synchronize()

    words = rf"rank 1, program \(0, 0, 0\) of impatient_kernel at .*test_signals.py:\d+: trap, by thread {thread};.*line 3 of the assembly"
    with pytest.raises(TrapError, match=words):
        simulate(fn, 2)
