"""The cases that stand for a full grid."""

from __future__ import annotations

import itertools

import pytest

from tests.pairs import every_pair


@pytest.mark.parametrize("axes", [("ab", "xyz"), ("abc", "xy", "12345"), ("ab", "cd", "ef", "gh"), ("aab", "xx", "12")])
def test_every_pair_is_there(axes):
    rows = every_pair(*axes)
    for first, second in itertools.combinations(range(len(axes)), 2):
        assert {(row[first], row[second]) for row in rows} == set(itertools.product(axes[first], axes[second]))
    assert rows == every_pair(*axes)


def test_there_are_fewer_cases_than_in_the_grid():
    assert len(every_pair(range(6), range(11), range(3))) <= 72 < 6 * 11 * 3
    assert every_pair("ab", "xyz") == list(itertools.product("ab", "xyz"))
