"""Shared memory of blocks: what threads pass to each other, and what is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from tests.gpu.programs import run, simulated
from tests.gpu.ptx_warp_cases import SHARED, THREADS, program
from triton_dist.errors import InlineAssemblyError, MisalignedAccessError, OutOfBoundsError, SimulationError, UnsupportedInstructionError
from triton_dist.sim.ptx.block import translate


def results(text, seed=3):
    one = program("test", text, seed)
    with simulated():
        out = run(one, "cpu")["out"]
    source = one.inputs["source"].view(np.uint32)
    return source[:THREADS], source[THREADS:], out[:THREADS].view(np.uint32), out[THREADS:] != 0


def test_what_the_programs_for_a_gpu_leave():
    threads = np.arange(THREADS, dtype=np.uint32)
    expected = [
        lambda x, y: np.roll(x, -1),
        lambda x, y: np.full(THREADS, 2),
        lambda x, y: y,
        lambda x, y: y ^ threads,
        lambda x, y: np.repeat((x & 255).astype(np.uint8).view(np.uint32), 4),
        lambda x, y: np.full(THREADS, x.sum(dtype=np.uint32)),
        lambda x, y: np.repeat(x.reshape(4, 32).max(axis=1), 32),
        lambda x, y: np.full(THREADS, 5),
        lambda x, y: np.full(THREADS, 3),
    ]
    for text, want in zip(SHARED, expected, strict=True):
        x, y, found, _ = results(text)
        np.testing.assert_array_equal(found, want(x, y), err_msg=text)


@triton.jit
def two_blocks_kernel(out, BARRIER: tl.constexpr):
    """One block declares the memory and fills it; another one, told the address, reads."""
    address = tl.inline_asm_elementwise(
        """{ .shared .align 16 .b8 buffer[512]; .reg .u32 %s; mov.u32 %s, %tid.x; mov.u32 $0, buffer; mad.lo.u32 %s, %s, 4, $0;
        st.shared.u32 [%s], %s; }""",
        "=&r", [], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    if BARRIER:
        tl.debug_barrier()
    tl.inline_asm_elementwise(
        """{ .reg .u32 %s, %t, %x; .reg .u64 %a; mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, $1; xor.b32 %s, %t, 32;
        mad.lo.u32 %s, %s, 4, $2; ld.shared.u32 %x, [%s]; sub.u32 %x, %x, $2; st.global.u32 [%a], %x; mov.u32 $0, 0; }""",
        "=r,l,r", [out, address], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


def two_blocks(barrier):
    out = torch.zeros(128, dtype=torch.int32)
    two_blocks_kernel[(1,)](out, barrier)
    return out.numpy()


def test_a_block_gives_its_memory_to_another():
    (found,) = triton_dist.simulate(two_blocks, 1, args=(True,), check="all")
    assert found.tolist() == [4 * (thread ^ 32) for thread in range(128)]


def test_a_missing_barrier_between_two_blocks():
    with pytest.raises(SimulationError, match="reads a byte of shared memory that thread 32 stored since the last block barrier"):
        triton_dist.simulate(two_blocks, 1, args=(False,))


def test_each_program_has_its_own():
    @triton.jit
    def kernel(out):
        found = tl.inline_asm_elementwise(
            """{ .shared .u32 word; .reg .u32 %i; .reg .pred %first; mov.u32 %i, %tid.x; setp.eq.u32 %first, %i, 0; mov.u32 %i, %ctaid.x;
            @%first st.shared.u32 [word], %i; bar.sync 0; ld.shared.u32 $0, [word]; }""",
            "=r", [], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        tl.store(out + tl.program_id(0), found)

    def run_it():
        out = torch.zeros(7, dtype=torch.int32)
        kernel[(7,)](out)
        return out.tolist()

    assert triton_dist.simulate(run_it, 2, seed=3) == [list(range(7))] * 2


DECLARED = ".shared .align 16 .b8 buffer[64]; "


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("ld.shared.u32 %o, [buffer+64];", OutOfBoundsError, r"outside of all variables.*buffer \(64 bytes at"),
        ("ld.shared.v4.u32 {%o, %x, %y, %o}, [buffer+60];", OutOfBoundsError, "ld of 16 bytes"),
        ("st.shared.u32 [buffer+2], 1;", MisalignedAccessError, r"buffer \+ 2 in shared memory: the address is not a multiple of 4"),
        ("mov.u32 %s, buffer; sub.u32 %s, %s, 4; st.shared.u32 [%s], 1;", OutOfBoundsError, "st of 4 bytes"),
        ("st.shared.u32 [buffer], %x; ld.shared.u32 %o, [buffer+4];", SimulationError, None),
        ("setp.eq.u32 %q, %t, 9; @%q st.shared.u32 [buffer], 1; ld.shared.u32 %o, [buffer];", SimulationError, "that thread 9 stored"),
        ("atom.shared.add.u64 %w, [buffer+4], 1;", MisalignedAccessError, "atomic of 8 bytes"),
    ],
)
def test_mistakes(text, error, message):
    text = "{ .reg .u32 %s; .reg .u64 %w; " + DECLARED + text + " }"
    if message is None:
        results(text)
        return
    with pytest.raises(error, match=message) as raised:
        results(text)
    assert "of the assembly" in str(raised.value)


def test_what_nobody_wrote_has_all_bits_set():
    assert set(results(DECLARED + "ld.shared.u32 %o, [buffer+12];")[2]) == {0xFFFFFFFF}


@pytest.mark.parametrize(
    "text",
    [
        ".shared .b8 a[0];", ".shared .align 3 .b8 a[4];", ".shared .b8 a[99999999];", ".shared .b8 a[4], a[4];", ".shared .b8 a[x];",
        ".shared .pred a;", ".shared .b8 a[4]", ".shared .b8 a[4]; ld.global.u32 $0, [a];",
        ".shared .b8 a[4]; add.u32 $0, a, 1;", ".shared .b8 a[4]; st.shared.global.u32 [a], 1;",
    ],
)  # fmt: skip
def test_what_no_assembler_takes(text):
    with pytest.raises(InlineAssemblyError):
        translate(f"{{ {text} }}", "=r")


@pytest.mark.parametrize("text", ["ld.local.u32 $0, [%d];", "ld.param.u32 $0, [%d];", "red.async.shared::cluster.add.u32 [%d], 1;"])
def test_other_memories(text):
    with pytest.raises(UnsupportedInstructionError, match=r"docs/inline_ptx\.md"):
        translate(f"{{ .reg .b64 %d; {text} }}", "=r")
