"""perf_func and group_profile on simulated ranks."""

import gzip
import json

import pytest
import torch

from triton_dist import utils
from triton_dist.errors import InvalidArgumentError
from triton_dist.profiler_utils import PERF_ITERS, get_torch_prof_ctx, group_profile, perf_func, perf_func_with_l2_reset
from triton_dist.sim.simulate import simulate


@pytest.mark.parametrize("perf", [perf_func, perf_func_with_l2_reset])
def test_milliseconds_of_one_call(perf):
    def fn():
        calls = []
        last, milliseconds = perf(lambda: (utils.sleep_async(2), calls.append(0), len(calls))[2], iters=5, warmup_iters=3)
        return last, len(calls), milliseconds

    for last, calls, milliseconds in simulate(fn, 2):
        assert (last, calls) == (8, 8) and 2 <= milliseconds < 2.1


def test_a_variable_bounds_the_rounds(monkeypatch):
    monkeypatch.setenv(PERF_ITERS, "2")
    calls = []
    simulate(lambda: perf_func(lambda: calls.append(0), iters=500, warmup_iters=30), 1)
    assert len(calls) == 4
    for wrong in ("none", "0", "-1"):
        monkeypatch.setenv(PERF_ITERS, wrong)
        with pytest.raises(InvalidArgumentError, match=PERF_ITERS):
            simulate(lambda: perf_func(lambda: None, iters=1, warmup_iters=0), 1)


@pytest.mark.parametrize("iters, warmup", [(0, 1), (1, -1)])
def test_numbers_of_rounds_that_make_no_sense(iters, warmup):
    with pytest.raises(InvalidArgumentError, match="at least"):
        simulate(lambda: perf_func(lambda: None, iters=iters, warmup_iters=warmup), 1)


def test_one_profile_of_all_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fn():
        group = utils.initialize_distributed()
        with group_profile("first", group=group):
            torch.ones(10).sum().item()
        with group_profile("second", compress=False, keep_merged_only=False):
            torch.ones(10).sum().item()
        with group_profile("never", do_prof=False), get_torch_prof_ctx(False):
            pass

    simulate(fn, 2)
    with gzip.open("prof/first_merged.json.gz", "rt") as file:
        assert any("sum" in event.get("name", "") for event in json.load(file)["traceEvents"])
    assert json.loads((tmp_path / "prof/second_merged.json").read_text())["traceEvents"]
    assert sorted(path.name for path in (tmp_path / "prof").iterdir()) == ["first_merged.json.gz", "second", "second_merged.json"]


def test_a_body_that_raises_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fn():
        with group_profile("broken"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(fn, 2)
    assert not (tmp_path / "prof").exists()


def test_torchs_profile():
    with get_torch_prof_ctx(True) as profile:
        torch.ones(10).sum()
    assert any("sum" in event.key for event in profile.key_averages())
