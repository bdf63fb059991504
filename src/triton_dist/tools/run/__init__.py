"""``triton-dist run``: a script written for CUDA and torchrun on simulated ranks, unchanged."""
