"""Attempts on CPU processes: the bodies of tests/runtime/test_attempts.py, in one world that goes on after each of them."""

from __future__ import annotations

from tests.runtime.test_attempts import all_in_turn


def test_one_after_the_other(world):
    world(all_in_turn, 2, timeout=120)
