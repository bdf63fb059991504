"""Random programs: the races that the check reports beside those that follow from the sets of all that comes before."""

from __future__ import annotations

import collections
import contextlib
import random
from pathlib import Path

import pytest
import torch
import triton

import triton_dist
from tests.races.corpus import load_file
from tests.races.random_programs import CELLS, TILE, WORDS, RandomProgram, Step, races_of
from triton_dist.errors import DataRaceError
from triton_dist.sim.check import RaceCheck
from triton_dist.sim.check.checker import RaceChecker
from triton_dist.sim.schedules import SCHEDULES

UNUSED_ATOMICS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
"""Whether an atomic whose result nobody uses orders its thread only."""


@contextlib.contextmanager
def changes_noted(monkeypatch):
    """The lines of signals, waits and atomics as they run, with who runs them; those of puts below 0 when their signals arrive."""
    found: list[tuple[int, int, int]] = []
    for name in ("notified", "waited", "update"):
        real = getattr(RaceChecker, name)

        def noting(self, program, *arguments, _real=real, **options):
            line = str(program.launch.kernel.location(program.at)).rpartition(":")[2]
            found.append((program.rank, program.pid[0], int(line)))
            return _real(self, program, *arguments, **options)

        monkeypatch.setattr(RaceChecker, name, noting)
    real_signals = RaceChecker.put_signals

    def noting_signals(self, put, *arguments):
        line = put.issuer.line(put.location).rpartition(":")[2]
        found.append((put.issuer.rank, put.issuer.pid[0], -int(line)))
        return real_signals(self, put, *arguments)

    monkeypatch.setattr(RaceChecker, "put_signals", noting_signals)
    yield found
    monkeypatch.undo()


def order_of_run(program: RandomProgram, noted: list[tuple[int, int, int]]) -> list[Step]:
    """All statements in an order in which they may have run: each block's own, and the changes of words as they were noted."""
    left = collections.defaultdict(collections.deque)
    for index, one in enumerate(program.statements):
        left[one.rank, one.program].append(index)
    order: list[Step] = []
    index_at = {one.line: index for index, one in enumerate(program.statements)}
    for rank, block, line in noted:
        mine = left[rank, block]
        if line < 0:
            # The put has begun; what its block has done since, nobody has noted.
            while index_at[-line] in mine:
                order.append(mine.popleft())
            order.append(("signal", index_at[-line]))
            continue
        while mine:
            order.append(mine.popleft())
            if program.statements[order[-1]].line == line:
                break
        else:
            raise AssertionError(f"line {line} is not in the program of rank {rank}, block {block}")
    return order + [index for mine in left.values() for index in mine]


def run(program: RandomProgram, directory: Path, seed: int, schedule: str, monkeypatch):
    """The pairs of lines of different blocks that are reported, the smaller one first, and the order of the run."""
    path = directory / f"program_{seed}.py"
    path.write_text(program.source(), encoding="utf-8")
    kernel = load_file(path).kernel

    def fn():
        data = triton_dist.symm_zeros((CELLS * TILE,), torch.int32)
        words = triton_dist.symm_zeros((WORDS,), torch.int64)
        sink = torch.zeros(len(program.statements) * TILE, dtype=torch.int32)
        kernel[(program.programs,)](data, words, sink)

    reported = set()
    with changes_noted(monkeypatch) as noted:
        try:
            triton_dist.simulate(fn, program.ranks, check=RaceCheck(collect=True, limit=10_000), seed=seed, schedule=schedule)
        except DataRaceError as error:
            for race in error.races:
                if race.tensor == "data":
                    lines = sorted(int(side.line.rpartition(":")[2]) for side in (race.earlier, race.later))
                    earlier, later = (side.who.partition(", thread")[0] for side in (race.earlier, race.later))
                    if earlier != later or ", its " in earlier:
                        reported.add(tuple(lines))
    return reported, order_of_run(program, noted)


FOUND = (41, 534, 931, 1090, 2151, 2346, 3000, 3239, 3577, 3729, 3974, 10377, 13626)
"""Programs by which something was found: a wait that another rank's value may have ended, a release handed on through a scope that it does
not reach, one forgotten for that of an older fence, what both of two values say."""


@pytest.mark.parametrize("seed", (*range(40), *FOUND))
def test_reported_are_the_races_that_there_are(seed, tmp_path, monkeypatch):
    """Each report is a race, and no element that has one goes without. A pair of lines is reported once, for some of its elements."""
    draw = random.Random(seed)
    compare(RandomProgram(draw, UNUSED_ATOMICS), tmp_path, seed, draw.choice(list(SCHEDULES)), monkeypatch)


def compare(program: RandomProgram, directory: Path, seed: int, schedule: str, monkeypatch) -> None:
    reported, order = run(program, directory, seed, schedule, monkeypatch)
    expected = races_of(program, order)
    wrong = reported - {(first, second) for first, second, _ in expected}
    assert not wrong, f"no race: {wrong}\n{program.source()}"
    missed = {element for _, _, element in expected} - {element for first, second, element in expected if (first, second) in reported}
    assert not missed, f"not reported: {[race for race in expected if race[2] in missed]}\n{program.source()}"


FOUND_WITH_COPIES = (32, 343, 358, 3488, 5157, 7352)
"""By these: a quiet for a put of which another block has said that it began, and which has ended since; a thread's release that a later one
of its block includes; what only one thread knew before a fence."""


@pytest.mark.parametrize("seed", (*range(30), *FOUND_WITH_COPIES))
def test_races_with_copies_are_those_that_there_are(seed, tmp_path, monkeypatch):
    """The same of programs that put and get."""
    draw = random.Random(seed)
    compare(RandomProgram(draw, UNUSED_ATOMICS, copies=True), tmp_path, seed, draw.choice(list(SCHEDULES)), monkeypatch)


def test_random_programs_have_races_and_order():
    """The comparison above is of something: many accesses race, and many would if nothing were said to anyone."""
    racing = ordered = 0
    for seed in range(60):
        program = RandomProgram(random.Random(seed), UNUSED_ATOMICS)
        program.source()
        races = races_of(program, list(range(len(program.statements))))
        program.statements = [one for one in program.statements if one.kind in ("load", "store")]
        racing += len(races)
        ordered += len(races_of(program, list(range(len(program.statements)))) - races)
    assert racing > 300 and ordered > 300, (racing, ordered)
