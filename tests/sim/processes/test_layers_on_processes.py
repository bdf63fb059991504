"""Groups by their names on CPU processes: the tests' functions with the ``world`` of this folder."""

from __future__ import annotations

from tests.ops.test_groups import test_operators_take_groups_by_every_name

__all__ = ["test_operators_take_groups_by_every_name"]
