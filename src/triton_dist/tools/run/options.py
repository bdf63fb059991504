"""How ``triton-dist run`` runs a script."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidArgumentError


@dataclass(frozen=True)
class Options:
    """ranks, nodes, seed, schedule, gpu, heap_size: as ``simulate`` takes them.

    report: a file for what happened, as ``simulate`` takes it.
    prefix: begin each line of output with the rank. perf_iters: bound of the rounds that ``profiler_utils.perf_func`` makes.
    Raises InvalidArgumentError for numbers that make no world.
    """

    ranks: int = 2
    nodes: int = 1
    seed: int = 0
    schedule: str = "random"
    gpu: str = "h100"
    heap_size: int | None = None
    report: str | None = None
    prefix: bool = False
    perf_iters: int | None = None

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise InvalidArgumentError(f"--ranks {self.ranks}: at least one rank has to run")
        if self.nodes < 1 or self.ranks % self.nodes:
            raise InvalidArgumentError(f"--nodes {self.nodes} does not divide --ranks {self.ranks}; each node has equally many ranks")
