"""``triton-dist check``: what it finds, how it ends, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

SCRIPT = Path(__file__).parent / "scripts" / "ring.py"
EXAMPLES = Path(__file__).parents[3] / "examples"
QUICK = ("--seeds", "1", "--schedules", "random")


def run(*arguments, code=0):
    """The command in a process of its own; gives its result, and the object that ``--json`` printed."""
    command = [sys.executable, "-m", "triton_dist.tools.cli", "check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done, json.loads(done.stdout) if "--json" in arguments else None


def codes(report):
    return [finding["code"] for finding in report["findings"]]


def test_a_right_program():
    done, report = run("--json", "--ranks", "2,3", "--seeds", 2, SCRIPT)
    assert report["exit_code"] == 0 and report["findings"] == report["failures"] == []
    assert {(one["ranks"], one["seed"], one["schedule"]) for one in report["runs"]} == {
        (ranks, seed, schedule) for ranks in (2, 3) for seed in (0, 1) for schedule in ("random", "pct", "late", "straggler")
    }
    assert report["kernels"] == ["pass_on_kernel"] and set(report["versions"]) == {"triton_dist", "python", "triton", "torch"}
    assert "0 findings, 16 runs, 1 kernels compiled" in done.stderr and "hello" not in done.stdout + done.stderr


def test_a_race_is_a_finding_with_its_line_and_how_it_comes_again():
    done, report = run("--json", "--ranks", 2, "--seeds", 2, "--no-compile", SCRIPT, "racy", code=1)
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "tl.store(dl.symm_at(" in text)
    assert len(set(codes(report))) == 1 and report["kernels"] == []
    assert (str(SCRIPT), line) in {(one["file"], one["line"]) for one in report["findings"]}
    first = report["findings"][0]
    assert first["run"]["ranks"] == 2 and first["times"] >= 1 and "data race on inbox" in first["message"]
    again = (
        f"triton-dist check --ranks 2 --first-seed {first['run']['seed']} --seeds 1 --schedules {first['run']['schedule']} {SCRIPT} racy"
    )
    assert again in done.stderr
    _, report = run("--json", *again.split()[2:-2], "--no-compile", SCRIPT, "racy", code=1)
    assert first["message"] in [one["message"] for one in report["findings"]], "the same run again"


def test_a_finding_in_compiled_code_and_a_code_to_ignore():
    _, report = run("--json", *QUICK, "--arch", 90, SCRIPT, "narrow", code=1)
    assert [(one["code"], one["kernel"], one["warning"], one["run"]) for one in report["findings"]] == [
        ("TD206", "pass_on_kernel", True, None)
    ]
    assert "sm_90" in report["findings"][0]["message"]
    done, _ = run(*QUICK, "--ignore", "TD206", SCRIPT, "narrow")
    assert done.stdout == "", "without --json nothing is printed on stdout"


@pytest.mark.parametrize(
    ("how", "text", "said"),
    [
        ("raise", "the script raised ValueError: no luck today", "raise ValueError"),
        ("exit", "the script ended with sys.exit(4)", ""),
        ("abort", "the run ended its process with signal SIGABRT", "says hello"),
        ("hang", "the run took longer than 6 s", "says hello"),
    ],
)
def test_the_scripts_own_failures_are_no_findings(how, text, said):
    done, report = run("--json", *QUICK, "--time-limit", 6, SCRIPT, how, code=3)
    assert report["findings"] == [] and len(report["failures"]) == 1
    assert report["failures"][0]["text"].startswith(text) and text in done.stderr
    assert said in report["failures"][0]["output"] and report["failures"][0]["run"] == {"ranks": 2, "seed": 0, "schedule": "random"}


def test_a_lost_process_does_not_end_the_check():
    _, report = run("--json", "--seeds", 2, "--schedules", "random", SCRIPT, "abort", code=3)
    assert [one["run"]["seed"] for one in report["failures"]] == [0, 1]


def test_the_budget_ends_the_runs():
    _, report = run("--json", "--seeds", 200, "--budget", 1, "--no-compile", SCRIPT)
    assert 1 <= len(report["runs"]) < report["runs_planned"] == 800


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.py",), "there is no script"),
        (("--ranks", "two", SCRIPT), "'two'"),
        (("--ranks", "0", SCRIPT), "--ranks 0"),
        (("--ranks", "2,200", SCRIPT), "--ranks 200"),
        (("--ranks", "4", "--nodes", "3", SCRIPT), "--nodes 3 does not divide"),
        (("--seeds", "0", SCRIPT), "--seeds 0"),
        (("--schedules", "backwards", SCRIPT), "backwards"),
        (("--budget", "-1", SCRIPT), "--budget"),
        (("--time-limit", "0", SCRIPT), "--time-limit"),
        (("--arch", "hopper", SCRIPT), "hopper"),
        (("--arch", "9", SCRIPT), "--arch 9"),
        (("--ignore", "TD999", SCRIPT), "TD999"),
        (("--check", "spelling", SCRIPT), "spelling"),
        (("--gpu", "abacus", SCRIPT), "abacus"),
        ((), "argument"),
    ],
)
def test_wrong_usage(arguments, said):
    done, _ = run(*arguments, code=2)
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["01_producer_consumer.py", "02_ag_gemm.py", "03_simt.py"])
def test_the_examples_are_clean(name):
    _, report = run("--json", "--ranks", 4, *QUICK, EXAMPLES / name)
    assert report["findings"] == report["failures"] == [] and report["kernels"]
