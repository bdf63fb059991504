"""``triton-dist run``: scripts for CUDA on simulated ranks, each in a process that the command owns."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

SCRIPTS = Path(__file__).parent / "scripts"


def run(*arguments, **environment):
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "triton_dist.tools.cli", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200", **environment})


def check(done, code=0):
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.parametrize("ranks, seed", [(2, 0), (3, 1)])
def test_streams_copies_and_signals(ranks, seed):
    done = check(run("--ranks", ranks, "--seed", seed, SCRIPTS / "streams.py"))
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} is done" for rank in range(ranks)]


def test_graphs():
    done = check(run("--ranks", 2, SCRIPTS / "graphs.py"))
    assert sorted(done.stdout.splitlines()) == ["rank 0: three replays", "rank 1: three replays"]


def test_what_a_gpu_can_not_capture():
    done = check(run("--ranks", 2, SCRIPTS / "refused_captures.py"))
    assert sorted(done.stdout.splitlines()) == ["rank 0: 5 refused", "rank 1: 5 refused"]


@pytest.mark.parametrize("ranks, seed", [(2, 0), (4, 1)])
def test_graphs_that_torch_captures_where_it_likes(ranks, seed):
    done = check(run("--ranks", ranks, "--seed", seed, SCRIPTS / "captures_of_torch.py"))
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: four replays" for rank in range(ranks)]


def test_two_nodes():
    done = check(run("--ranks", 4, "--nodes", 2, SCRIPTS / "two_nodes.py"))
    assert "rank 0 heard from rank 2" in done.stdout and "rank 3 heard from rank 1" in done.stdout


def test_each_rank_is_a_process_of_its_own():
    done = check(run("--ranks", 2, "--prefix", SCRIPTS / "own_world.py", "--size", 3))
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] rank {rank} of 2rank {rank} leaves" for rank in range(2)]


@pytest.mark.parametrize("how, code, said", [("3", 3, ""), ("-1", 255, ""), ("text", 1, "no luck today"), ("0", 1, "DeadlockError")])
def test_exit_codes(how, code, said):
    """A rank that leaves with 0 lets the others go on; here they wait for it in a barrier."""
    done = check(run(SCRIPTS / "endings.py", how), code)
    assert said in done.stderr


def test_an_exception_is_shown_from_the_script_on():
    done = check(run(SCRIPTS / "endings.py", "raise"), 1)
    assert "ValueError: rank 1 has enough" in done.stderr and "raised by rank 1 of 2" in done.stderr
    assert "endings.py" in done.stderr and "runpy" not in done.stderr and "simulate.py" not in done.stderr


@pytest.mark.parametrize(
    "how, error, said",
    [
        ("deadlock", "DeadlockError", r"rank 0, program .* waits for signals\[0\] of rank 0 == 1; it is 0"),
        ("beyond", "OutOfBoundsError", r"signals\[1\]|signals"),
        ("device", "UnsupportedOperationError", "one GPU, cuda:1"),
    ],
)
def test_a_report_of_the_simulator(how, error, said):
    done = check(run(SCRIPTS / "endings.py", how), 1)
    assert error in done.stderr and re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("nowhere.py",), "there is no script 'nowhere.py'"),
        ((SCRIPTS,), "is a directory"),
        (("--ranks", 0, SCRIPTS / "helper.py"), "--ranks 0"),
        (("--ranks", 200, SCRIPTS / "helper.py"), "127"),
        (("--ranks", 3, "--nodes", 2, SCRIPTS / "helper.py"), "--nodes 2 does not divide --ranks 3"),
        (("--gpu", "abacus", SCRIPTS / "helper.py"), "abacus"),
        (("--schedule", "slow", SCRIPTS / "helper.py"), "slow"),
        (("--heap-size", 0, SCRIPTS / "helper.py"), "heap_size=0"),
        (("--report", "run.pdf", SCRIPTS / "helper.py"), "run.pdf"),
    ],
)
def test_wrong_usage_is_named(arguments, said):
    done = check(run(*arguments), 2)
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("how, code", [("deadlock", 1), ("0", 1), ("raise", 1)])
def test_a_report_is_written_and_named(tmp_path, how, code):
    done = check(run("--report", tmp_path / "run.html", SCRIPTS / "endings.py", how), code)
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "endings.py" in text and f"report: {tmp_path / 'run.html'}" in done.stderr


def test_a_script_that_is_no_python(tmp_path):
    (tmp_path / "notes.py").write_text("this is not\nPython at all\n")
    done = check(run(tmp_path / "notes.py"), 2)
    assert "notes.py is not a Python script" in done.stderr and "line 1" in done.stderr


def test_under_torchrun_without_a_gpu_it_says_so():
    done = check(run(SCRIPTS / "helper.py", TORCHELASTIC_RUN_ID="1", RANK="0", CUDA_VISIBLE_DEVICES=""), 2)
    assert "no GPU" in done.stderr and "triton-dist run --ranks" in done.stderr


def test_ranks_on_gpus_are_not_recorded():
    done = check(run("--report", "run.html", SCRIPTS / "helper.py", TORCHELASTIC_RUN_ID="1", RANK="0", CUDA_VISIBLE_DEVICES=""), 2)
    assert "--report" in done.stderr and "Traceback" not in done.stderr
