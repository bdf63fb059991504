"""Checks that scripts import from ``triton_dist.test.utils``."""
