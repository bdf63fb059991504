"""Random programs with signals left out: the blocks that a deadlock names beside those that can't go on whatever the schedule."""

from __future__ import annotations

import collections
import random
import re
from pathlib import Path

import pytest
import torch

import triton_dist
from tests.races.corpus import load_file
from tests.races.random_programs import CELLS, TILE, WORDS, RandomProgram
from triton_dist.errors import DeadlockError
from triton_dist.sim.schedules import SCHEDULES

NAMED = re.compile(r"rank (\d+), program \((\d+), 0, 0\) of kernel at \S*:(\d+) waits for words\[\d+\] of rank \d+ >= \d+; it is (-?\d+)")


def stuck_blocks(program: RandomProgram) -> dict[tuple[int, int], tuple[int, int]]:
    """For each block that waits for ever the line and what its word is in the end. Words only grow, so every schedule ends alike."""
    left = collections.defaultdict(collections.deque)
    for one in program.statements:
        left[one.rank, one.program].append(one)
    words: dict[tuple[int, int], int] = collections.defaultdict(int)

    def goes_on(block: collections.deque) -> bool:
        moved = False
        while block and (block[0].kind != "wait" or words[block[0].owner, block[0].word] >= block[0].value):
            one = block.popleft()
            if one.kind in ("notify", "atomic") or (one.kind == "put" and one.word >= 0):
                words[one.owner, one.word] = (
                    max(one.added, words[one.owner, one.word]) if one.sets else words[one.owner, one.word] + one.added
                )
            moved = True
        return moved

    while any(goes_on(block) for block in left.values()):
        pass
    return {who: (block[0].line, words[block[0].owner, block[0].word]) for who, block in left.items() if block}


def with_signals_left_out(draw: random.Random) -> RandomProgram:
    program = RandomProgram(draw, unused_atomics=True, copies=draw.random() < 0.5)
    tells = [one for one in program.statements if one.kind in ("notify", "atomic")]
    for one in draw.sample(tells, min(len(tells), draw.choice((0, 1, 1, 2, 4)))):
        program.statements.remove(one)
    return program


@pytest.mark.parametrize("seed", range(60))
def test_a_deadlock_names_those_that_cannot_go_on(seed, tmp_path: Path):
    draw = random.Random(seed)
    program = with_signals_left_out(draw)
    path = tmp_path / f"program_{seed}.py"
    path.write_text(program.source(), encoding="utf-8")
    kernel = load_file(path).kernel

    def fn():
        data, words = triton_dist.symm_zeros((CELLS * TILE,), torch.int32), triton_dist.symm_zeros((WORDS,), torch.int64)
        kernel[(program.programs,)](data, words, torch.zeros(len(program.statements) * TILE, dtype=torch.int32))

    found = {}
    try:
        triton_dist.simulate(fn, program.ranks, seed=seed, schedule=draw.choice(list(SCHEDULES)))
    except DeadlockError as error:
        found = {(int(rank), int(block)): (int(line), int(value)) for rank, block, line, value in NAMED.findall(str(error))}
    assert found == stuck_blocks(program), program.source()


def test_of_those_programs_some_end_and_some_do_not():
    stuck = [bool(stuck_blocks(with_signals_left_out(random.Random(seed)))) for seed in range(60)]
    assert 15 < sum(stuck) < 45, sum(stuck)
