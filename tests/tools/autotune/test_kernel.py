"""Stock ``triton.autotune`` over kernels that communicate, and over those that do not."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

import triton_dist
import triton_dist.language as dl
from triton_dist.errors import AutotuneError, AutotuneMismatchError, AutotuneWarning, InvalidArgumentError
from triton_dist.language.extra import libshmem_device
from triton_dist.tools.autotune import kernel as module
from triton_dist.tools.autotune.communication import communicates

CONFIGS = [triton.Config({"CHUNK": 16}), triton.Config({"CHUNK": 128}, num_warps=8), triton.Config({"CHUNK": 32})]


def rotation(x, inbox, arrived, out, count, CHUNK: tl.constexpr):
    """One program: sends by chunks, each with a signal that is added, then receives."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
        dl.notify(arrived, peer, signal=1, sig_op="add", comm_scope="intra_node")
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=tl.cdiv(count, CHUNK))
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset, mask=offset < count), mask=offset < count)


def run_rotation(kernel, counts=(200, 300)):
    """The rotation of arrays of some lengths, checked; what was chosen for each."""
    rank, size, chosen = triton_dist.rank(), triton_dist.world_size(), []
    for count in counts:
        x = torch.arange(count, dtype=torch.float32) + 1000 * rank
        inbox, arrived = triton_dist.symm_zeros((count,)), triton_dist.symm_zeros((1,), torch.int32)
        out = torch.zeros(count)
        kernel[(1,)](x, inbox, arrived, out, count)
        triton_dist.synchronize()
        assert torch.equal(out, torch.arange(count) + 1000.0 * ((rank - 1) % size))
        assert arrived.item() == triton.cdiv(count, kernel.best_config.kwargs["CHUNK"])
        chosen.append(str(kernel.best_config))
    return chosen


def tuned(decorators=(triton_dist.jit,), configs=CONFIGS, key=("count",), **options):
    kernel = rotation
    for decorator in decorators:
        kernel = decorator(kernel)
    return triton.autotune(configs, list(key), **options)(kernel)


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_choice_and_a_right_result(world_size, seed):
    kernel = tuned()
    assert isinstance(kernel, Autotuner)
    chosen = triton_dist.simulate(run_rotation, world_size, args=(kernel,), seed=seed, check="race")
    assert all(each == chosen[0] for each in chosen)
    assert kernel.report.world_size == world_size and len(kernel.report.rows) == 3 and not kernel.report.failed
    assert len(kernel.configs_timings) == 3 and kernel.bench_time > 0


def test_under_heuristics_and_by_any_decorator():
    heuristics = triton.heuristics({"CHUNK": lambda arguments: arguments["CHUNK"]})
    for kernel in (tuned((triton_dist.jit, heuristics)), triton_dist.tuned_together(tuned((triton.jit,)))):
        assert len({str(each) for each in triton_dist.simulate(run_rotation, 2, args=(kernel,))}) == 1
        assert kernel.report is not None


def test_a_config_that_fails_on_one_rank_is_out():
    """The other rank launches it, and waits in vain."""

    def fails_on_rank_1(arguments):
        if triton_dist.rank() == 1:
            raise RuntimeError("not here")

    kernel = tuned(configs=[triton.Config({"CHUNK": 16}, pre_hook=fails_on_rank_1), *CONFIGS[1:]])
    triton_dist.simulate(run_rotation, 2, args=(kernel, (100,)))
    (failed,) = kernel.report.failed
    assert failed.label.startswith("CHUNK: 16") and failed.reason == "rank 1: RuntimeError: not here"


@triton_dist.jit
def waiting_kernel(words, WANTED: tl.constexpr):
    dl.notify(words, (dl.rank() + 1) % dl.num_ranks(), signal=1, sig_op="set", comm_scope="intra_node")
    dl.wait(words, 1, "sys", "acquire", waitValue=WANTED)


def test_only_one_left_and_none_left():
    def body(kernel):
        kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32))
        return kernel.best_config.kwargs["WANTED"]

    wanted = [triton.Config({"WANTED": number}) for number in (5, 1, 7)]
    with pytest.warns(AutotuneWarning, match="2 of 3 configs failed, so WANTED: 1, .* is used without a choice"):
        assert triton_dist.simulate(body, 2, args=(triton.autotune(wanted, [])(waiting_kernel),)) == [1, 1]
    with pytest.raises(AutotuneError, match=r"(?s)waiting_kernel: none of the 2 configs.*WANTED: 5.*DeadlockError.*WANTED: 7"):
        triton_dist.simulate(body, 2, args=(triton.autotune(wanted[::2], [])(waiting_kernel),))


def test_reset_to_zero_and_restore_value():
    """Triton's own options count as ever, and symmetric memory is put back beside them."""

    @triton_dist.jit
    def adding_kernel(total, kept, words, CHUNK: tl.constexpr):
        tl.store(total, tl.load(total) + 1)
        tl.store(kept, tl.load(kept) + 1)
        dl.notify(words, dl.rank(), signal=1, sig_op="add", comm_scope="intra_node")

    kernel = triton.autotune(CONFIGS, [], reset_to_zero=["total"], restore_value=["kept"])(adding_kernel)

    def body():
        total, kept = torch.full((1,), 9, dtype=torch.int32), torch.full((1,), 9, dtype=torch.int32)
        words = triton_dist.symm_full((1,), 3, torch.int32)
        kernel[(1,)](total, kept, words)
        triton_dist.synchronize()
        return total.item(), kept.item(), words.item()

    assert triton_dist.simulate(body, 2) == [(1, 10, 4)] * 2


def test_hooks_of_the_user():
    calls = []
    kernel = tuned(
        pre_hook=lambda arguments, reset_only=False: calls.append(("pre", reset_only)),
        post_hook=lambda arguments, exception: calls.append(("post", exception)),
    )
    triton_dist.simulate(run_rotation, 1, args=(kernel, (100,)))
    assert calls == [("pre", False), ("post", None)] * 6 + [("pre", True)]


def test_the_same_key_on_all_ranks():
    kernel = tuned()

    def body():
        count = 100 + triton_dist.rank()
        kernel[(1,)](
            torch.zeros(count), triton_dist.symm_zeros((128,)), triton_dist.symm_zeros((1,), torch.int32), torch.zeros(count), count
        )

    with pytest.raises(AutotuneMismatchError, match=r"rank 1 tunes rotation for \(101,.*but rank 0 tunes rotation for \(100,"):
        triton_dist.simulate(body, 2)


def test_a_kernel_that_one_rank_launches_alone():
    """It does not communicate, so it is Triton's own business."""

    @triton.autotune(CONFIGS, [])
    @triton_dist.jit
    def local_kernel(out, CHUNK: tl.constexpr):
        tl.store(out + tl.arange(0, CHUNK), 1.0)

    def body():
        out = torch.zeros(128)
        if triton_dist.rank() == 1:
            local_kernel[(1,)](out)
        return out.sum().item() > 0

    assert triton_dist.simulate(body, 2) == [False, True]
    alone = triton_dist.tuned_together(tuned(), together=False)
    with pytest.raises(triton_dist.errors.DeadlockError):
        triton_dist.simulate(lambda: run_rotation(alone) if triton_dist.rank() else None, 2)


def test_results_on_disk(folder):
    for cached in (False, True):
        kernel = tuned(cache_results=True)
        triton_dist.simulate(run_rotation, 2, args=(kernel, (100,)))
        assert kernel.report.cached == cached
    assert len(list(folder.rglob("*.json"))) == 1


def test_work_that_waits_for_the_kernel_itself():
    """A consumer that was launched before on another stream keeps the device from being idle."""
    kernel = tuned()

    def body():
        arrived = triton_dist.symm_zeros((1,), torch.int32)
        with triton_dist.Stream():
            waiting_kernel[(1,)](triton_dist.symm_zeros((1,), torch.int32), 9)
        kernel[(1,)](torch.zeros(100), triton_dist.symm_zeros((100,)), arrived, torch.zeros(100), 100)

    with pytest.raises(AutotuneError, match=r"(?s)what was queued before does not come to an end.*Tune the whole operator"):
        triton_dist.simulate(body, 2)


@triton_dist.jit
def helper(words):
    dl.notify(words, 0, signal=1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def calls_helper_kernel(words):
    helper(words)


@triton_dist.jit
def shmem_kernel(words):
    libshmem_device.putmem_block(words, words, 4, 0)


@triton.jit
def plain_kernel(words):
    dl.wait_eq(words, 1)


@triton_dist.jit
def quiet_kernel(words):
    tl.store(words + dl.rank() + dl.tid(0), 1)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(calls_helper_kernel, True), (shmem_kernel, True), (plain_kernel, True), (quiet_kernel, False), (waiting_kernel, True)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_which_kernels_communicate(kernel, expected):
    assert communicates(kernel) is expected


def test_bad_arguments():
    for bad in (3, rotation, triton_dist.jit(rotation)):
        with pytest.raises(InvalidArgumentError, match="stands over triton.autotune"):
            triton_dist.tuned_together(bad)
    for options in ({"together": 3}, {"cache": True}, {"runs": 0}, {"timeout": "long"}):
        with pytest.raises(InvalidArgumentError):
            triton_dist.tuned_together(**options)

    class OwnTuner(Autotuner):
        """Somebody else's."""

    own = OwnTuner(triton_dist.jit(rotation), list("x"), CONFIGS, [], None, None)
    assert type(own) is OwnTuner
    with pytest.raises(InvalidArgumentError, match="OwnTuner is an autotuner of its own kind"):
        triton_dist.tuned_together(own)
    kernel = tuned()
    with pytest.raises(InvalidArgumentError, match="CHUNK is given, and is in the configs"):
        triton_dist.simulate(lambda: kernel[(1,)](torch.zeros(4), None, None, None, 4, CHUNK=4), 1)


def test_a_plain_kernel_keeps_triton_s_tuner():
    assert type(tuned((triton.jit,))) is Autotuner
    assert type(tuned()) is module.TogetherAutotuner
