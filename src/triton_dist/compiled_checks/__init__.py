"""Checks of what Triton's compiler makes of a kernel: codes TD2xx."""
