"""Regions, vectors and elements of tiles, by the path from which Triton-distributed's kernels import them."""

from triton_dist.primitives.region import extract, insert, simt_exec_region
from triton_dist.primitives.thread_functions import make_vector, zeros_vector
from triton_dist.primitives.vector import vector

__all__ = ["extract", "insert", "make_vector", "simt_exec_region", "vector", "zeros_vector"]
