"""The benchmark of the collectives, dry: all of its code but CUDA's events and graphs, on the simulator."""

import collectives
import pytest
import torch
from collective_table import COLLECTIVES, our_methods, our_operator
from harness.results import load

import triton_dist.ops

THERE = [name for name in COLLECTIVES if our_operator(name) is not None]


def dry(tmp_path, *words):
    path = tmp_path / "out.json"
    collectives.main(["--dry-run", "--rounds", "6", "--json", str(path), *words])
    return load(path)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_collective_is_run_and_checked(ranks, tmp_path, capsys):
    report = dry(tmp_path, "--dry-ranks", str(ranks), "--bytes", "1000", "--mode", "graph")
    assert report.complete and report.dry_run and [case.shape for case in report.cases] == THERE
    for case in report.cases:
        states = {method.name: method.status for method in case.methods}
        ways = {f"ours:{name}" for name in our_methods(case.shape)}
        assert set(states) == {"ours", *COLLECTIVES[case.shape].peers, *ways} and set(states.values()) == {"measured"}, case
        assert (case.ours.error == 0) == (not COLLECTIVES[case.shape].reduces) or ranks == 1
        assert case.comparison.best_peer in COLLECTIVES[case.shape].peers and case.comparison.ratio_high > 0
    assert "is skipped" not in capsys.readouterr().out


def test_calls_in_place_are_counted(tmp_path):
    # Some hundred calls in place between two checks: the sums stay finite, and the check knows how often it was added up.
    report = dry(
        tmp_path, "--dry-ranks", "2", "--bytes", "64", "--mode", "eager", "graph", "--collectives", "all_reduce", "--methods", "nccl"
    )
    assert [case.methods[0].status for case in report.cases] == ["measured"] * 2


@pytest.mark.parametrize("name", THERE)
def test_a_wrong_operator_is_marked_wrong(name, tmp_path, monkeypatch):
    monkeypatch.setitem(vars(triton_dist.ops), COLLECTIVES[name].operator or name, lambda x, *, out: out.zero_())
    report = dry(tmp_path, "--mode", "eager", "--bytes", "96", "--dry-ranks", "2", "--collectives", name)
    assert report.cases[0].ours.status == "wrong" and report.cases[0].comparison.ratio is None


def test_one_wrong_share_is_found(tmp_path, monkeypatch):
    right = triton_dist.ops.all_gather

    def wrong(x, *, out):
        right(x, out=out)
        out[-1] += 2.0**-99
        return out

    monkeypatch.setitem(vars(triton_dist.ops), "all_gather", wrong)
    report = dry(tmp_path, "--mode", "eager", "--bytes", "4096", "--dry-ranks", "2", "--collectives", "all_gather")
    assert report.cases[0].ours.status == "wrong"


@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_table_says_what_a_collective_is(name):
    """``source`` against torch's own collectives, which the benchmark's peers are."""
    import torch.distributed as dist

    from triton_dist import simulate

    entry, ranks, share = COLLECTIVES[name], 3, 5

    def run():
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        rank = dist.get_rank()
        inputs = [torch.arange(share * (1 if entry.input_parts else ranks)).float() + 100 * source for source in range(ranks)]
        out = torch.zeros(share * (1 if entry.output_parts else ranks))
        x = out.copy_(inputs[rank]) if entry.in_place else inputs[rank]
        entry.peers["nccl"](x, out)()
        position = torch.arange(out.numel())
        expected = torch.zeros_like(out)
        for source, data in enumerate(inputs):
            taken = entry.source(position, source, rank, share)
            expected += torch.where(taken >= 0, data[taken.clamp_min(0)], 0)
        return out.tolist(), expected.tolist()

    for out, expected in simulate(run, ranks):
        assert out == expected


@pytest.mark.parametrize(
    "words, message",
    [
        (["--bytes", "0"], "no size of at least 1 is left"),
        (["--max-bytes", "512"], "no size of at least 1 is left"),
        (["--methods", "ours", "magic"], "--methods magic: not one of nccl ours"),
        (["--collectives", "all_sum"], "invalid choice"),
    ],
)
def test_bad_arguments(words, message, capsys):
    with pytest.raises(SystemExit):
        collectives.parse(words)
    assert message in capsys.readouterr().err


def test_sizes_and_heap():
    arguments = collectives.parse([])
    assert len(arguments.bytes) == 13 and min(arguments.bytes) == 1 << 10 and max(arguments.bytes) == 1 << 30
    assert {8 << 10, 128 << 10} < set(arguments.bytes)
    assert collectives.heap_size(arguments) > 4 * (1 << 30)
    small = collectives.parse(["--max-bytes", str(1 << 20)])
    assert max(small.bytes) == 1 << 20 and collectives.heap_size(small) < 2 << 30
    assert collectives.heap_size(collectives.parse(["--heap-gib", "3"])) == 3 << 30


def test_too_large_for_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 << 30, 80 << 30))
    with pytest.raises(SystemExit, match=r"GiB are free: pass --max-bytes 268435456"):
        collectives.fits(collectives.parse([]))


def test_large_messages_leave_out_what_moves_all_to_everyone():
    assert collectives.why_not("ours:one_shot", 1 << 30) == "not run above 64 MiB"
    assert collectives.why_not("ours:one_shot", 1 << 20) == "" == collectives.why_not("nccl", 1 << 30)
