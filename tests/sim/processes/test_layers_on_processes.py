"""Layers, and groups by their names, on CPU processes: the tests' functions with the ``world`` of this folder."""

from __future__ import annotations

from tests.layers.test_tp_attention import test_decoding_with_a_cache
from tests.layers.test_tp_mlp import test_an_mlp_over_a_dimension_of_a_mesh
from tests.ops.test_groups import test_operators_take_groups_by_every_name

__all__ = ["test_an_mlp_over_a_dimension_of_a_mesh", "test_decoding_with_a_cache", "test_operators_take_groups_by_every_name"]
