"""mbarriers and bulk copies: what they order, what they move, and what is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl
from tests.gpu.programs import run, simulated
from tests.gpu.ptx_warp_cases import MBARRIERS, THREADS, program
from triton_dist.errors import InlineAssemblyError, MisalignedAccessError, OutOfBoundsError, SimulationError, UnsupportedInstructionError
from triton_dist.sim.ptx.block import translate


def results(text, seed=3):
    one = program("test", text, seed)
    with simulated():
        out = run(one, "cpu")["out"]
    source = one.inputs["source"].view(np.uint32)
    return source[:THREADS], source[THREADS:], out[:THREADS].view(np.uint32), out[THREADS:] != 0


def test_what_the_programs_for_a_gpu_leave():
    threads = np.arange(THREADS)
    expected = [
        lambda x, y: threads,
        lambda x, y: threads + 1,
        lambda x, y: np.full(THREADS, 2),
        lambda x, y: threads + 3,
        lambda x, y: x,
        lambda x, y: np.concatenate([x[64:], x[:64]]),
        lambda x, y: ~x,
        lambda x, y: np.append(x[1:], y[0]),
    ]
    for text, want in zip(MBARRIERS, expected, strict=True):
        x, y, found, _ = results(text)
        np.testing.assert_array_equal(found, want(x, y), err_msg=text)


def start(count):
    """Memory, and an mbarrier of that many arrivals."""
    return f"""{{ .shared .align 8 .b64 bar; .shared .align 128 .b8 buffer[512]; .reg .b64 %st, %g; .reg .pred %first;
        setp.eq.u32 %first, %t, 0; @%first mbarrier.init.shared::cta.b64 [bar], {count}; bar.sync 0; """


LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [$1], 512, [bar]; "
POLL = "again: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra again; "


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), late=st.booleans())
def test_copies_of_several_sizes(sizes, late):
    """The phase ends when all arrivals and all bytes are there, in whatever order they are announced."""
    total = 16 * sum(sizes)
    text, at = start(2), 0
    expect = f"@%first mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], {total}; "
    text += "" if late else expect
    for size in sizes:
        text += f"@%first cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buffer+{at}], [$1+{at}], {16 * size}, [bar]; "
        at += 16 * size
    text += (expect if late else "") + "@%first mbarrier.arrive.shared::cta.b64 _, [bar], 2; " + POLL
    text += "mov.u32 %y, buffer; mad.lo.u32 %y, %t, 4, %y; ld.shared.u32 %o, [%y]; }"
    if total > 512:
        with pytest.raises(OutOfBoundsError, match="a bulk copy to"):
            results(text)
        return
    x, _, found, _ = results(text)
    words = total // 4
    assert (found[:words] == x[:words]).all() and (found[words:] == 0xFFFFFFFF).all()


def test_data_that_nobody_has_waited_for_is_not_there():
    text = start(1) + "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; @%first " + LOAD
    _, _, found, _ = results(text + "bar.sync 0; ld.shared.u32 %o, [buffer]; }")
    assert set(found) == {0xFFFFFFFF}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (POLL, SimulationError, r"nobody completes: in phase 0 it has 0 of 2 arrivals, and 0 bytes are still expected"),
        ("@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64; " + POLL, SimulationError, "1 of 2 arrivals, and 64 bytes"),
        ("@%first mbarrier.arrive.shared::cta.b64 _, [bar], 3;", SimulationError, "3 arrivals at an mbarrier that waits for 2 more"),
        ("mbarrier.arrive.shared::cta.b64 _, [buffer];", SimulationError, "there is no mbarrier"),
        ("@%first mbarrier.inval.shared::cta.b64 [bar]; bar.sync 0; " + POLL, SimulationError, "there is no mbarrier"),
        ("mbarrier.arrive.shared::cta.b64 _, [bar+4];", OutOfBoundsError, "mbarrier of 8 bytes"),
        ("mbarrier.init.shared::cta.b64 [buffer+4], 1;", MisalignedAccessError, "multiple of 8"),
        ("mbarrier.init.shared::cta.b64 [bar], 0;", SimulationError, "a count of 0"),
        (LOAD.replace("512", "24"), SimulationError, "a bulk copy of 24 bytes; the size is a multiple of 16"),
        (LOAD.replace("[$1]", "[$1+8]"), MisalignedAccessError, "multiple of 16"),
        (LOAD.replace("[$1]", "[$1+1024]"), OutOfBoundsError, "load"),
        (LOAD.replace("[buffer]", "[buffer+8]").replace("512", "16"), MisalignedAccessError, "multiple of 16"),
        ("cp.async.bulk.global.shared::cta.bulk_group [$2+1024], [buffer], 512;", OutOfBoundsError, "store"),
    ],
)
def test_mistakes(text, error, message):
    text = start(2) + text + " }"
    with pytest.raises(error, match=message) as raised:
        results(text)
    if "nobody" not in message and "arrivals, and" not in message:
        assert "of the assembly" in str(raised.value)


@triton.jit
def send_kernel(data, flag, WAITS: tl.constexpr):
    """Rank 0 fills shared memory, copies it to rank 1, and signals."""
    if dl.rank() == 0:
        tl.inline_asm_elementwise(
            """{ .shared .align 128 .b8 buffer[512]; .reg .u32 %s, %t; .reg .pred %first; mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
            mov.u32 %s, buffer; mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s], %t; fence.proxy.async.shared::cta; bar.sync 0;
            @%first cp.async.bulk.global.shared::cta.bulk_group [$1], [buffer], 512; @%first cp.async.bulk.commit_group; """
            + ("@%first cp.async.bulk.wait_group 0; " if WAITS else "@%first cp.async.bulk.wait_group.read 0; ")
            + "@%first red.release.sys.global.add.u32 [$2], 1; mov.u32 $0, 0; }",
            "=r,l,l", [dl.symm_at(data, 1), dl.symm_at(flag, 1)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        dl.wait(flag, 1, "sys", "acquire", waitValue=1)
        elements = tl.arange(0, 128)
        tl.store(data + 128 + elements, tl.load(data + elements))


def send(waits):
    data, flag = triton_dist.symm_zeros((256,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    send_kernel[(1,)](data, flag, waits)
    return data[128:].tolist()


def test_a_copy_out_of_shared_memory_is_there_when_it_was_waited_for():
    for seed in range(6):
        assert triton_dist.simulate(send, 2, args=(True,), seed=seed, check="race")[1] == list(range(128))


def test_a_copy_that_was_not_waited_for_may_come_late():
    found = [triton_dist.simulate(send, 2, args=(False,), seed=seed)[1] for seed in range(12)]
    assert [0] * 128 in found


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.init.b64 [%d], 1;", "mbarrier.try_wait.b64 %p, [%d], 0;", "cp.async.ca.shared.global [%w], [%d], 16;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile [%w], [%d], [%w];", "mbarrier.pending_count.b64 %w, %d;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%w], [%w], 16, [%w];",
    ],
)  # fmt: skip
def test_what_is_outside(text):
    with pytest.raises(UnsupportedInstructionError, match=r"docs/inline_ptx\.md"):
        translate(f"{{ .reg .b64 %d; .reg .b32 %w; .reg .pred %p; {text} }}", "=r")


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.arrive.shared::cta.b64 [%w];", "mbarrier.arrive.shared::cta.b64 %w, [%w];", "mbarrier.init.shared::cta.b64 [%w];",
        "cp.async.bulk.wait_group %w;", "setmaxnreg.inc.sync.aligned.u32 41;", "setmaxnreg.dec.sync.aligned.u32 %w;",
        "createpolicy.fractional.L2::evict_last.b64;", "mbarrier.test_wait.shared::cta.b64 %p, [%w];",
    ],
)  # fmt: skip
def test_what_no_assembler_takes(text):
    with pytest.raises(InlineAssemblyError):
        translate(f"{{ .reg .b64 %d; .reg .b32 %w; .reg .pred %p; {text} }}", "=r")
