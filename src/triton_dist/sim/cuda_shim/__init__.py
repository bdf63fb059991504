"""What a script written for CUDA finds under ``triton-dist run``: the simulated rank's GPU by torch's and the driver's own names."""
