"""``triton-dist check``: a script under many schedules, with all checks, and its kernels as the compiler leaves them."""
