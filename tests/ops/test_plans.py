"""The table that collectives choose by: its format, where it is, that all ranks take the same one, and what happens without one."""

from __future__ import annotations

import importlib
import json

import pytest
import torch

import triton_dist
from triton_dist import errors
from triton_dist.ops import all_reduce
from triton_dist.ops.collectives import plans
from triton_dist.ops.collectives.plans import Plan, Row, Table, table_of_json
from triton_dist.ops.team import Team

operator = importlib.import_module("triton_dist.ops.collectives.all_reduce")
ROWS = [Row(1024, Plan("ll", 4, 2)), Row(1 << 20, Plan("two_shot", 64, 8, 8192)), Row(None, Plan("library"))]
EXACT = [Row(1024, Plan("ll", 4, 2)), Row(1 << 20, Plan("one_shot"))]
TABLE = Table("simulated", 2, {"all_reduce": {"any": ROWS, "exact": EXACT}}, {"torch": "2.x"})


def test_a_table_comes_back_as_it_was():
    again = table_of_json(TABLE.to_json(), "a file")
    assert again.find("all_reduce", 1, False) == Plan("ll", 4, 2) and again.to_json() == TABLE.to_json()
    assert json.loads(TABLE.to_json())["operators"]["all_reduce"]["any"][2] == {"up_to": None, "method": "library"}


@pytest.mark.parametrize(
    ("nbytes", "exact", "method"),
    [
        (0, False, "ll"), (1024, False, "ll"), (1025, False, "two_shot"), (1 << 20, False, "two_shot"), ((1 << 20) + 1, False, "library"),
        (1 << 40, False, "library"), (1025, True, "one_shot"), (1 << 21, True, None),
    ],
)  # fmt: skip
def test_the_first_row_that_is_large_enough(nbytes, exact, method):
    found = TABLE.find("all_reduce", nbytes, exact)
    assert (found and found.method) == method
    assert TABLE.find("broadcast", nbytes, exact) is None


def changed(**values) -> str:
    return json.dumps({**json.loads(TABLE.to_json()), **values})


def with_rows(*rows: dict) -> str:
    return changed(operators={"all_reduce": {"any": list(rows)}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a table of triton-dist tune (JSONDecodeError"),
        ("[]", "is not a table"),
        (changed(schema=7), "has schema 7, this version reads 1"),
        (changed(operators=3), "is not a table"),
        (with_rows({"up_to": 8, "method": "ll"}, {"up_to": 8, "method": "ll"}), "up_to has to grow"),
        (with_rows({"up_to": None, "method": "ll"}, {"up_to": 8, "method": "ll"}), "only the last may be null"),
        (with_rows({"up_to": "8", "method": "ll"}), "up_to is '8'"),
        (with_rows({"up_to": 8, "method": "ll", "warps": 3}), "powers of 2"),
        (with_rows({"up_to": 8, "method": "ll", "programs": -1}), "0 or more"),
        (with_rows({"up_to": 8, "method": "ll", "speed": 1}), "is not a table"),
        (with_rows({"method": "ll"}), "KeyError: 'up_to'"),
        ("it can't be read: no permission", "it can't be read: no permission"),
    ],
)
def test_a_wrong_table_is_named(text, message):
    with pytest.raises(errors.TuningTableError) as caught:
        table_of_json(text, "the file")
    assert message in str(caught.value) and str(caught.value).startswith("the file")


def test_where_tables_are(monkeypatch):
    monkeypatch.setenv("TRITON_DIST_TUNE_DIR", "/some/where")
    assert str(plans.table_path("NVIDIA H100 80GB HBM3", 4)) == "/some/where/collectives-NVIDIA_H100_80GB_HBM3-x4.json"
    monkeypatch.delenv("TRITON_DIST_TUNE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert str(plans.table_path("a/b", 2)) == "/cache/triton_dist/collectives-a_b-x2.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(plans.table_directory()) == "/home/me/.cache/triton_dist"


@pytest.fixture
def table_file(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_DIST_TUNE_DIR", str(tmp_path))
    path = tmp_path / "collectives-simulated-x2.json"
    path.write_text(TABLE.to_json())
    return path


def methods_of(*sizes: int, exact: bool = False) -> list[Plan]:
    team = operator.find_team(None, "test")
    return [operator.plan_for(nbytes, team, exact) for nbytes in sizes]


def test_the_operator_takes_the_tables_plans(table_file):
    for found in triton_dist.simulate(methods_of, 2, args=(8, 2048, 1 << 30)):
        assert found == [Plan("ll", 4, 2), Plan("two_shot", 64, 8, 8192), Plan("library")]


def test_other_numbers_of_ranks_and_larger_messages_have_the_default(table_file):
    default = [operator.choose_method(8, 3), operator.choose_method(1 << 30, 3)]
    assert [plan.method for plan in triton_dist.simulate(methods_of, 3, args=(8, 1 << 30))[0]] == default
    exact = triton_dist.simulate(lambda: methods_of(1 << 30, exact=True), 2)
    assert exact[0] == [Plan(operator.choose_method(1 << 30, 2, exact=True))]


def sums() -> list[float]:
    outs = [all_reduce(torch.full((count,), triton_dist.rank() + 1.0), exact=True) for count in (3, 2000, 3, 70_000)]
    return [out[-1].item() for out in outs]


def test_calls_by_a_table_are_right(table_file):
    assert triton_dist.simulate(sums, 2, check="race") == [[3.0] * 4] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "collectives-simulated-x2.json of rank 0 is not a table"),
        (changed(gpu="H100"), "is of 2 x H100, and this is a group of 2 x simulated"),
        (changed(ranks=4), "is of 4 x simulated"),
        (with_rows({"up_to": None, "method": "ring"}), "the tuned method 'ring' is not one of"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(table_file, text, message):
    table_file.write_text(text)
    with pytest.raises(errors.TuningTableError) as caught:
        triton_dist.simulate(methods_of, 2, args=(8,))
    assert message in str(caught.value)


def test_a_file_that_can_not_be_read_is_named(table_file):
    table_file.unlink()
    table_file.mkdir()
    with pytest.raises(errors.TuningTableError, match="it can't be read"):
        triton_dist.simulate(methods_of, 2, args=(8,))


class Ranks:
    """A world whose ranks are processes; the first one's file is what counts."""

    def __init__(self, texts: list[str | None]) -> None:
        self.workspaces: dict = {}
        self.device = torch.device("cpu")
        self.gathered: list = []
        self._texts = texts

    def gather_among(self, ranks, value):
        self.gathered.append(value)
        return self._texts


@pytest.mark.parametrize("index", [0, 1])
def test_all_processes_take_the_first_ones_table(monkeypatch, table_file, index):
    other = Table("simulated", 2, {"all_reduce": {"any": [Row(None, Plan("one_shot"))]}})
    world = Ranks([other.to_json(), None])
    monkeypatch.setattr(plans, "require_world", lambda what: world)
    found = [plans.planned("all_reduce", nbytes, Team(index, (0, 1)), False) for nbytes in (8, 1 << 30)]
    assert found == [Plan("one_shot")] * 2
    # One exchange; only the first rank reads its file.
    assert world.gathered == [TABLE.to_json() if index == 0 else None]
    nothing = Ranks([None, None])
    monkeypatch.setattr(plans, "require_world", lambda what: nothing)
    assert plans.planned("all_reduce", 8, Team(index, (0, 1)), False) is None
