"""``contextual_autotune``: kernels that are tuned by running the whole function around them."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist.autotuner import ContextualAutoTuner, contextual_autotune
from triton_dist.errors import AutotuneMismatchError, InvalidArgumentError

COUNT = 256


@triton_dist.jit
def offer_kernel(x, inbox, arrived, count, CHUNK: tl.constexpr):
    """To the next rank, in one program, which says so once."""
    peer = (dl.rank() + 1) % dl.num_ranks()
    for first in range(0, count, CHUNK):
        offset = first + tl.arange(0, CHUNK)
        tl.store(dl.symm_at(inbox, peer) + offset, tl.load(x + offset, mask=offset < count), mask=offset < count)
    dl.notify(arrived, peer, signal=1, sig_op="set", comm_scope="intra_node")


def take(inbox, arrived, out, count, CHUNK: tl.constexpr, ROUNDS: tl.constexpr, WANTED: tl.constexpr):
    """Waits for what ``offer_kernel`` has sent, and takes the signal back: run again by itself, it waits in vain."""
    token = dl.wait(arrived, 1, "sys", "acquire", waitValue=WANTED)
    for _ in range(ROUNDS):
        for first in range(0, count, CHUNK):
            offset = first + tl.arange(0, CHUNK)
            tl.store(out + offset, tl.load(dl.consume_token(inbox, token) + offset, mask=offset < count), mask=offset < count)
    tl.store(arrived, 0)


def configs(*values: tuple[int, int, int]) -> list[triton.Config]:
    return [triton.Config({"CHUNK": chunk, "ROUNDS": rounds, "WANTED": wanted}) for chunk, rounds, wanted in values]


def rotation(sending: list[int], taking: list[triton.Config], **options):
    """(a function under contextual_autotune that rotates x by one rank, and its two kernels)."""
    send = triton.autotune([triton.Config({"CHUNK": chunk}) for chunk in sending], ["count"])(offer_kernel)
    receive = triton.autotune(taking, ["count"])(triton_dist.jit(take))

    @contextual_autotune(is_dist=True, n_repeat=2, n_warmup=1, **options)
    def rotate(x, inbox, arrived):
        out = torch.full_like(x, -1)
        send[(1,)](x, inbox, arrived, x.numel())
        receive[(1,)](inbox, arrived, out, x.numel())
        triton_dist.ops.barrier()
        return out

    return rotate, send, receive


def rotated(rotate, calls: int = 2) -> None:
    rank, size = triton_dist.rank(), triton_dist.world_size()
    inbox, arrived = triton_dist.symm_zeros((COUNT,)), triton_dist.symm_zeros((1,), torch.int32)
    for call in range(calls):
        base = torch.arange(float(COUNT), device=triton_dist.device()) + call
        out = rotate(base + 1000 * rank, inbox, arrived)
        triton_dist.synchronize()
        assert torch.equal(out, base + 1000 * ((rank - 1) % size))
    triton_dist.ops.barrier()
    assert arrived.item() == 0


def both_kernels() -> list[dict]:
    rotate, send, receive = rotation([16, 128, 64], configs((32, 9, 1), (32, 1, 1), (64, 3, 1)))
    assert isinstance(rotate, ContextualAutoTuner) and rotate.__name__ == "rotate"
    rotated(rotate)
    assert set(rotate.reports) == {"offer_kernel", "take"} and rotate.reports["take"].what.startswith("take in ")
    for report in rotate.reports.values():
        times = {row.label: row.milliseconds for row in report.rows}
        assert len(times) == 3 and times[report.chosen] == min(times.values())
    assert str(send.best_config) == rotate.reports["offer_kernel"].chosen
    return [send.best_config.kwargs, receive.best_config.kwargs]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_kernel_gets_the_config_with_which_the_function_is_fastest(world_size):
    found = triton_dist.simulate(both_kernels, world_size)
    assert all(each == found[0] for each in found) and found[0][1]["ROUNDS"] == 1


def a_config_hangs() -> str:
    rotate, _, receive = rotation([16, 128], configs((32, 2, 1), (32, 1, 5), (48, 1, 1), (64, 1, 1)))
    rotated(rotate)
    report = rotate.reports["take"]
    reasons = {row.label: row.reason for row in report.failed}
    assert len(reasons) == 2 and report.chosen not in reasons and any("DeadlockError" in reason for reason in reasons.values())
    assert any("CompilationError" in reason for reason in reasons.values())
    return str(receive.best_config.kwargs["WANTED"])


def test_configs_that_hang_or_fail_are_out():
    assert triton_dist.simulate(a_config_hangs, 2) == ["1", "1"]


def the_first_config_can_not_be_launched() -> int:
    rotate, send, _ = rotation([48, 16, 64], configs((32, 1, 1), (64, 1, 1)))
    rotated(rotate)
    (failed,) = rotate.reports["offer_kernel"].failed
    assert failed.label.startswith("CHUNK: 48")
    return int(send.best_config.kwargs["CHUNK"] != 48)


def test_a_first_config_that_can_not_be_launched():
    assert triton_dist.simulate(the_first_config_can_not_be_launched, 2) == [1, 1]


def known_already() -> int:
    rotate, _, _ = rotation([16, 128], configs((32, 1, 1), (64, 1, 1)))
    runs = []
    function = rotate.fn
    rotate.fn = lambda *args: (runs.append(1), function(*args))[1]
    rotated(rotate, calls=1)
    first = len(runs)
    rotated(rotate, calls=3)
    return len(runs) - first


def test_what_is_chosen_is_not_tried_again():
    """The other calls get symmetric memory of another place, and are settled all the same."""
    assert triton_dist.simulate(known_already, 2) == [3, 3]


@triton.autotune([triton.Config({"BLOCK": block}) for block in (16, 64)], [])
@triton_dist.jit
def double_kernel(x, out, count, BLOCK: tl.constexpr):
    for first in range(0, count, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        tl.store(out + offset, 2 * tl.load(x + offset, mask=offset < count), mask=offset < count)


def each_for_itself() -> int:
    """Only the second rank calls."""

    @contextual_autotune()
    def double(x):
        out = torch.empty_like(x)
        double_kernel[(1,)](x, out, x.numel())
        return out

    if triton_dist.rank() == 1:
        x = torch.arange(100.0)
        assert torch.equal(double(x), 2 * x) and len(double.reports["double_kernel"].rows) == 2
        return sum(row.milliseconds > 0 for row in double.reports["double_kernel"].rows)
    return 0


def test_a_rank_for_itself():
    assert triton_dist.simulate(each_for_itself, 2) == [0, 2]


def communicates_alone() -> None:
    rotate, _, _ = rotation([16, 64], configs((32, 1, 1), (64, 1, 1)))
    rotate.is_dist = False
    rotated(rotate)


def test_kernels_that_communicate_are_a_matter_of_all_ranks():
    with pytest.raises(InvalidArgumentError, match=r"contextual_autotune\(is_dist=True\)"):
        triton_dist.simulate(communicates_alone, 2)


def different_configs() -> None:
    rotate, _, _ = rotation([16, 64 << triton_dist.rank()], configs((32, 1, 1), (64, 1, 1)))
    rotated(rotate)


def test_ranks_that_try_different_configs():
    with pytest.raises(AutotuneMismatchError):
        triton_dist.simulate(different_configs, 2)


def test_outside_of_a_world():
    assert contextual_autotune()(lambda x: x + 1)(2) == 3


@pytest.mark.parametrize("options", [{"n_repeat": 0}, {"n_warmup": -1}, {"is_dist": 3}, {"n_repeat": "5"}])
def test_wrong_options(options):
    with pytest.raises(InvalidArgumentError, match="contextual_autotune"):
        contextual_autotune(**options)


def test_no_function():
    with pytest.raises(InvalidArgumentError, match="decorates a host function"):
        contextual_autotune()(3)
