"""Kernels and host functions by the paths under which scripts for Triton-distributed import them."""
