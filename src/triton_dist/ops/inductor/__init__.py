"""Inductor's pass that turns products beside collectives of a traced graph into this package's operators; see ``graph_pass``."""
