"""The part of ``triton_dist.kernels`` that scripts import from its ``nvidia`` package; it runs on every machine."""

from .all_to_all import AllToAllContext, all_to_all_post_process, create_all_to_all_context, fast_all_to_all

__all__ = ["AllToAllContext", "all_to_all_post_process", "create_all_to_all_context", "fast_all_to_all"]
