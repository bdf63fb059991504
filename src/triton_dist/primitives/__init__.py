"""The device primitives: one table, one lowering module a target, and the jit functions that kernels call."""
