"""``triton_dist.autotune`` over whole operators: one choice on all ranks, whatever happens on one of them."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass

import pytest
import torch
import triton

import triton_dist
from tests.tools.autotune.operators import buffers, is_right, rotate
from triton_dist.errors import AutotuneCacheWarning, AutotuneError, AutotuneMismatchError, AutotuneWarning, InvalidArgumentError
from triton_dist.ops import all_reduce
from triton_dist.sim.attempts import SimAttempts
from triton_dist.tools.autotune import TunedOperator

CHUNKS = [{"chunk": 16}, {"chunk": 256}, {"chunk": 64}]


def tuned(configs=CHUNKS, key=("x",), **options) -> TunedOperator:
    return triton_dist.autotune(configs, key, **options)(rotate)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_choice_and_a_right_result(world_size, seed):
    op = tuned()

    def body():
        x, inbox, arrived = buffers()
        for _ in range(2):
            arrived.zero_()
            all_reduce(arrived.new_zeros(1))  # nobody sends before all are ready
            assert is_right(op(x, inbox, arrived))
        return op.report

    reports = triton_dist.simulate(body, world_size, seed=seed, check="race")
    assert all(report == reports[0] for report in reports)
    report = reports[0]
    assert {row.label for row in report.rows} == {"chunk=16", "chunk=64", "chunk=256"} and not report.failed
    assert report.best_milliseconds == min(row.milliseconds for row in report.rows) > 0
    assert report.world_size == world_size and not report.cached
    assert "* " + report.chosen in report.table() and "1.00x" in report.table()


def test_signals_are_as_before_the_call():
    """The words are added to, and every run waits for a number: without a reset the second run would hang, or take the first one's."""
    op = tuned([{"chunk": 16}, {"chunk": 64}], warmup=3, runs=4)

    def body():
        x, inbox, arrived = buffers()
        inbox.fill_(5)
        assert is_right(op(x, inbox, arrived))
        assert arrived.tolist() == [x.numel() // int(op.report.chosen.removeprefix("chunk="))], "the call itself, and no trial"

    triton_dist.simulate(body, 2)


def test_a_divergent_time_still_gives_one_choice():
    """What is fast on rank 0 is slow on rank 1, and the other way round: the time is the slowest rank's."""

    @triton_dist.autotune([{"busy": 0}, {"busy": 1}, {"busy": 2}])
    def op(busy: int) -> int:
        rounds = {0: (1, 9), 1: (8, 2), 2: (5, 5)}[busy][triton_dist.rank()]
        for _ in range(rounds):
            torch.zeros(1000).add_(1)
        return busy

    def body():
        return op(), [row.milliseconds for row in op.report.rows]

    results = triton_dist.simulate(body, 2)
    assert [choice for choice, _ in results] == [2, 2] and results[0] == results[1]
    first, second, third = results[0][1]
    assert first > second > third


@pytest.mark.parametrize("failing_rank", [0, 1])
def test_what_fails_on_one_rank_is_out_on_all(failing_rank):
    @triton_dist.autotune([{"chunk": 256}, {"chunk": 16}, {"chunk": 32}])
    def op(x, inbox, arrived, chunk):
        if chunk == 256 and triton_dist.rank() == failing_rank:
            raise RuntimeError("out of something here")
        return rotate(x, inbox, arrived, chunk)

    def body():
        x, inbox, arrived = buffers()
        assert is_right(op(x, inbox, arrived))
        return op.report

    report = triton_dist.simulate(body, 3)[0]
    assert [(row.label, row.reason) for row in report.failed] == [
        ("chunk=256", f"rank {failing_rank}: RuntimeError: out of something here")
    ]
    assert "out of something here" in report.table()


@pytest.mark.parametrize("hanging", [0, 1, 2])
def test_what_hangs_is_out(hanging):
    """Wherever it stands among the configs, and though operators of the package run in it."""

    @triton_dist.autotune([{"number": number} for number in range(3)])
    def op(x, inbox, arrived, number):
        total = all_reduce(x, method="one_shot")
        out = rotate(x, inbox, arrived, (16, 32, 64)[number], extra=number == hanging and triton_dist.rank() == 1)
        return out, total

    def body():
        x, inbox, arrived = buffers()
        expected = all_reduce(x)
        out, total = op(x, inbox, arrived)
        assert is_right(out) and torch.equal(total, expected)
        assert torch.equal(all_reduce(x), expected), "the workspaces from before are as they were"
        return op.report

    (row,) = triton_dist.simulate(body, 2)[0].failed
    assert row.label == f"number={hanging}" and "DeadlockError" in row.reason and "arrived[0] of rank 1" in row.reason


def test_the_last_one_left_is_said():
    @triton_dist.autotune([{"number": 0}, {"number": 1}])
    def op(number):
        if number == 0:
            raise ValueError("never this one")
        return number

    with pytest.warns(AutotuneWarning, match=r"1 of 2 configs failed, so number=1 is used without a choice:\n.*never this one"):
        assert triton_dist.simulate(op, 2) == [1, 1]


def test_all_fail():
    @triton_dist.autotune([{"number": 0}, {"number": 1}])
    def op(number):
        raise ValueError(f"not {number} on rank {triton_dist.rank()}")

    with pytest.raises(
        AutotuneError, match=r"(?s)none of the 2 configs.*number=0: rank 0: ValueError: not 0.*number=1: rank 0: ValueError: not 1"
    ):
        triton_dist.simulate(op, 2)


def test_a_device_that_is_broken_ends_the_search(monkeypatch):
    """After an illegal access nothing runs on that GPU any more, so the next config would fail, too."""
    end = SimAttempts.end

    def broken(self):
        hang = end(self)
        if triton_dist.rank() == 1 and ran:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return hang

    monkeypatch.setattr(SimAttempts, "end", broken)
    ran = []
    op = triton_dist.autotune([{"number": 1}, {"number": 2}])(lambda number: ran.append(number))
    with pytest.raises(AutotuneError, match="the config number=1 has broken the device.*rank 1: RuntimeError: CUDA error: an illegal"):
        triton_dist.simulate(op, 2)
    assert 2 not in ran


def test_a_single_config_is_not_tried():
    ran = []

    @triton_dist.autotune([{"number": 3}])
    def op(number):
        ran.append(number)

    triton_dist.simulate(op, 2)
    assert ran == [3, 3]


# ---------------------------------------------------------------------- keys, configs, pruning


def test_keys():
    searched = []

    @triton_dist.autotune([{"chunk": 16}, {"chunk": 32}], key=["x", "flag"], reset=lambda arguments: searched.append(arguments["flag"]))
    def op(x, flag, chunk=0):
        return chunk

    def body():
        for count, flag, dtype in ((4, 1, torch.int32), (4, 1, torch.int32), (5, 1, torch.int32), (4, 2, torch.int32), (4, 2, torch.int64)):
            op(torch.zeros(count, dtype=dtype), flag)
        return list(op.reports)

    keys = triton_dist.simulate(body, 1)[0]
    assert keys == [
        "x=(4,) int32, flag=1, dtypes int32", "x=(5,) int32, flag=1, dtypes int32", "x=(4,) int32, flag=2, dtypes int32",
        "x=(4,) int64, flag=2, dtypes int64",
    ]  # fmt: skip


def test_a_key_function_and_configs_that_depend_on_arguments():
    @triton_dist.autotune(lambda x: [{"chunk": x.numel()}, {"chunk": 2}], key=lambda x: x.numel() // 10)
    def op(x, chunk=0):
        return chunk

    def body():
        assert op(torch.zeros(21)) in (2, 21)
        chosen = {row.label for row in op.report.rows}
        op(torch.zeros(22))
        return chosen, len(op.reports)

    assert triton_dist.simulate(body, 2) == [({"chunk=21", "chunk=2"}, 1)] * 2


def test_triton_configs():
    @triton_dist.autotune([triton.Config({"tile": 8}, num_warps=2), triton.Config({"tile": 8}, num_warps=8)])
    def op(tile, num_warps):
        return tile, num_warps

    assert triton_dist.simulate(op, 1)[0] in ((8, 2), (8, 8))
    assert {row.label for row in op.report.rows} == {"num_warps=2, tile=8", "num_warps=8, tile=8"}


def test_a_triton_config_as_a_value():
    configs = [triton.Config({"TILE": tile}, num_warps=warps) for tile in (8, 16) for warps in (2, 4)]
    op = triton_dist.autotune([{"config": config} for config in configs], key=lambda x: (x.shape, x.dtype))(lambda x, config=None: config)
    chosen = triton_dist.simulate(lambda: op(torch.zeros(2, 3)), 2)
    assert chosen[0] is chosen[1] and chosen[0] in configs
    assert (
        op.report.rows[0].label.startswith("config=(TILE: 8, num_warps: 2")
        and op.report.key == "key=((2, 3), torch.float32), dtypes float32"
    )


def test_prune():
    seen = []

    def prune(configs, arguments):
        seen.append(arguments["x"])
        return [config for config in configs if config["chunk"] > arguments["x"]]

    @triton_dist.autotune(CHUNKS, prune=prune)
    def op(x, chunk=0):
        return chunk

    assert set(triton_dist.simulate(lambda: op(20), 2)) <= {64, 256}
    assert seen == [20, 20] and len(op.report.rows) == 2


def test_prune_that_differs_among_ranks():
    op = triton_dist.autotune(CHUNKS, prune=lambda configs, arguments: configs[triton_dist.rank() :])(lambda chunk=0: chunk)
    with pytest.raises(AutotuneMismatchError, match="rank 1 would try 2 configs, rank 0 3; .*must not depend on the rank"):
        triton_dist.simulate(op, 2)


@pytest.mark.parametrize(
    "prune", [lambda configs, arguments: [], lambda configs, arguments: [{"chunk": 17}], lambda configs, arguments: 1 / 0]
)
def test_bad_prunes(prune):
    op = triton_dist.autotune(CHUNKS, prune=prune)(lambda chunk=0: chunk)
    with pytest.raises(AutotuneError, match="rank 0 can't say which configs to try: (Inv.*prune gave|ZeroDivisionError)"):
        triton_dist.simulate(op, 2)


def test_keys_that_differ_among_ranks():
    op = triton_dist.autotune(CHUNKS, key=["x"])(lambda x, chunk=0: chunk)
    with pytest.raises(AutotuneMismatchError, match=r"rank 1 tunes .* for x=1, but rank 0 tunes .* for x=0; all ranks have"):
        triton_dist.simulate(lambda: op(triton_dist.rank()), 2)


def test_a_call_that_gives_the_config_itself():
    @triton_dist.autotune([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    def op(a, b):
        return a, b

    assert op(a=7, b=8) == (7, 8), "no world is needed"
    with pytest.raises(InvalidArgumentError, match="a is given, but a, b are tuned together"):
        op(a=7)


def test_a_team():
    """Only the ranks of ``group`` call, and tune."""
    op = triton_dist.autotune([{"number": 1}, {"number": 2}])(_of_a_group)

    def body():
        if triton_dist.rank() == 1:
            return None
        team = triton_dist.make_team([2, 0])
        assert op(torch.ones(4), group=team).tolist() == [2.0] * 4
        return op.report.world_size

    assert triton_dist.simulate(body, 3) == [2, None, 2]


def _of_a_group(x, group=None, number=0):
    return all_reduce(x, group=group, method=("one_shot", "two_shot")[number - 1])


def test_two_operators_where_one_stands_in_the_other():
    inner = triton_dist.autotune([{"chunk": 16}, {"chunk": 64}])(rotate)

    @triton_dist.autotune([{"twice": False}, {"twice": True}])
    def outer(x, inbox, arrived, twice):
        if twice:
            torch.zeros(100_000).add_(1)
        return inner(x, inbox, arrived)

    def body():
        assert is_right(outer(*buffers()))
        return outer.report.chosen

    assert triton_dist.simulate(body, 2) == ["twice=False"] * 2


# ---------------------------------------------------------------------- what is reset


@dataclass
class Workspace:
    words: torch.Tensor
    other: int = 1


@pytest.mark.parametrize(("symmetric", "found"), [("restore", {3}), ("zero", {0}), ("keep", {3, 4, 5, 6})])
def test_symmetric_memory_in_arguments(symmetric, found):
    seen = []

    @triton_dist.autotune([{"number": 1}, {"number": 2}], symmetric=symmetric)
    def op(workspaces, number):
        triton_dist.synchronize()
        seen.append(workspaces["mine"].words.item())
        workspaces["mine"].words.add_(1)

    def body():
        words = triton_dist.symm_full((2,), 3, torch.int32)
        op({"mine": Workspace(words[:1])})
        return words[1].item()

    assert triton_dist.simulate(body, 1) == [3]
    assert set(seen) == (found if symmetric != "keep" else {3, 4, 5, 6, 7})


def test_restore_and_reset():
    resets = []

    @triton_dist.autotune([{"number": 1}, {"number": 2}], restore=["out"], reset=lambda arguments: resets.append(arguments["name"]))
    def op(out, name, number):
        out.add_(1)

    def body():
        out = torch.zeros(3)
        op(out, "a name")
        return out.tolist()

    assert triton_dist.simulate(body, 1) == [[1.0] * 3]
    assert resets == ["a name"] * 5, "two configs twice, and before the call itself"


# ---------------------------------------------------------------------- on disk


def count_runs(world_size=2, **options):
    runs = []

    @triton_dist.autotune([{"number": 1}, {"number": 2}], **options)
    def op(x=1, number=0):
        runs.append(number)
        return number

    return op, runs


def test_a_second_run_reads_the_choice(folder):
    op, runs = count_runs()
    first = triton_dist.simulate(op, 2)
    assert len(runs) == 2 * 5 and len(list(folder.rglob("*.json"))) == 1 and not list(folder.rglob("*.part"))
    runs.clear()
    assert triton_dist.simulate(op, 2) == first and runs == first
    assert op.report.cached and op.report.best_milliseconds is not None and "from the cache" in op.report.table()


def test_other_facts_are_other_files(folder):
    op, runs = count_runs()
    triton_dist.simulate(op, 2)
    for options in ({"world_size": 3}, {"world_size": 2, "gpu": "b200"}):
        runs.clear()
        triton_dist.simulate(op, **options)
        assert len(runs) > options["world_size"]
    assert len(list(folder.rglob("*.json"))) == 3
    assert {json.loads(path.read_text())["facts"]["machine"] for path in folder.rglob("*.json")} == {
        "simulated h100 with 132 SMs", "simulated b200 with 148 SMs"
    }  # fmt: skip


def test_no_cache(folder):
    op, runs = count_runs(cache=False)
    triton_dist.simulate(op, 2)
    triton_dist.simulate(op, 2)
    assert len(runs) == 20 and not folder.exists()


def test_tune_searches_again(folder):
    op, runs = count_runs()
    triton_dist.simulate(op, 1)
    runs.clear()
    report = triton_dist.simulate(op.tune, 1)[0]
    assert runs == [1, 1, 2, 2] and not report.cached and len(list(folder.rglob("*.json"))) == 1


DAMAGES = {
    "cut off": lambda text: text[:40],
    "no object": lambda text: "[]",
    "another format": lambda text: text.replace('"format": 1', '"format": 7'),
    "unknown choice": lambda text: text.replace('"chosen": "number=', '"chosen": "number=9'),
    "a word for a time": lambda text: text.replace('"milliseconds": ', '"milliseconds": "x", "y": '),
    "no rows": lambda text: json.dumps({**json.loads(text), "rows": []}),
    "not text": lambda text: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_said_and_made_anew(folder, damage):
    op, runs = count_runs()
    triton_dist.simulate(op, 2)
    (path,) = folder.rglob("*.json")
    good = path.read_text()
    damaged = damage(good)
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    runs.clear()
    with pytest.warns(AutotuneCacheWarning, match="is tuned again, since its result in .* can't be used: it") as caught:
        triton_dist.simulate(op, 2)
    assert len(runs) == 10 and len(caught) == 1, "one rank says it"
    assert json.loads(path.read_text())["chosen"] == json.loads(good)["chosen"]


def test_a_folder_that_can_t_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRITON_DIST_AUTOTUNE_DIR", str(tmp_path / "file"))
    op, _ = count_runs()
    with pytest.warns(AutotuneCacheWarning, match="can't be kept in"), pytest.warns(AutotuneCacheWarning, match="can't be read"):
        triton_dist.simulate(op, 2)


# ---------------------------------------------------------------------- progress, printing, misuse


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_only(monkeypatch):
    pytest.importorskip("rich")
    shown = {}
    for terminal in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", terminal)
        op, _ = count_runs(cache=False)
        triton_dist.simulate(op, 2)
        shown[terminal.isatty()] = terminal.getvalue()
    assert "2/2" in shown[True] and "number=2" in shown[True] and not shown[False]


def test_printing_as_triton_does(monkeypatch, capsys):
    monkeypatch.setattr(triton.knobs.autotuning, "print", True)
    op, _ = count_runs(cache=False)
    triton_dist.simulate(op, 2)
    assert capsys.readouterr().err.count("2 ranks") == 1


def test_outside_of_a_world():
    op, _ = count_runs()
    with pytest.raises(triton_dist.errors.NotInitializedError, match="op needs a world"):
        op()


BAD = {
    "no configs": lambda: tuned([]),
    "text": lambda: tuned("chunk"),
    "a number": lambda: tuned([3]),
    "unknown parameter": lambda: tuned([{"chonk": 3}]),
    "empty config": lambda: tuned([{}]),
    "twice": lambda: tuned([{"chunk": 3}, {"chunk": 3}]),
    "other names": lambda: tuned([{"chunk": 3}, {"extra": 3}]),
    "object": lambda: tuned([{"chunk": object()}]),
    "hook": lambda: tuned([triton.Config({"chunk": 3}, pre_hook=print)]),
    "key": lambda: tuned(key=["y"]),
    "key text": lambda: tuned(key="x"),
    "restore": lambda: tuned(restore=["y"]),
    "symmetric": lambda: tuned(symmetric="forget"),
    "prune": lambda: tuned(prune=3),
    "reset": lambda: tuned(reset="zero"),
    "warmup": lambda: tuned(warmup=0),
    "runs": lambda: tuned(runs=2.5),
    "timeout": lambda: tuned(timeout=0),
    "kernel": lambda: triton_dist.autotune(CHUNKS)(triton_dist.jit(rotate)),
    "missing argument": lambda: tuned()(1, 2, 3, 4, 5, 6, 7),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_bad_arguments(make):
    with pytest.raises(InvalidArgumentError):
        triton_dist.simulate(make, 1)


def test_a_key_that_is_an_object():
    op = triton_dist.autotune(CHUNKS, key=["x"])(lambda x, chunk=0: chunk)
    with pytest.raises(InvalidArgumentError, match="can't be part of a key"):
        triton_dist.simulate(lambda: op(object()), 1)


def test_it_looks_like_the_operator():
    op = tuned()
    assert op.__name__ == "rotate" and "previous rank" in op.__doc__ and op.fn is rotate
