"""How ``triton-dist check`` checks a script."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InvalidArgumentError
from ...lints import LINTS


@dataclass(frozen=True)
class Run:
    """One run of the script: how many ranks, and which interleaving of them."""

    ranks: int
    seed: int
    schedule: str


@dataclass(frozen=True)
class Options:
    """What to run and what to look for.

    ranks: numbers of ranks, each of which is run. nodes, gpu, heap_size: as ``simulate`` takes them. seeds: how many, from
    ``first_seed`` on. schedules: names of ``sim.machine.SCHEDULES``, each with every seed. budget: seconds after which no further run
    begins, None for no limit. time_limit: seconds for one run or one compilation. check: what the simulator looks for. architectures:
    compute capabilities to compile for, none for no compilation. ignore: codes that are not reported. Raises InvalidArgumentError.
    """

    ranks: tuple[int, ...] = (2,)
    nodes: int = 1
    seeds: int = 4
    first_seed: int = 0
    schedules: tuple[str, ...] = ("random", "pct", "late", "straggler")
    budget: float | None = None
    time_limit: float = 120.0
    check: str = "all"
    gpu: str = "h100"
    heap_size: int | None = None
    architectures: tuple[int, ...] = (90, 100)
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for ranks in self.ranks:
            if not 1 <= ranks <= 127:
                raise InvalidArgumentError(f"--ranks {ranks}: 1 to 127 ranks can be simulated")
            if self.nodes < 1 or ranks % self.nodes:
                raise InvalidArgumentError(f"--nodes {self.nodes} does not divide --ranks {ranks}; each node has equally many ranks")
        if self.seeds < 1:
            raise InvalidArgumentError(f"--seeds {self.seeds}: at least one seed has to be tried")
        for name, seconds in (("--budget", self.budget), ("--time-limit", self.time_limit)):
            if seconds is not None and not seconds > 0:
                raise InvalidArgumentError(f"{name} {seconds}: it has to be a positive number of seconds")
        odd = [arch for arch in self.architectures if arch < 80]
        if odd:
            raise InvalidArgumentError(f"--arch {odd[0]}: give compute capabilities as 80, 90 or 100, several separated by commas")
        unknown = [code for code in self.ignore if code not in LINTS]
        if unknown:
            raise InvalidArgumentError(f"--ignore {unknown[0]}: there is no such code; docs/lints has a page for each")

    def plan(self) -> list[Run]:
        """All runs: every seed with every schedule and number of ranks. Taking turns has no seed, so one run of it tells all."""
        return [
            Run(ranks, seed, schedule)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for schedule in self.schedules
            if schedule != "round_robin" or seed == self.first_seed
            for ranks in self.ranks
        ]
