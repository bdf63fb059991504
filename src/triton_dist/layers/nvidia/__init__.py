"""The part of ``triton_dist.layers`` that scripts import from its ``nvidia`` package; it runs on every machine."""

from .all_gather_layer import AllGatherLayer

__all__ = ["AllGatherLayer"]
