"""Programs of several ranks: sums and barriers in the midst of a program, on every world size, and what goes wrong without them."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist import errors
from triton_dist.mega_triton_kernel import ModelBuilder, schedule
from triton_dist.runtime import streams
from triton_dist.runtime.world import require_world

from . import references
from .references import TOLERANCE, Random, nan_like


def make(num_sms: int = 4, **options) -> ModelBuilder:
    ranks = triton_dist.world_size()
    return ModelBuilder(triton_dist.rank(), ranks, ranks, num_sms=num_sms, **options)


def of_all_ranks(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Every rank's tensor, in float64."""
    return [torch.tensor(values, dtype=torch.float64) for values in require_world("test").gather(tensor.tolist())]


def sums(dtype: torch.dtype, options: dict, double: bool) -> list[float]:
    """Two row-parallel products with their all-reduces, what the first one sums up written again by the third product."""
    random, made = Random(20 + triton_dist.rank(), dtype), make(**options)
    x, weight, back = random(2, 40), random(700, 40, scale=0.2), random(40, 700, scale=0.05)
    part = made.create_symm_tensor((2, 700), dtype)
    other = made.create_symm_tensor((2, 40), dtype)
    total, result = nan_like((2, 700), x), nan_like((2, 40), x)
    made.make_linear(x, weight, part)
    made.make_allreduce(part, total, double_input_buffer=double)
    made.make_linear(total, back, other)
    made.make_allreduce(other, result, double_input_buffer=double)
    if not double:
        made.make_linear(x, weight, part)
    made.compile()
    found = []
    for _ in range(3):
        x.copy_(random(2, 40))
        made.run()
        triton_dist.synchronize()
        found.append(relative_error(total, sum(of_all_ranks(references.linear(x, weight)))))
        found.append(relative_error(result, sum(of_all_ranks(references.linear(total, back)))))
        for same in (of_all_ranks(total), of_all_ranks(result)):
            found.append(0.0 if all(torch.equal(one, same[0]) for one in same) else 1.0)
    made.finalize()
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("double", [False, True], ids=["again", "in turn"])
def test_sums_over_ranks(world, double, ranks):
    for found in world(sums, ranks, args=(torch.float32, {}, double)):
        assert max(found) < 1e-5


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("taken", [False, True], ids=["dealt", "taken"])
def test_sums_of_every_dtype(world, taken, dtype):
    for found in world(sums, 2, args=(dtype, {"enable_runtime_scheduler": taken}, False)):
        assert max(found) < 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("taken", [False, True], ids=["dealt", "taken"])
def test_sums_have_no_finding(taken, seed):
    options = {"enable_runtime_scheduler": taken}
    for found in triton_dist.simulate(sums, world_size=3, seed=seed, args=(torch.float32, options, False), check="all"):
        assert max(found) < 1e-5


def compiled_again(first_runs: int) -> list[float]:
    """More operations after some runs: what words of the first ones hold must not end the waits of the next program."""
    random, made = Random(70 + triton_dist.rank()), make()
    x, weight = random(2, 40), random(300, 40, scale=0.2)
    part, other = (made.create_symm_tensor((2, 300), torch.float32) for _ in range(2))
    total, again = nan_like((2, 300), x), nan_like((2, 300), x)
    made.make_linear(x, weight, part)
    made.make_allreduce(part, total)
    made.compile()
    for _ in range(first_runs):
        made.run()
    made.make_linear(total, torch.eye(300, device=x.device), other)
    made.make_allreduce(other, again)
    found = []
    for _ in range(2):
        made.compile()
        for _ in range(2):
            x.copy_(random(2, 40))
            made.run()
            triton_dist.synchronize()
            expected = sum(of_all_ranks(references.linear(x, weight)))
            found += [relative_error(total, expected), relative_error(again, triton_dist.world_size() * expected)]
    made.finalize()
    return found


@pytest.mark.parametrize("first_runs", [0, 3])
def test_programs_that_are_compiled_again(world, first_runs):
    for found in world(compiled_again, 2, args=(first_runs,)):
        assert max(found) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_programs_that_are_compiled_again_have_no_finding(seed):
    for found in triton_dist.simulate(compiled_again, world_size=3, seed=seed, args=(3,), check="all"):
        assert max(found) < 1e-5


def older_plans(order: str) -> list[float]:
    """Runs of a program that was compiled earlier ("old"), as a graph replays them, between those of the one compiled last ("new")."""
    random, made = Random(75 + triton_dist.rank()), make()
    x, weight = random(2, 40), random(300, 40, scale=0.2)
    part = made.create_symm_tensor((2, 300), torch.float32)
    total, twice = nan_like((2, 300), x), nan_like((2, 300), x)
    made.make_linear(x, weight, part)
    made.make_allreduce(part, total)
    made.make_barrier_all_intra_node([total])
    made.compile()
    launches = {"old": made._launch(made._plan)}
    for _ in range(3):
        launches["old"].run()
    made.make_add(total, total, twice)
    made.compile()
    launches["new"] = made._launch(made._plan)
    found = []
    for which in order.split():
        x.copy_(random(2, 40))
        part.zero_()
        total.fill_(float("nan"))
        launches[which].run()
        triton_dist.synchronize()
        found.append(relative_error(total, sum(of_all_ranks(references.linear(x, weight)))))
    made.finalize()
    return found


@pytest.mark.parametrize("order", ["old old", "new old old", "new old new old new"])
def test_plans_count_their_runs_apart(world, order):
    for found in world(older_plans, 2, args=(order,)):
        assert max(found) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_older_plans_have_no_finding(seed):
    for found in triton_dist.simulate(older_plans, world_size=2, seed=seed, args=("new old new old",), check="all"):
        assert max(found) < 1e-5


def compiled_while_it_runs() -> list[float]:
    """``compile()`` while runs are pending on another stream: neither reads nor clears what they count in."""
    random, made = Random(77 + triton_dist.rank()), make()
    x, weight = random(2, 40), random(300, 40, scale=0.2)
    part = made.create_symm_tensor((2, 300), torch.float32)
    total, twice = nan_like((2, 300), x), nan_like((2, 300), x)
    q, cache, attended = random(1, 1, 2, 16), random(20, 16, 1, 16), nan_like((1, 1, 2, 16), x)
    tables, lens = torch.arange(20, dtype=torch.int32, device=x.device).view(1, 20), torch.tensor([300], dtype=torch.int32, device=x.device)
    made.make_linear(x, weight, part)
    made.make_allreduce(part, total)
    made.make_flash_decode(q, cache, cache, tables, lens, attended)
    made.compile()
    side = streams.Stream()
    side.wait_stream(streams.current_stream())
    with side:
        for _ in range(4):
            made.run()
    made.make_add(total, total, twice)
    made.compile()
    streams.current_stream().wait_stream(side)
    total.fill_(float("nan"))
    made.run()
    triton_dist.synchronize()
    pages = cache.flatten(0, 1)[None, :300]
    found = [
        relative_error(twice, 2 * sum(of_all_ranks(references.linear(x, weight)))),
        relative_error(attended, references.attention(q, pages, pages)),
    ]
    made.finalize()
    return found


def test_a_program_is_compiled_while_another_runs(world):
    for found in world(compiled_while_it_runs, 2):
        assert max(found) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_compiling_while_another_runs_has_no_finding(seed):
    for found in triton_dist.simulate(compiled_while_it_runs, world_size=2, seed=seed, check="all"):
        assert max(found) < 1e-5


def behind_a_barrier(guarded: bool) -> bool:
    """Each rank reads its neighbour's part after the barrier, by an all-reduce's tensor seen from the other rank."""
    random, made = Random(40 + triton_dist.rank()), make()
    rank, ranks = triton_dist.rank(), triton_dist.world_size()
    x, weight = random(3, 32), random(500, 32)
    mine = made.create_symm_tensor((3, 500), torch.float32)
    neighbours = triton_dist.symm_peer(mine, (rank + 1) % ranks)
    out = nan_like((3, 500), x)
    made.make_linear(x, weight, mine)
    others = [random(2, 3) for _ in range(20)]
    made.make_barrier_all_intra_node([mine, neighbours, *others] if guarded else None)
    made.make_add(neighbours, neighbours, out)
    made.make_barrier_all_intra_node([mine, out])
    made.compile()
    made.run()
    triton_dist.synchronize()
    theirs = of_all_ranks(references.linear(x, weight))[(rank + 1) % ranks]
    right = relative_error(out, 2 * theirs) < 1e-5
    made.finalize()
    return right


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_barriers(world, ranks):
    assert all(world(behind_a_barrier, ranks, args=(True,)))


def test_a_barrier_has_no_finding():
    assert all(triton_dist.simulate(behind_a_barrier, world_size=3, args=(True,), check="all"))


def test_a_barrier_that_guards_nothing_is_a_race():
    with pytest.raises(errors.DataRaceError):
        triton_dist.simulate(behind_a_barrier, world_size=2, args=(False,), check="race")


def written_again() -> None:
    """What ``double_input_buffer`` asks for is not there: the next product writes what peers still sum up."""
    random, made = Random(50 + triton_dist.rank()), make()
    x, weight = random(2, 40), random(700, 40)
    part = made.create_symm_tensor((2, 700), torch.float32)
    made.make_linear(x, weight, part)
    made.make_allreduce(part, nan_like((2, 700), x), double_input_buffer=True)
    made.make_linear(x, weight, part)
    made.compile()
    made.run()
    triton_dist.synchronize()


def in_turn(way: str, options: dict) -> None:
    """Two inputs in turn: the first is written again behind the all-reduce of the second, which follows from the first one's sum or not."""
    # So many programs that none has tiles of both all-reduces, which would order them.
    random, made = Random(55 + triton_dist.rank()), make(64, **options)
    x, wide, narrow, back = random(2, 40), random(300, 40), random(100, 40), random(300, 100)
    of_sum, of_half = random(100, 300), random(100, 150)
    first, second = made.create_symm_tensor((2, 300), torch.float32), made.create_symm_tensor((2, 100), torch.float32)
    sum_of_first, sum_of_second, last = nan_like((2, 300), x), nan_like((2, 100), x), nan_like((2, 300), x)
    made.make_linear(x, wide, first)
    made.make_allreduce(first, sum_of_first, double_input_buffer=True)
    if way == "of the sum":
        made.make_linear(sum_of_first, of_sum, second)
    elif way == "of a part of the sum":
        made.make_linear(sum_of_first.view(4, 150)[:2], of_half, second)
    else:
        made.make_linear(x, narrow, second)
    if way == "behind a barrier":
        made.make_barrier_all_intra_node([first, sum_of_first])
    made.make_allreduce(second, sum_of_second, double_input_buffer=True)
    made.make_linear(sum_of_second, back, first)
    made.make_allreduce(first, last)
    made.compile()
    for _ in range(2):
        made.run()
    triton_dist.synchronize()
    made.finalize()


SAFE = (("of the sum", {}), ("behind a barrier", {}), ("of x", {"enable_dep_opt": False}))
UNSAFE = ("of x", "of a part of the sum")


@pytest.mark.parametrize(("way", "options"), SAFE)
def test_inputs_in_turn_that_follow_from_each_other(way, options):
    triton_dist.simulate(in_turn, world_size=3, args=(way, options), check="all")


@pytest.mark.parametrize(("body", "arguments"), [(written_again, ()), *((in_turn, (way, {})) for way in UNSAFE)])
def test_an_input_that_is_written_too_early_is_refused(body, arguments):
    with pytest.raises(errors.InvalidArgumentError, match="linear: tile .* would write an input of make_allreduce"):
        triton_dist.simulate(body, world_size=2, args=arguments)


@pytest.mark.parametrize(("body", "arguments"), [(written_again, ()), *((in_turn, (way, {})) for way in UNSAFE)])
def test_an_input_that_is_written_too_early_is_a_race(monkeypatch, body, arguments):
    """The twins: without the refusal the simulator names the race."""
    monkeypatch.setattr(schedule, "check_unguarded", lambda operations, waits: None)
    with pytest.raises(errors.DataRaceError, match="create_symm_tensor"):
        triton_dist.simulate(body, world_size=2, args=arguments, check="race")


def a_rank_that_has_less(other_dtype: bool) -> str:
    made, random = make(), Random(60)
    x, weight = random(2, 40), random(64, 40)
    part = made.create_symm_tensor((2, 64), torch.float32)
    made.make_linear(x, weight, part)
    if other_dtype and triton_dist.rank():
        # As many tiles, of half the bytes.
        part = part.view(-1)[:64].view(torch.bfloat16).view(2, 64)
    made.make_allreduce(part, nan_like((2, 64), part))
    if triton_dist.rank() and not other_dtype:
        made.make_add(x, x, nan_like(x.shape, x))
    try:
        made.compile()
    except errors.CollectiveMismatchError as error:
        return str(error)
    return "not found"


@pytest.mark.parametrize(("other_dtype", "word"), [(False, "add"), (True, "bfloat16")])
def test_ranks_with_other_operations_are_named(world, other_dtype, word):
    for told in world(a_rank_that_has_less, 2, args=(other_dtype,)):
        assert word in told and "Every rank has to make the same operations" in told


def other_parts() -> str:
    """Each rank sums up another part of one symmetric tensor."""
    made = make()
    both = made.create_symm_tensor((2, 300), torch.float32)
    part = both[triton_dist.rank()]
    made.make_allreduce(part, nan_like((300,), part))
    try:
        made.compile()
    except errors.CollectiveMismatchError as error:
        return str(error)
    return "not found"


def test_ranks_that_sum_up_other_parts_are_named(world):
    for told in world(other_parts, 2):
        assert "'at 0x" in told and "Every rank has to make the same operations" in told


def a_rank_that_stays_away() -> None:
    made, random = make(), Random(61)
    part = made.create_symm_tensor((2, 64), torch.float32)
    made.make_linear(random(2, 40), random(64, 40), part)
    made.make_allreduce(part, nan_like((2, 64), part))
    made.compile()
    if triton_dist.rank() == 0:
        made.run()
        triton_dist.synchronize()


def test_a_rank_that_does_not_run_is_a_deadlock():
    with pytest.raises(errors.DeadlockError, match="barrier.py"):
        triton_dist.simulate(a_rank_that_stays_away, world_size=2)


def not_symmetric() -> list[str]:
    made, random, told = make(), Random(62), []
    for x, out in ((random(2, 64), random(2, 64)), (made.create_symm_tensor((2, 64), torch.float32), random(2, 63))):
        try:
            made.make_allreduce(x, out)
        except errors.InvalidArgumentError as error:
            told.append(str(error))
    shared = made.create_symm_tensor((2, 64), torch.float32)
    rank, ranks = triton_dist.rank(), triton_dist.world_size()
    for x, out in ((shared, shared), (triton_dist.symm_peer(shared, (rank + 1) % ranks), random(2, 64))):
        try:
            made.make_allreduce(x, out)
        except errors.InvalidArgumentError as error:
            told.append(str(error))
    for arguments in ((0, ranks + 1, ranks + 1), (rank, ranks)):
        try:
            ModelBuilder(*arguments)
        except errors.InvalidArgumentError as error:
            told.append(str(error))
    made.finalize()
    return told


def test_what_ranks_are_refused(world):
    for told in world(not_symmetric, 2):
        words = ("no symmetric tensor", "(2, 63)", "shares memory", "no symmetric tensor of this rank", "this is rank", "2 on each node")
        assert len(told) == len(words) and [word for word, text in zip(words, told, strict=True) if word not in text] == []
