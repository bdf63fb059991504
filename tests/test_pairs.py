"""The cases that stand for a full grid."""

from __future__ import annotations

import itertools

import pytest

from tests.pairs import every_pair, in_turn


@pytest.mark.parametrize("axes", [("ab", "xyz"), ("abc", "xy", "12345"), ("ab", "cd", "ef", "gh"), ("aab", "xx", "12")])
def test_every_pair_is_there(axes):
    rows = every_pair(*axes)
    for first, second in itertools.combinations(range(len(axes)), 2):
        assert {(row[first], row[second]) for row in rows} == set(itertools.product(axes[first], axes[second]))
    assert rows == every_pair(*axes)


def test_there_are_fewer_cases_than_in_the_grid():
    assert len(every_pair(range(6), range(11), range(3))) <= 72 < 6 * 11 * 3
    assert every_pair("ab", "xyz") == list(itertools.product("ab", "xyz"))


@pytest.mark.parametrize(("count", "others", "each"), [(5, 11, 2), (6, 11, 3), (6, 8, 3), (6, 5, 3)])
def test_values_take_turns(count, others, each):
    rows = in_turn(range(count), range(others), each)
    assert len(rows) == len(set(rows)) == others * each
    assert {first for first, _ in rows} == set(range(count)) and {second for _, second in rows} == set(range(others))
