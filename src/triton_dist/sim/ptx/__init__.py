"""Inline PTX on the simulator: a block of assembly is parsed once and run for all threads together, an array for each register."""
