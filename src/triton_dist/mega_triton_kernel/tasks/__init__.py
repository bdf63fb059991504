"""The families of tasks, one file each: bodies of ``@triton.jit``, and functions that check tensors and make a ``graph.Operation``."""
