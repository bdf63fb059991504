"""Clocks that merge what they learn late, beside maps of times that are merged at once."""

from __future__ import annotations

import random

import pytest

from triton_dist.sim.check.clocks import EMPTY, forget_joins, join, join_entries, learn, meet

pytestmark = pytest.mark.host_code

ACTORS, COARSE = 12, 5


class Model:
    """An actor: its clock, and the same as maps of slots to times. Its own slot of programs is its number."""

    def __init__(self, number: int) -> None:
        self.number, self.time, self.coarse_time = number, 1, 1
        self.clock, self.fine, self.coarse = EMPTY, {}, {}

    def release(self):
        """What another one may learn, and what that comes to."""
        time, self.time = self.time, self.time + 1
        return self.clock, ((self.number, time),), {**self.fine, self.number: time}, dict(self.coarse)

    def hear(self, fine: dict, coarse: dict) -> None:
        for mine, theirs in ((self.fine, fine), (self.coarse, coarse)):
            for slot, time in theirs.items():
                mine[slot] = max(mine.get(slot, 0), time)

    def look(self, draw: random.Random, times: int) -> None:
        for _ in range(times):
            slot = draw.randrange(ACTORS)
            known = self.fine.get(slot, 0)
            time = draw.choice((max(known, 1), known + 1))
            assert self.clock.has(slot, time) == (known >= time)
            assert self.clock.surely_has(slot, time) <= (known >= time)
            slot = draw.randrange(COARSE)
            assert self.clock.coarse_at(slot) == self.coarse.get(slot, 0)


def known_by_both(one: dict, other: dict) -> dict:
    return {slot: min(time, other[slot]) for slot, time in one.items() if slot in other}


@pytest.mark.parametrize("seed", range(150))
def test_times_are_those_of_clocks_that_merge_at_once(seed):
    draw = random.Random(seed)
    actors = [Model(number) for number in range(ACTORS)]
    looks, steps, wholes = draw.choice((0, 0, 1, 20)), draw.choice((30, 300, 1500)), draw.choice((0.0, 0.1, 0.5, 0.9))
    for _ in range(steps):
        one, *others = draw.sample(actors, draw.randint(2, 4))
        if draw.random() < wholes:
            # What a launch leaves to its stream: several clocks as they are.
            one.clock = join(one.clock, *(other.clock for other in others))
            for other in others:
                one.hear(other.fine, other.coarse)
        elif draw.random() < 0.1:
            # What a wait learns that either of two values may have ended.
            two = [others[0], others[-1]]
            one.clock = join(one.clock, meet(*(other.clock for other in two)))
            one.hear(
                *({slot: min(a[slot], b[slot]) for slot in a if slot in b} for a, b in zip(*((t.fine, t.coarse) for t in two), strict=True))
            )
        elif draw.random() < 0.1:
            slot = draw.randrange(COARSE)
            one.coarse_time += 1
            if one.coarse.get(slot, 0) < one.coarse_time:
                one.clock = one.clock.with_coarse(slot, one.coarse_time)
                one.hear({}, {slot: one.coarse_time})
        elif draw.random() < 0.1:
            clock, entries, fine, coarse = others[0].release()
            one.clock = join_entries(join(one.clock, clock), entries)
            one.hear(fine, coarse)
        else:
            clock, entries, fine, coarse = others[0].release()
            one.clock = learn(one.clock, clock, entries)
            one.hear(fine, coarse)
        one.look(draw, looks)
    draw.shuffle(actors)
    for actor in actors:
        actor.look(draw, 40)
        assert {slot: time for slot, time in actor.clock.fine_items() if time} == actor.fine
    forget_joins()


@pytest.mark.parametrize("pairs", [2, 7])
def test_clocks_that_learn_each_other_again_and_again_stay_cheap(pairs):
    """Each round joins the clocks of all as wholes: looked into naively, that doubles the work with every round."""
    clocks = [join_entries(EMPTY, ((slot, 1),)) for slot in range(pairs)]
    clocks = [learn(clock, clocks[slot - 1], ((slot - 1 + 100, 1),)) for slot, clock in enumerate(clocks)]
    for _ in range(150):
        clocks = [join(clock, *clocks) for clock in clocks]
    assert all(clock.has(slot, 1) for clock in clocks for slot in range(pairs))
    forget_joins()
