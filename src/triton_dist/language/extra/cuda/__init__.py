"""The names of Triton-distributed's CUDA modules; the same functions serve every target."""
