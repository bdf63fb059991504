"""Where a test's body runs: on simulated ranks, or on worker processes that keep a world on real GPUs between tests."""
