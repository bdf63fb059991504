"""The extra language modules by the paths from which kernels for HIP import them; they are the same on every machine."""
