"""The soak goes on where it was stopped, and its table says what was found and what was not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mutation import soak
from triton_dist.tools.mutate.equivalents import reasons_for
from triton_dist.tools.mutate.forked import Answer


def run(results: Path, *arguments: str) -> int:
    return soak.main(["--only", "done_flag", "--seeds", "2", "--workers", "1", "--results", str(results), *arguments])


def test_it_goes_on_where_it_was_stopped(tmp_path, capsys):
    results = tmp_path / "soak.jsonl"
    assert run(results, "--budget", "0") == 1
    assert "wrong done_flag: not run" in capsys.readouterr().out
    assert run(results) == 0
    assert "DataRaceError" in capsys.readouterr().out
    kinds = [json.loads(line)["kind"] for line in results.read_text().splitlines()]
    assert sorted(kinds) == ["right", "wrong"]
    assert run(results) == 0
    assert capsys.readouterr().out == "" and len(results.read_text().splitlines()) == 2, "nothing is run twice"


def test_more_seeds_begin_where_fewer_ended(tmp_path):
    results, subject = soak.Results(tmp_path / "soak.jsonl"), soak.Subject("right", "done_flag")
    results.add(subject, range(0, 3), answer("survived", -1))
    assert results.reached(subject) == 3
    todo = [chunk for (_, chunk), _ in soak.tasks([subject], 60, results, float("inf"))]
    assert todo[0] == range(3, 5), "nothing is left out between a run of 3 seeds and one of 60"
    results.add(subject, range(3, 5), answer("survived", -1))
    assert [chunk for (_, chunk), _ in soak.tasks([subject], 25, results, float("inf"))] == [range(5, 25)]


def test_results_of_other_sources_do_not_count(tmp_path):
    path = tmp_path / "soak.jsonl"
    subject = soak.Subject("wrong", "done_flag")
    soak.Results(path).add(subject, range(0, 5), answer("DataRaceError", 2))
    assert soak.Results(path).of(subject)[1] == 5
    path.write_text(path.read_text().replace('"sources": "', '"sources": "other'))
    assert soak.Results(path).of(subject) == (None, 0, 0)


def answer(result: str, seed: int) -> Answer:
    value = {"result": result, "seed": seed, "schedule": "late", "text": "", "runs": 9, "seconds": 0.0}
    return Answer(value, False, 1.0)


@pytest.fixture
def everything() -> list[soak.Subject]:
    return soak.subjects()


def test_the_table(tmp_path, everything):
    results = soak.Results(tmp_path / "soak.jsonl")
    reasons = reasons_for([subject.mutant for subject in everything if subject.mutant is not None])
    for subject in everything:
        expected = subject.kind == "wrong" or (subject.kind == "mutant" and subject.mutant not in reasons)
        results.add(subject, range(0, 5), answer("DataRaceError" if expected else "survived", 3 if expected else -1))
    page = soak.table(everything, results, reasons)
    assert "False alarms: none." in page and "Not named: none." in page
    wrong = sum(subject.kind == "wrong" for subject in everything)
    assert f"| wrong programs of the corpus | {wrong} | {wrong} | 4 | 0 | - | | {9 * wrong} |" in page
    assert "| done_flag | 4 | late | 5 |" in page and "proved equivalent" in page and "wrong on purpose" in page


def test_what_went_wrong_is_in_the_table(tmp_path, everything):
    results = soak.Results(tmp_path / "soak.jsonl")
    results.add(soak.Subject("right", "done_flag"), range(0, 5), answer("DeadlockError", 1))
    results.add(soak.Subject("wrong", "flag_reset"), range(0, 5), answer("survived", -1))
    reasons = reasons_for([subject.mutant for subject in everything if subject.mutant is not None])
    page = soak.table(everything, results, reasons)
    assert "- done_flag: DeadlockError, seed 1, late" in page
    assert "- flag_reset: silent in 5 seeds" in page and "- done_flag: not run" in page
