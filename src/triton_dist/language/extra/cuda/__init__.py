"""The extra language modules by the paths from which kernels for CUDA import them; they are the same on every machine."""
