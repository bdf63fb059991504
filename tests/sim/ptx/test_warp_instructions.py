"""What the threads of a warp do together: as PTX's pages tell it thread by thread, and what is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gpu.programs import run, simulated
from tests.gpu.ptx_warp_cases import THREADS, program, warp_programs
from triton_dist.errors import InlineAssemblyError, SimulationError
from triton_dist.sim.ptx.block import translate

LANES = range(32)
FULL = 0xFFFFFFFF


def results(text, seed=3):
    """(source words, what threads left, their predicates), of the first ``THREADS`` words."""
    one = program("test", text, seed)
    with simulated():
        out = run(one, "cpu")["out"]
    return one.inputs["source"].view(np.uint32), out[:THREADS].view(np.uint32), out[THREADS:] != 0


def shuffled(mode, lane, amount, clamp):
    """(lane that is read, predicate), as the PTX manual writes it."""
    amount &= 31
    bound, segment = clamp & 31, clamp >> 8 & 31
    most, least = lane & segment | bound & ~segment, lane & segment
    if mode == "up":
        source, inside = lane - amount, lane - amount >= most
    elif mode == "down":
        source, inside = lane + amount, lane + amount <= most
    elif mode == "bfly":
        source, inside = lane ^ amount, lane ^ amount <= most
    else:
        source = least | amount & ~segment
        inside = source <= most
    return (source if inside else lane), inside


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["up", "down", "bfly", "idx"]), amount=st.integers(0, 63), bound=st.integers(0, 31),
    segment=st.sampled_from([0, 16, 24, 28, 30, 31]),
)  # fmt: skip
def test_shuffles(mode, amount, bound, segment):
    clamp = segment << 8 | bound
    source, found, inside = results(f"shfl.sync.{mode}.b32 %o|%p, %x, {amount}, {clamp}, -1;")
    for thread in range(THREADS):
        lane, holds = shuffled(mode, thread % 32, amount, clamp)
        assert inside[thread] == holds
        assert found[thread] == source[thread - thread % 32 + lane]


def test_a_shuffle_of_each_thread_its_own():
    source, found, inside = results("shfl.sync.idx.b32 %o|%p, %x, %y, 31, -1;")
    for thread in range(THREADS):
        assert found[thread] == source[thread - thread % 32 + source[THREADS + thread] % 32] and inside[thread]


@settings(max_examples=25, deadline=None)
@given(lanes=st.sets(st.integers(0, 31), min_size=1), seed=st.integers(0, 1000))
def test_masks_of_some(lanes, seed):
    """Only the threads of the mask come; the others keep what they had."""
    mask = sum(1 << lane for lane in lanes)
    come = f"{{ .reg .u32 %m; and.b32 %m, %t, 31; shr.u32 %m, {mask:#x}, %m; and.b32 %m, %m, 1; setp.ne.u32 %q, %m, 0; }} "
    source, total, _ = results(come + f"@%q redux.sync.add.u32 %o, %x, {mask:#x};", seed)
    _, ballot, _ = results(come + f"setp.lt.s32 %p, %x, 0; @%q vote.sync.ballot.b32 %o, %p, {mask:#x};", seed)
    _, leader, leads = results(come + f"@%q elect.sync %o|%p, {mask:#x};", seed)
    for warp in range(THREADS // 32):
        mine = [32 * warp + lane for lane in sorted(lanes)]
        others = [32 * warp + lane for lane in LANES if lane not in lanes]
        assert set(total[mine]) == {sum(map(int, source[mine])) & FULL}
        assert set(ballot[mine]) == {sum(1 << thread % 32 for thread in mine if source[thread] >> 31)}
        assert set(leader[mine]) == {min(lanes)} and leads[mine].tolist() == [lane == min(lanes) for lane in sorted(lanes)]
        assert not total[others].any() and not ballot[others].any() and not leads[others].any()


def test_votes_and_matches():
    source, _, found = results("setp.lt.u32 %q, %t, 33; vote.sync.all.pred %p, %q, -1;")
    assert found.tolist() == [thread < 32 for thread in range(THREADS)]
    _, _, found = results("setp.lt.u32 %q, %t, 33; vote.sync.any.pred %p, %q, -1;")
    assert found.tolist() == [thread < 64 for thread in range(THREADS)]
    _, _, found = results("setp.lt.u32 %q, %t, 33; vote.sync.uni.pred %p, %q, -1;")
    assert found.tolist() == [thread // 32 != 1 for thread in range(THREADS)]
    source, found, _ = results("and.b32 %x, %x, 3; match.any.sync.b32 %o, %x, -1;")
    for thread in range(THREADS):
        warp = thread - thread % 32
        assert found[thread] == sum(1 << lane for lane in LANES if (source[warp + lane] ^ source[thread]) & 3 == 0)
    _, found, same = results("and.b32 %x, %t, 32; mul.lo.u32 %x, %x, %t; match.all.sync.b32 %o|%p, %x, -1;")
    assert same.tolist() == [thread // 32 % 2 == 0 for thread in range(THREADS)]
    assert set(found) == {0, FULL}


@pytest.mark.parametrize(
    ("name", "kind", "reduce"),
    [("min", "u32", np.min), ("max", "u32", np.max), ("min", "s32", np.min), ("max", "s32", np.max), ("and", "b32", np.bitwise_and.reduce),
     ("or", "b32", np.bitwise_or.reduce), ("xor", "b32", np.bitwise_xor.reduce)],
)  # fmt: skip
def test_reductions(name, kind, reduce):
    source, found, _ = results(f"redux.sync.{name}.{kind} %o, %x, -1;")
    typed = source[:THREADS].view(np.int32 if kind == "s32" else np.uint32).reshape(-1, 32)
    assert found.view(typed.dtype).reshape(-1, 32).tolist() == [[reduce(row)] * 32 for row in typed]


def test_threads_that_part_meet_again():
    """Half of a warp takes a way round before the shuffle, and is waited for."""
    text = """and.b32 %o, %t, 16; setp.ne.u32 %q, %o, 0; @!%q bra there;
        add.u32 %x, %x, 5; there: shfl.sync.bfly.b32 %o|%p, %x, 16, 31, -1;"""
    source, found, _ = results(text)
    for thread in range(THREADS):
        other = thread ^ 16
        assert found[thread] == (int(source[other]) + (5 if other & 16 else 0)) & FULL


def test_the_active_threads():
    _, found, _ = results("and.b32 %o, %t, 5; setp.eq.u32 %q, %o, 4; mov.u32 %o, 0; @%q activemask.b32 %o;")
    mask = sum(1 << lane for lane in LANES if lane & 5 == 4)
    assert found.tolist() == [mask if thread & 5 == 4 else 0 for thread in range(THREADS)]


def test_barriers_of_some_and_what_they_count():
    source, found, _ = results("setp.lt.s32 %q, %x, 0; bar.red.popc.u32 %o, 0, %q;")
    assert set(found) == {int((source[:THREADS] >> 31).sum())}
    _, _, found = results("setp.eq.u32 %q, %t, 77; bar.red.or.pred %p, 0, %q;")
    assert found.all()
    _, _, found = results("setp.eq.u32 %q, %t, 77; bar.red.and.pred %p, 0, %q;")
    assert not found.any()
    _, found, _ = results("setp.lt.u32 %q, %t, 32; @%q bar.arrive 1, 64; @!%q setp.lt.u32 %q, %t, 64; @%q setp.ge.u32 %q, %t, 32;"
                          " @%q bar.sync 1, 64; mov.u32 %o, %t;")  # fmt: skip
    assert found.tolist() == list(range(THREADS))


NEIGHBOURS = (
    ".shared .align 4 .b32 place[128]; .reg .b32 %at, %to; shl.b32 %at, %t, 2; mov.u32 %to, place; add.u32 %at, %at, %to;"
    " st.shared.u32 [%at], %t; BARRIER xor.b32 %at, %t, 127; shl.b32 %at, %at, 2; add.u32 %at, %at, %to; ld.shared.u32 %o, [%at];"
)
"""Each thread reads what another warp's has stored."""

CLUSTER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def test_the_barrier_of_a_cluster():
    turned = [thread ^ 127 for thread in range(THREADS)]
    assert results(NEIGHBOURS.replace("BARRIER", CLUSTER))[1].tolist() == turned
    # Those of warp 0 arrive, and wait later than the others: nobody waits for them to wait.
    last = (
        "setp.lt.u32 %q, %t, 32; barrier.cluster.arrive.relaxed; @!%q barrier.cluster.wait; @%q nanosleep.u32 9; @%q barrier.cluster.wait;"
    )
    assert results(NEIGHBOURS.replace("BARRIER", f"{CLUSTER} {last}"))[1].tolist() == turned
    with pytest.raises(SimulationError, match="shared memory"):
        results(NEIGHBOURS.replace("BARRIER", ""))
    with pytest.raises(SimulationError, match="shared memory"):
        results(NEIGHBOURS.replace("BARRIER", "barrier.cluster.arrive;") + " barrier.cluster.wait;")


def test_the_programs_for_a_gpu():
    for one in warp_programs():
        with simulated():
            assert run(one, "cpu")["out"].any(), one.labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("setp.lt.u32 %q, %t, 16; @%q shfl.sync.idx.b32 %o, %x, 0, 31, -1;", "16 threads of warp 0: thread 16 is in it and does not come"),
        ("shfl.sync.idx.b32 %o, %x, 0, 31, 0xffff;", "thread 16 comes and is not in it"),
        ("setp.ne.u32 %q, %t, 40; @%q vote.sync.any.pred %p, %q, -1;", "warp 1: thread 40 is in it and does not come"),
        ("setp.lt.u32 %q, %t, 64; @%q bar.sync 0;", "64 of 128 threads"),
        ("setp.lt.u32 %q, %t, 64; @%q barrier.cluster.arrive; barrier.cluster.wait;", "thread 64 of the block never arrives"),
        ("barrier.cluster.wait;", "thread 0, which has not arrived"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "again before it has waited"),
        ("setp.lt.u32 %q, %t, 64; @%q bar.red.popc.u32 %o, 0, %q;", "64 of 128 threads"),
        ("setp.lt.u32 %q, %t, 16; @%q bra low; shfl.sync.idx.b32 %o, %x, 0, 31, -1; bra on; low: shfl.sync.idx.b32 %o, %x, 0, 31, -1; on:",
         "16 threads of warp 0"),
    ],
)  # fmt: skip
def test_threads_that_do_not_come(text, message):
    with pytest.raises(SimulationError, match=message) as raised:
        results(text)
    assert "of the assembly" in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "shfl.idx.b32 $0, $1, 0, 31;", "shfl.sync.idx.b32 $0, $1, 0, 31;", "vote.sync.all.pred $0, $1, -1;",
        "bar.sync 16;", "bar.sync 0, 33;",
        "shfl.sync.idx.b32 $0, $1, 0, 31, 0;", "elect.sync $0, -1;", "match.any.sync.b32 $0|%p, $1, -1;", "bar.sync 0, 0;", "bar.arrive 0;",
    ],
)  # fmt: skip
def test_what_no_assembler_takes(text):
    with pytest.raises(InlineAssemblyError):
        translate(f"{{ .reg .pred %p; {text} }}", "=r,r")
