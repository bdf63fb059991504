"""Every form of load, store and atomic: the programs that ``tests.gpu.ptx_program`` runs on a GPU, beside numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from tests.gpu.programs import run, simulated
from tests.gpu.ptx_memory_cases import load_programs, pack_programs, store_programs, thread_programs, update_programs
from triton_dist.errors import DataRaceError, DeadlockError, MisalignedAccessError, OutOfBoundsError, SimulationError, UseAfterFreeError
from triton_dist.language.extra.language_extra import st, tid


def results(program):
    with simulated():
        return run(program, "cpu")


def test_loads():
    for program in load_programs():
        (out,), source = results(program).values(), program.inputs["source"]
        if program.name.endswith(("8", "16")):
            kind = program.name.rpartition(".")[2]
            dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
            octets = source.view(np.uint8)
            source = np.array([octets[4 * i + 2 : 4 * i + 2 + dtype.itemsize].view(dtype)[0] for i in range(out.size)]).astype(np.int32)
        np.testing.assert_array_equal(out, source, err_msg=program.name)


def test_stores():
    for program in store_programs():
        (out,), source = results(program).values(), program.inputs["source"]
        if program.name.endswith(("8", "16")):
            size = int(program.name.rpartition(".")[2][1:]) // 8
            packed = source.view(f"i{size}")[:: 4 // size]
            np.testing.assert_array_equal(out.view(f"i{size}")[: packed.size], packed, err_msg=program.name)
        else:
            np.testing.assert_array_equal(out, source, err_msg=program.name)


def _updated(name, kind, before, values):
    unsigned = before.view(f"u{before.dtype.itemsize}"), values.view(f"u{before.dtype.itemsize}")
    typed = {"u": unsigned, "s": (before, values), "b": (before, values)}.get(kind[0])
    if kind.endswith("x2"):
        typed = tuple(one.view(np.float16 if kind[0] == "f" else ml_dtypes.bfloat16) for one in (before, values))
    elif kind[0] == "f":
        typed = tuple(one.view(f"f{before.dtype.itemsize}") for one in (before, values))
    a, b = typed
    result = {
        "add": lambda: a + b, "min": lambda: np.minimum(a, b), "max": lambda: np.maximum(a, b), "and": lambda: a & b, "or": lambda: a | b,
        "xor": lambda: a ^ b, "exch": lambda: b, "inc": lambda: np.where(a >= b, 0, a + 1).astype(a.dtype),
        "dec": lambda: np.where((a == 0) | (a > b), b, a - 1).astype(a.dtype),
        "cas": lambda: np.where(a == b, np.arange(a.size), a).astype(a.dtype),
    }[name]()  # fmt: skip
    return np.ascontiguousarray(result).view(before.dtype)


def test_updates():
    for program in update_programs():
        *_, name, kind = program.name.split(".")
        found, before = results(program), program.outputs["words"]
        np.testing.assert_array_equal(found["words"], _updated(name, kind, before, program.inputs["values"]), err_msg=program.name)
        if ".red." not in program.name:
            np.testing.assert_array_equal(found["out"], before, err_msg=program.name)


def test_threads():
    threads = np.arange(128)
    expected = {
        "every_thread": [128], "first_thread": [1], "one_of_a_warp": [4 * 128], "each_its_own": [0, *threads],
        "behind_a_barrier": threads ^ 64, "behind_a_barrier_of_a_warp": threads ^ 1,
        "lane_masks": [-1] * 128,
    }  # fmt: skip
    for program in thread_programs():
        words = results(program)["words"]
        name = program.name.partition(".")[2]
        if name in expected:
            assert words[: len(expected[name])].tolist() == list(expected[name]), name
        else:
            assert (words == max(128 // words.size, 1)).all(), name


def test_packed_elements():
    for program in pack_programs():
        (out,) = results(program).values()
        a, b = program.inputs["a"], program.inputs["b"]
        kind = program.name.split(".")[1]
        with np.errstate(all="ignore"):
            if kind == "int8" and program.name.endswith("2"):
                want = ~(a ^ b)
            elif kind == "bfloat16":
                want = np.fmax(a, b)
            elif kind == "float16" and program.name.endswith("2"):
                want = (a.astype(np.float64) * b + a).astype(np.float16)
            elif kind in ("float16", "float32") and not program.name.endswith("4"):
                want = a * b
            else:
                want = a + b
        numbers = [one.astype(np.float64) if out.dtype.kind != "i" else one for one in (out, want)]
        np.testing.assert_array_equal(*numbers, err_msg=program.name)


@triton.jit
def wide_kernel(source, target, TEXT: tl.constexpr):
    tl.inline_asm_elementwise(TEXT, "=r,l,l", [source, target], dtype=tl.int32, is_pure=False, pack=1)


WIDE = {
    "one of 128 bits": "{ .reg .b128 %q; ld.relaxed.sys.global.b128 %q, [$1]; st.release.sys.global.b128 [$2], %q; mov.u32 $0, 0; }",
    "halves": "{ .reg .b128 %q; .reg .b64 %l, %h; ld.global.b128 %q, [$1]; mov.b128 {%l, %h}, %q; st.global.v2.b64 [$2], {%l, %h};"
    " mov.u32 $0, 0; }",
    "offsets": "{ .reg .b64 %l, %h; ld.global.b64 %l, [$1+0]; ld.global.b64 %h, [$1+8]; add.u64 %l, %l, 0; st.global.b64 [$2 + 8], %h;"
    " st.global.b64 [$2+0], %l; mov.u32 $0, 0; }",
}


@pytest.mark.parametrize("name", WIDE)
def test_sixteen_bytes(name):
    source, target = torch.arange(2, dtype=torch.int64) + 5, torch.zeros(2, dtype=torch.int64)
    wide_kernel[(1,)](source, target, WIDE[name])
    assert target.tolist() == [5, 6]


@pytest.mark.parametrize(
    "text, error, message",
    [
        ("ld.global.u32 $0, [$1+16];", OutOfBoundsError, r"ld of .*line 1 of the assembly, 'ld.global.u32 \$0"),
        ("st.global.v4.b32 [$2+8], {1, 2, 3, 4};", MisalignedAccessError, "multiple of 16"),
        ("ld.global.u32 $0, [$1+2];", MisalignedAccessError, "multiple of 4"),
        ("{ .reg .b64 %zero; mov.b64 %zero, 0; ld.global.u32 $0, [%zero]; }", OutOfBoundsError, "NULL"),
        ("atom.global.add.u32 $0, [$2+-4], 1;", OutOfBoundsError, "before the start"),
        ("bar.sync 0, 256; mov.u32 $0, 0;", SimulationError, "reached by 128 of 256 threads"),
        ("{ .reg .pred %p; .reg .u32 %t; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 9; @%p bar.sync 0; mov.u32 $0, 0; }",
         SimulationError, "reached by 9 of 128 threads"),
        ("again: ld.relaxed.gpu.global.u32 $0, [$1]; bra again;", DeadlockError, "spins in a loop that sees no change"),
        ("again: mov.u32 $0, 1; bra again;", SimulationError, "loops for ever"),
    ],
)  # fmt: skip
def test_what_goes_wrong_names_its_line(text, error, message):
    source, target = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(error, match=message) as raised:
        wide_kernel[(1,)](source, target, text)
    assert "test_memory.py" in str(raised.value)


@triton.jit
def clock_kernel(out):
    first, second = tl.inline_asm_elementwise(
        "{ .reg .u64 %d, %t; .reg .pred %p; mov.u64 $0, %globaltimer; add.u64 %d, $0, 2000; wait: mov.u64 %t, %globaltimer;"
        " setp.lt.u64 %p, %t, %d; @%p bra wait; mov.u64 $1, %clock64; }",
        "=l,=l",
        [],
        dtype=(tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )
    tl.store(out, second - first)


def test_a_loop_that_waits_for_a_time():
    out = torch.zeros(1, dtype=torch.int64)
    clock_kernel[(1,)](out)
    assert 2000 <= out.item() < 4000


@triton.jit
def exchange_kernel(data, out, MEET: tl.constexpr):
    """Each thread stores a word and reads its neighbour's."""
    got = tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 %t, %o;
            .reg .u64 %a;
            mov.u32 %t, %tid.x;
            mad.wide.u32 %a, %t, 4, $1;
            st.global.u32 [%a], %t;
            {MEET}
            xor.b32 %o, %t, 1;
            mad.wide.u32 %a, %o, 4, $1;
            ld.global.u32 $0, [%a];
        }}
        """,
        "=r,l",
        [data],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    st(out + tid(0), got, "gpu", "relaxed")


@pytest.mark.parametrize("meet", ["bar.sync 0;", "bar.warp.sync 0xffffffff;", "barrier.sync.aligned 1, 128;", "barrier.cta.sync 3;"])
def test_threads_that_meet_do_not_race(meet):
    def exchange():
        out = torch.zeros(128, dtype=torch.int32)
        exchange_kernel[(1,)](torch.zeros(128, dtype=torch.int32), out, meet)
        return out.tolist()

    assert triton_dist.simulate(exchange, 1, check="race") == [[lane ^ 1 for lane in range(128)]]


def test_threads_that_do_not_meet_race():
    def exchange():
        exchange_kernel[(1,)](torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32), "")

    with pytest.raises(DataRaceError, match="exchange_kernel"):
        triton_dist.simulate(exchange, 1, check="race")


@pytest.mark.parametrize("place, error", [(-4, "before the start"), (16, "past the end"), (-20, "freed before"), (32, "freed before")])
def test_beside_a_tensor_where_another_one_was(place, error):
    """An allocator puts tensors where others have been: who is a few bytes off is out of bounds, whatever was there."""
    memory = np.zeros(16, np.int64)
    gone = torch.from_numpy(memory)
    wide_kernel[(1,)](gone, gone, "mov.u32 $0, 0;")
    address = gone.data_ptr() + 64
    gone = None
    target = torch.from_numpy(memory[8:10])
    assert target.data_ptr() == address
    wide_kernel[(1,)](target, target, "mov.u32 $0, 0;")
    with pytest.raises(UseAfterFreeError if error == "freed before" else OutOfBoundsError, match=error):
        wide_kernel[(1,)](target, target, f"atom.global.add.u32 $0, [$2+{place}], 1;")
