"""Layers by the paths under which scripts for Triton-distributed import them."""
