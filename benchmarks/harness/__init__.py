"""What every benchmark of an operator shares; a benchmark adds its shapes and its methods.

machine: the ranks: barrier, clock, graphs, agreement; real GPUs or, for a dry run, the simulator.
timing: runs all methods in interleaved rounds, eagerly and in CUDA graphs. link: the rate of the links, measured in the run.
intervals: median, its interval, ratio of paired rounds. results: the JSON file. comparison: best peer, bound, share of it.
environment: card and versions. correctness: sampled rows against a product in fp64. limits: time budget, and an end to hangs.
models: shapes. tables, plots: from the JSON file alone. run: the loop over cases, and the arguments that all benchmarks take.
"""
