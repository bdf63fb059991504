"""Tools that are no part of a program: what ``triton-dist`` on the command line calls."""
