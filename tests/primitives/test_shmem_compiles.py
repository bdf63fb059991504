"""What the SHMEM functions become on GPUs: instructions, their order, widths; and the errors that wrong arguments are."""

from __future__ import annotations

import re

import pytest
import triton
import triton.language as tl
from compile_targets import AMD, NVIDIA, source_of, target_of

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.cuda import language_extra as cuda_extra
from triton_dist.language.extra.cuda import libnvshmem_device
from triton_dist.language.extra.hip import language_extra as hip_extra
from triton_dist.language.extra.hip import librocshmem_device
from triton_dist.language.extra.language_extra import __syncthreads, tid

TYPES = {"dest": "*fp32", "source": "*fp32", "words": "*i64", "out": "*i32", "n": "i32", "pe": "i32"}

DOCUMENTED = """
my_pe n_pes team_my_pe team_n_pes remote_ptr remote_mc_ptr barrier_all barrier_all_block barrier_all_warp barrier sync_all quiet fence
getmem_nbi_block getmem_block getmem_nbi_warp getmem_warp getmem_nbi getmem putmem_block putmem_nbi_block putmem_warp putmem_nbi_warp putmem
putmem_nbi putmem_signal_nbi_block putmem_signal_block signal_op signal_wait_until broadcastmem_block fcollectmem_block
"""
ALSO_USED = """
int_p barrier_block barrier_warp sync_all_block sync_all_warp team_sync_block team_sync_warp team_translate_pe putmem_signal_nbi_warp
putmem_signal_nbi putmem_signal_warp putmem_signal broadcast broadcast_warp broadcast_block fcollect fcollect_warp fcollect_block
putmem_rma putmem_rma_block putmem_rma_warp putmem_rma_nbi putmem_rma_nbi_block putmem_rma_nbi_warp putmem_signal_rma putmem_signal_rma_nbi
putmem_signal_rma_block putmem_signal_rma_nbi_block putmem_signal_rma_warp putmem_signal_rma_nbi_warp quiet_pe uint64_wait_until_equals
ulong_put_signal barrier_all_wave barrier_all_wg getmem_wave getmem_wg getmem_nbi_wave getmem_nbi_wg putmem_wave putmem_wg putmem_nbi_wave
putmem_nbi_wg putmem_signal_wave putmem_signal_wg putmem_signal_nbi_wave putmem_signal_nbi_wg set_rocshmem_ctx
"""


def test_the_documented_names_are_there():
    for name in (DOCUMENTED + ALSO_USED).split():
        assert callable(getattr(shmem, name)) and name in shmem.__all__
    assert all(hasattr(shmem, name) for name in shmem.__all__)


def test_the_other_paths_give_the_same_objects():
    for name in shmem.__all__:
        assert getattr(libnvshmem_device, name) is getattr(librocshmem_device, name) is getattr(shmem, name)
    assert cuda_extra.tid is hip_extra.tid is tid
    assert getattr(cuda_extra, "__syncthreads") is __syncthreads
    with pytest.raises(AttributeError):
        _ = libnvshmem_device.no_such_name


def test_constants_are_constexpr_with_the_library_s_values():
    values = {"CMP_EQ": 0, "CMP_NE": 1, "CMP_GT": 2, "CMP_LE": 3, "CMP_LT": 4, "CMP_GE": 5, "SIGNAL_SET": 9, "SIGNAL_ADD": 10}
    for name, value in values.items():
        for library in ("NVSHMEM", "ROCSHMEM"):
            constant = getattr(shmem, f"{library}_{name}")
            assert isinstance(constant, tl.constexpr) and constant.value == value
    teams = (shmem.NVSHMEM_TEAM_WORLD, shmem.NVSHMEM_TEAM_SHARED, shmem.NVSHMEMX_TEAM_NODE, shmem.NVSHMEM_TEAM_INVALID)
    assert [team.value for team in teams] == [0, 1, 2, -1]


# ---------------------------------------------------------------------- every function on every GPU


@triton.jit
def copies_kernel(dest, source, words, out, n, pe):
    shmem.putmem_block(dest, source, n, pe)
    shmem.getmem_nbi_block(dest, source, n, pe)
    shmem.putmem_signal_block(dest, source, n, words, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    shmem.putmem_warp(dest, source, n, pe)
    shmem.getmem_warp(dest, source, n, pe)
    shmem.putmem_signal_nbi_warp(dest, source, n, words, n, shmem.NVSHMEM_SIGNAL_ADD, pe)
    if tid(0) < n:
        shmem.putmem_nbi(dest + tid(0), source, 4, tid(0), qp_id=0)
        shmem.getmem(dest + tid(0), source, 4, tid(0))
        shmem.putmem_signal(dest, source, 4, words, 1, shmem.ROCSHMEM_SIGNAL_ADD, pe)


@triton.jit
def words_kernel(dest, source, words, out, n, pe):
    shmem.set_rocshmem_ctx(words)
    if tid(0) == 0:
        shmem.float_p(dest, 1, pe)
        shmem.int_p(out, shmem.float_g(source, pe).to(tl.int32), pe)
        shmem.signal_op(words, n, shmem.NVSHMEM_SIGNAL_ADD, pe)
        shmem.signal_wait_until(words, shmem.NVSHMEM_CMP_NE, n)
        shmem.uint64_wait_until_equals(words, 3)
        shmem.ulong_put_signal(dest, source, n, words, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    shmem.quiet()
    shmem.fence()
    tl.store(out, shmem.team_my_pe(n) + shmem.team_n_pes(0) + shmem.team_translate_pe(0, n, 2) + shmem.my_pe() * shmem.n_pes())
    tl.store(shmem.remote_ptr(dest, pe), 1.0)
    tl.store(out + 1, (shmem.remote_mc_ptr(0, source).to(tl.int64) == 0).to(tl.int32))


@triton.jit
def meetings_kernel(dest, source, words, out, n, pe):
    shmem.barrier_all_block()
    shmem.sync_all_block()
    shmem.team_sync_block(n)
    if tid(0) // 32 == 0:
        shmem.barrier_warp(n)
        shmem.broadcastmem_warp(n, dest, source, 4, 0)
    if tid(0) == 0:
        shmem.barrier_all()
        shmem.fcollect(n, dest, source, 4)
    shmem.broadcast_block(n, dest, source, n, 1)
    shmem.fcollectmem_block(0, dest, source, n)


KERNELS = [copies_kernel, words_kernel, meetings_kernel]


@pytest.mark.parametrize("target", [*NVIDIA, AMD])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_function_compiles_on_every_target(compiled, target, kernel):
    texts = compiled(kernel, target, TYPES)
    assert texts["hsaco" if target == AMD else "cubin"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_function_is_traced_for_the_simulator(simulated, kernel):
    text = simulated(kernel, TYPES)
    assert "td." in text and "inline_asm" not in text


# ---------------------------------------------------------------------- instructions and their order


@triton.jit
def put_kernel(dest, source, n, pe, LEVEL: tl.constexpr):
    if LEVEL == "block":
        shmem.putmem_block(dest, source, n, pe)
    elif LEVEL == "warp":
        shmem.putmem_warp(dest, source, n, pe)
    else:
        shmem.putmem(dest, source, n, pe)


def instructions(texts) -> list[str]:
    """Instructions in their order, without labels, declarations, comments and what only computes."""
    kept = r"^\s*(@%p\d+ )?(ld|st|atom|bar|fence|membar|activemask|cp)\."
    return [line.strip() for line in texts["ptx"].splitlines() if re.match(kept, line)]


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("level", ["thread", "warp", "block"])
def test_copies_move_128_bits_at_once_four_times_a_round(compiled, arch, level):
    done = instructions(compiled(put_kernel, arch, {**TYPES}, {"LEVEL": level}))
    copied = [text for text in done if re.match(r"(ld|st)\.global\.(v4\.)?b(8|16|32|64) ", text) and "%v" in text]
    wide = ["ld.global.v4.b32"] * 4 + ["st.global.v4.b32"] * 4
    kinds = [text.split()[0] for text in copied]
    assert any(kinds[start : start + 8] == wide for start in range(len(kinds)))
    assert {"ld.global.b8", "ld.global.b16", "ld.global.b32", "ld.global.b64"} <= {text.split()[0] for text in done}
    assert any("bar.sync" in text for text in done) == (level == "block")
    assert any("bar.warp.sync" in text for text in done) == (level == "warp")
    if level == "warp":
        lines = compiled(put_kernel, arch, {**TYPES}, {"LEVEL": level})["ptx"].splitlines()
        synced = next(number for number, line in enumerate(lines) if "bar.warp.sync" in line)
        asked = next(number for number, line in enumerate(lines) if "activemask" in line)
        between = [line for line in lines[synced:asked] if re.match(r"\s*(\$L__BB|@|bra)", line)]
        assert synced < asked and not between, "the warp is together where it counts its threads"


@triton.jit
def signal_kernel(dest, source, words, n, pe, LEVEL: tl.constexpr, OPERATION: tl.constexpr):
    if LEVEL == "block":
        shmem.putmem_signal_nbi_block(dest, source, n, words, 1, OPERATION, pe)
    elif LEVEL == "warp":
        shmem.putmem_signal_nbi_warp(dest, source, n, words, 1, OPERATION, pe)
    else:
        shmem.putmem_signal_nbi(dest, source, n, words, 1, OPERATION, pe)


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("level, sync", [("thread", None), ("warp", "bar.warp.sync"), ("block", "bar.sync")])
@pytest.mark.parametrize("operation, release", [(9, "st.release.sys.global.b64"), (10, "atom.release.sys.global.add.u64")])
def test_the_signal_is_released_behind_all_threads_stores(compiled, arch, level, sync, operation, release):
    done = instructions(compiled(signal_kernel, arch, TYPES, {"LEVEL": level, "OPERATION": operation}))
    (place,) = [number for number, text in enumerate(done) if release in text]
    stores = [number for number, text in enumerate(done) if text.startswith("st.global")]
    assert max(stores) < place
    if sync is not None:
        assert any(sync in text for text in done[max(stores) + 1 : place])
        assert any(sync in text for text in done[: min(stores)]), "what other threads stored into the source comes before the copy"
    if arch >= 90:
        assert any("cp.async.bulk.wait_group" in text for text in done[: min(stores)]), "TMA stores into the source, too"


@triton.jit
def order_kernel(out, QUIET: tl.constexpr):
    tl.store(out, 1)
    if QUIET:
        shmem.quiet()
    else:
        shmem.fence()
    tl.store(out + 1, 2)


@pytest.mark.parametrize("arch", NVIDIA)
@pytest.mark.parametrize("quiet, fence", [(True, "fence.sc.sys"), (False, "fence.acq_rel.sys")])
def test_quiet_and_fence(compiled, arch, quiet, fence):
    text = compiled(order_kernel, arch, TYPES, {"QUIET": quiet})["ptx"]
    place = text.index(fence)
    assert text.index("st.global.b32") < place < text.rindex("st.global.b32")
    assert ("cp.async.bulk.wait_group 0;" in text[:place]) == (arch >= 90)


@triton.jit
def barrier_kernel(out):
    tl.store(out, 1)
    shmem.barrier_all_block()
    tl.store(out + 1, tl.load(out + 2))


@pytest.mark.parametrize("arch", NVIDIA)
def test_a_barrier_releases_before_it_acquires(compiled, arch):
    done = instructions(compiled(barrier_kernel, arch, TYPES))

    def first(part: str, start: int = 0) -> int:
        return next(number for number in range(start, len(done)) if part in done[number])

    entered = first("bar.sync")
    released = first("st.release.sys", entered)
    acquired = first("ld.acquire.sys", released)
    left = first("bar.sync", acquired)
    counted = first("st.relaxed.gpu", left)
    assert first("st.global.b32") < entered < released < acquired < left < counted
    assert any("ld.relaxed.gpu" in text for text in done[entered:released]), "the epoch comes from device memory"


@triton.jit
def remote_tile_kernel(dest, source, pe):
    place = tl.arange(0, 1024)
    tl.store(dest + place, tl.load(shmem.remote_ptr(source, pe) + place))


def test_a_remote_pointer_keeps_its_alignment(compiled):
    assert "ld.global.v4.b32" in compiled(remote_tile_kernel, 90, TYPES, None, ("dest", "source"))["ptx"]


# ---------------------------------------------------------------------- wrong arguments


@triton.jit
def wrong_kernel(dest, source, words, out, n, pe, CASE: tl.constexpr):
    if CASE == "dest":
        shmem.putmem_block(n, source, 4, pe)
    elif CASE == "tile":
        shmem.putmem_block(dest + tl.arange(0, 16), source, 4, pe)
    elif CASE == "bytes":
        shmem.putmem_block(dest, source, 2.5, pe)
    elif CASE == "negative":
        shmem.getmem(dest, source, -1, pe)
    elif CASE == "pe":
        shmem.getmem_warp(dest, source, 4, dest)
    elif CASE == "sig_addr":
        shmem.putmem_signal_block(dest, source, 4, dest, 1, shmem.NVSHMEM_SIGNAL_SET, pe)
    elif CASE == "signal":
        shmem.putmem_signal_block(dest, source, 4, out, 1 << 40, shmem.NVSHMEM_SIGNAL_SET, pe)
    elif CASE == "sig_op":
        shmem.putmem_signal_block(dest, source, 4, words, 1, 0, pe)
    elif CASE == "runtime sig_op":
        shmem.signal_op(words, 1, n, pe)
    elif CASE == "cmp_":
        shmem.signal_wait_until(words, 6, 1)
    elif CASE == "value":
        shmem.p(out, 1.5, pe)
    elif CASE == "team":
        shmem.barrier_block(2.0)
    elif CASE == "pointers":
        shmem.fcollect_block(0, n, source, 4)


WRONG = {
    "dest": r"putmem_block: argument 'dest' is a value of type int32; allowed: a scalar pointer",
    "tile": r"putmem_block: argument 'dest' is a value of type .*; allowed: a scalar pointer",
    "bytes": r"putmem_block: argument 'bytes' is 2.5 \(float\); allowed: a number of bytes",
    "negative": r"getmem: argument 'bytes' is -1 \(int\); allowed: .*, 0 or more",
    "pe": r"getmem_warp: argument 'pe' is a value of type pointer<fp32>; allowed: an integer",
    "sig_addr": r"putmem_signal_block: argument 'sig_addr' is .*pointer<fp32>; allowed: a scalar pointer to int32, uint32, int64, uint64",
    "signal": r"putmem_signal_block: argument 'signal' is 1099511627776 \(int\); allowed: an integer that fits the word, int32",
    "sig_op": r"putmem_signal_block: argument 'sig_op' is 0 \(int\); allowed: NVSHMEM_SIGNAL_SET \(9\) or NVSHMEM_SIGNAL_ADD \(10\)",
    "runtime sig_op": r"signal_op: argument 'sig_op' is a value of type int32; allowed: .*known when the kernel is compiled",
    "cmp_": r"signal_wait_until: argument 'cmp_' is 6 \(int\); allowed: one of NVSHMEM_CMP_EQ",
    "value": r"p: argument 'value' is 1.5 \(float\); allowed: an integer, since the pointer points to int32",
    "team": r"barrier_block: argument 'team' is 2.0 \(float\); allowed: an integer",
    "pointers": r"fcollect_block: argument 'dest' is a value of type int32; allowed: a scalar pointer to elements of whole bytes",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named_when_the_kernel_compiles(case):
    source = source_of(wrong_kernel, TYPES, {"CASE": case})
    with pytest.raises(triton.CompilationError) as caught:
        triton.compile(source, target=target_of(90))
    error: BaseException | None = caught.value
    found = []
    while error is not None:
        if isinstance(error, PrimitiveArgumentError):
            found.append(str(error))
        error = error.__cause__
    assert any(re.search(WRONG[case], text) for text in found), found


def test_other_amd_gpus_are_refused_by_name():
    with pytest.raises(triton.CompilationError) as caught:
        triton.compile(source_of(put_kernel, TYPES, {"LEVEL": "block"}), target=target_of("gfx90a"))
    error: BaseException | None = caught.value
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    assert any("a copy of libshmem_device is not implemented for gfx90a; implemented for: gfx942, gfx950" in text for text in texts)
