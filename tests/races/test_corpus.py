"""Every wrong program of the corpus is found and both its lines named, whatever the schedule; every right one is silent."""

from __future__ import annotations

import pytest

from triton_dist import simulate
from triton_dist.errors import DataRaceError
from triton_dist.sim.check import RaceCheck

from .corpus import CASES, load_case, names_both

pytestmark = pytest.mark.filterwarnings("error::triton_dist.errors.MisuseWarning")
SEEDS = 3


@pytest.mark.parametrize("case", CASES)
def test_the_right_program_is_silent(case, tmp_path):
    right = load_case(case, tmp_path, wrong=False)
    for world_size in (2, 3, 4):
        for seed in range(SEEDS):
            simulate(right.run, world_size, check="all", seed=seed)
    simulate(right.run, 2, check="all", schedule="round_robin")


@pytest.mark.parametrize("case", CASES)
def test_the_wrong_program_is_named(case, tmp_path):
    wrong = load_case(case, tmp_path, wrong=True)
    for world_size in (2, 4):
        found = [finds(wrong, world_size, seed) for seed in range(getattr(wrong, "SEEDS", SEEDS))]
        assert any(found) if hasattr(wrong, "SEEDS") else all(found), found


def finds(wrong, world_size: int, seed: int) -> bool:
    """Whether the race of a wrong program is among those of one schedule."""
    try:
        simulate(wrong.run, world_size, check=RaceCheck(collect=True), seed=seed)
    except DataRaceError as error:
        return any(names_both(race, wrong.RACING) for race in error.races)
    return False
