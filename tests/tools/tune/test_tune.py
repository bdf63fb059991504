"""``triton-dist tune``: what it tries, what it makes of the times, what it says where it can't measure; all of it on simulated ranks."""

from __future__ import annotations

import json

import pytest
import torch

import triton_dist
from triton_dist.ops.collectives.plans import Plan, Row, table_of_json
from triton_dist.ops.team import find_team
from triton_dist.tools.tune import candidates, command, measure, sweep
from triton_dist.tools.tune.candidates import TUNABLE, Tunable, all_reduce_plans
from triton_dist.tools.tune.measure import Timed


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_plans_are_different_and_bounded(ranks):
    for nbytes in sweep.SIZES:
        plans = all_reduce_plans(nbytes, ranks)
        assert len(set(plans)) == len(plans) < 60
        methods = {plan.method for plan in plans}
        assert {"two_shot", "library"} <= methods and ("ll" in methods) == (ranks > 1 and nbytes <= 4 << 20)
        assert ("one_shot" in methods) == (nbytes <= 16 << 20)
        assert all(plan.method == "library" or 1 <= plan.programs <= 128 for plan in plans)


@pytest.mark.parametrize("nbytes", [1 << 10, 9_000])
def test_every_plan_gives_the_right_sum(nbytes):
    def body() -> list[str]:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")
        team = find_team(None, "test")
        return [timed.why for timed in measure.measure(TUNABLE["all_reduce"], all_reduce_plans(nbytes, 3), nbytes, team)]

    for found in triton_dist.simulate(body, 3):
        assert set(found) == {""}


@pytest.mark.parametrize("name", [name for name in TUNABLE if name != "all_reduce"])
def test_every_plan_of_the_others_is_right(name):
    def body() -> list[str]:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")
        plans, team = TUNABLE[name].candidates(1001, 3), find_team(None, "test")
        assert {plan.method for plan in plans} == {"ll", "one_shot", "library"} and len(set(plans)) == len(plans)
        return [timed.why for timed in measure.measure(TUNABLE[name], plans, 1001, team)]

    for found in triton_dist.simulate(body, 3):
        assert set(found) == {""}


def test_plans_that_fail_or_are_wrong_are_out():
    def run(plan, x, out, team) -> None:
        if plan.method == "fails" and team.index == 0:
            raise ValueError("no such thing\nmore")
        if plan.method == "right":
            candidates._run_all_reduce(Plan("one_shot"), x, out, team)

    def body() -> list[Timed]:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo")
        plans = [Plan("wrong"), Plan("right"), Plan("fails")]
        return measure.measure(Tunable(lambda nbytes, ranks: plans, run), plans, 64, find_team(None, "test"))

    for wrong, right, fails in triton_dist.simulate(body, 2):
        assert wrong.why == "its sum is wrong" and wrong.us is None
        assert fails.us is None and fails.why == "ValueError: no such thing"
        assert right.why == "" and right.us > 0


def test_the_fastest_plan_and_a_steady_one():
    times = [Timed(Plan("ll"), 5.0), Timed(Plan("one_shot"), 5.05), Timed(Plan("two_shot"), None, "out")]
    assert sweep.best_of(times, None) == Plan("ll") == sweep.best_of(times, Plan("two_shot"))
    assert sweep.best_of(times, Plan("one_shot")) == Plan("one_shot")
    assert sweep.best_of([Timed(Plan("ll"), 5.0), Timed(Plan("one_shot"), 5.2)], Plan("one_shot")) == Plan("ll")
    assert sweep.best_of([Timed(Plan("ll"), None)], None) is None


def test_rows_of_sizes():
    def timed(**times):
        return [Timed(Plan(method), us) for method, us in times.items()]

    results = {1024: timed(ll=3, library=9), 2048: timed(ll=4, library=9), 4096: timed(ll=None), 8192: timed(ll=12, library=9)}
    assert sweep.rows_of(results, True) == [Row(2048, Plan("ll")), Row(None, Plan("library"))]
    assert sweep.rows_of(results, False) == [Row(2048, Plan("ll")), Row(8192, Plan("library"))]
    assert sweep.rows_of({}, True) == []


def test_a_dry_run_runs_everything(capsys):
    assert command.tune(operators=["all_reduce"], max_bytes=2048, budget=None, dry_run=True, ranks=2) == 0
    text = capsys.readouterr().out
    table = table_of_json(text[: text.rindex("}") + 1], "the output")
    assert table.ranks == 2 and table.gpu == "simulated" and "nothing was written" in text
    assert table.find("all_reduce", 2048, False) is not None and table.find("all_reduce", 2049, False) is None
    assert table.find("all_reduce", 2048, True).method != "library" and table.find("all_reduce", 1 << 40, True) is None
    assert set(json.loads(text[: text.rindex("}") + 1])["environment"]) == {"torch", "triton", "cuda"}


def test_a_spent_budget_ends_the_sweep():
    def body():
        return sweep.sweep("simulated", {}, ["all_reduce"], [1024], lambda *size: None, lambda: True)

    assert triton_dist.simulate(body, 2)[0].rows == {"all_reduce": {"any": [], "exact": []}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operators": ["all_sum"]}, "nothing to do for all_sum"),
        ({"max_bytes": 5}, "nothing to do for --max-bytes 5"),
        ({}, "finds no GPU here"),
    ],
)
def test_where_it_can_not_measure_it_says_what_to_do(options, message, capsys):
    if torch.cuda.is_available() and not options:
        pytest.skip("for machines without a GPU")
    settings = {"operators": ["all_reduce"], "max_bytes": 1 << 20, "budget": None, "dry_run": False, "ranks": 2}
    assert command.tune(**{**settings, **options}) == 2
    assert message in capsys.readouterr().err


def test_without_a_launcher_it_says_how_to_start(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("RANK", raising=False)
    assert command.tune(operators=["all_reduce"], max_bytes=1 << 20, budget=None, dry_run=False, ranks=2) == 2
    assert "torchrun --nproc-per-node" in capsys.readouterr().err


def test_a_size_in_one_line():
    results = [
        Timed(Plan("ll", 8, 4), 5.25),
        Timed(Plan("ll", 4, 4), 6.0),
        Timed(Plan("library"), 12.0),
        Timed(Plan("two_shot"), None, "bad"),
    ]
    line = command.line_of("all_reduce", 8192, results)
    assert line == "all_reduce 8192 bytes: ll 5.2 us (8 programs, 4 warps); library 12.0 us; out: two_shot: bad"
    assert "nothing was measured" in command.line_of("all_reduce", 8192, [])


def test_progress_goes_to_the_terminal(capsys):
    pytest.importorskip("rich")
    with command._Progress(1) as progress:
        progress.done("all_reduce", 1024, [Timed(Plan("ll", 1, 4), 4.0)])
    assert "all_reduce 1024 bytes: ll 4.0 us" in capsys.readouterr().out
