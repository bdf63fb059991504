"""Calls that come again are launched from what was kept: the same results as the first time, with other tensors, sizes and memory."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError
from triton_dist.ops import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter, repeat
from triton_dist.ops.collectives import arguments
from triton_dist.ops.repeat import Calls, looks_of
from triton_dist.runtime.world import require_world


@pytest.fixture
def everywhere(monkeypatch):
    """Calls are kept on the simulator, too, whose launcher takes the same arguments as a GPU's."""
    monkeypatch.setattr(repeat, "_DEVICES", ("cuda", "cpu"))


def inputs_of(call: int, rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(-9, 9, (count,), generator=torch.Generator().manual_seed(100 * call + rank)).to(triton_dist.device(), dtype)


def run_all(call: int, count: int, dtype: torch.dtype, kept: list) -> bool:
    """One call of every collective on new tensors; ``kept`` keeps them alive, so that addresses differ."""
    rank, size = triton_dist.rank(), triton_dist.world_size()
    everyone = [inputs_of(call, other, count * size, dtype) for other in range(size)]
    mine, total = everyone[rank], sum(everyone)
    part, small = slice(rank * count, (rank + 1) * count), mine[:count]
    splits = torch.full((size,), count, dtype=torch.int32, device=mine.device)
    out, received = torch.empty(count * size, dtype=dtype, device=mine.device), torch.empty_like(splits)
    all_to_all(mine.clone(), splits, out=out, received=received)
    copied = mine.clone()
    results = [
        *((all_reduce(mine, method=method), total) for method in ("ll", "one_shot", "two_shot", "auto")),
        (all_reduce(copied, out=copied), total),
        (all_reduce(mine, op="max"), torch.stack(everyone).amax(0)),
        (all_gather(small), torch.cat([other[:count] for other in everyone])),
        (reduce_scatter(mine), total[part]),
        (broadcast(mine.clone(), src=size - 1), everyone[-1]),
        (all_to_all(mine), torch.cat([other[part] for other in everyone])),
        (out, torch.cat([other[part] for other in everyone])),
    ]
    kept.append((everyone, results, copied, splits, received))
    return all(torch.equal(result, truth) for result, truth in results)


def body(dtype: torch.dtype) -> tuple[bool, int]:
    kept: list = []
    right = True
    for call, count in enumerate((16, 16, 33, 700, 16, 33, 700)):
        right &= run_all(call, count, dtype, kept)
    calls = [space for space in require_world("a test").workspaces.values() if isinstance(space, Calls)]
    return right, sum(len(one._prepared) for one in calls)


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_calls_that_come_again(world, world_size, dtype):
    assert all(right for right, _ in world(body, world_size, args=(dtype,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("check", ["race", "lint"])
def test_from_what_was_kept(everywhere, dtype, check):
    """On the simulator: by the kept launches themselves."""
    for right, number in triton_dist.simulate(body, 3, args=(dtype,), check=check):
        assert right and number > 10


def test_launches_are_kept_only_for_what_decides_nothing(everywhere):
    def run():
        outs = []
        for shape, dtype, op in (
            ((8,), torch.float32, "sum"),
            ((2, 4), torch.float32, "sum"),
            ((8,), torch.int32, "max"),
            ((8,), torch.float32, "avg"),
        ):
            for _ in range(2):
                outs.append(all_reduce(torch.ones(shape, dtype=dtype) * (1 + triton_dist.rank()), op=op))
        odd = torch.ones(9)[1:]  # aligned to 4 bytes only
        outs += [all_reduce(odd), all_reduce(torch.ones(4, 2).t()), all_reduce(torch.empty(0))]
        return [out.flatten()[:1].tolist() for out in outs]

    assert triton_dist.simulate(run, 2) == [[[3.0]] * 4 + [[2]] * 2 + [[1.5]] * 2 + [[2.0]] * 2 + [[]]] * 2


def test_what_is_kept_has_an_end(everywhere, monkeypatch):
    monkeypatch.setattr(repeat, "_MOST", 3)

    def run():
        right = all(all_reduce(torch.ones(count))[0] == 2 for count in (4, 5, 6, 7, 8, 4, 5, 6))
        (calls,) = [space for space in require_world("a test").workspaces.values() if isinstance(space, Calls)]
        return right and 0 < len(calls._prepared) <= 3

    assert all(triton_dist.simulate(run, 2))


def test_tensors_that_have_no_looks():
    assert looks_of(torch.ones(2, 3).t()) is None and looks_of(torch.ones(3), torch.empty(0)) is None
    one = torch.ones(8)
    assert looks_of(one, one) != looks_of(one, torch.ones(8)) and looks_of(one[1:]) != looks_of(torch.ones(7))
    two, three = torch.ones(8), torch.ones(8)
    assert len({looks_of(*each) for each in ((one, two, three), (one, two, two), (one, two, one), (one, one, two), (one, one, one))}) == 5


OUT_OF_PLACE = {
    "all_reduce": (all_reduce, lambda size: (8 * size, 8 * size, 0)),
    "all_gather": (all_gather, lambda size: (8, 8 * size, -8 * triton_dist.rank())),
    "reduce_scatter": (reduce_scatter, lambda size: (8 * size, 8, 8 * triton_dist.rank())),
    "broadcast": (broadcast, lambda size: (8 * size, 8 * size, 0)),
    "all_to_all": (all_to_all, lambda size: (8 * size, 8 * size, 0)),
}
"""By name: the operator, and elements of x, elements of out, and where in x out may begin."""


def sharing_body(name: str) -> list[str]:
    """What went wrong where x and out share memory in ways that are allowed, and in one that is not."""
    operator, sizes = OUT_OF_PLACE[name]
    given, made, allowed = sizes(triton_dist.world_size())
    wrong = []

    def call(distance: int) -> torch.Tensor:
        memory = torch.zeros(3 * (given + made), device=triton_dist.device())
        x, out = memory[given + made :][:given], memory[given + made + distance :][:made]
        x.copy_(torch.arange(1.0, given + 1))
        return operator(x, out=out).clone()

    apart = call(given)  # they touch, and share nothing
    for _ in range(2):
        if not torch.equal(call(allowed), apart) or not torch.equal(call(-made), apart):
            wrong.append("a result")
        for distance in (4, 1 - made, given - 1):
            try:
                call(distance)
                wrong.append(f"{distance} was taken")
            except InvalidArgumentError:
                pass
    return wrong


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_memory_shared_by_x_and_out(world, name):
    assert world(sharing_body, 2, args=(name,)) == [[], []]


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_memory_shared_in_calls_that_come_again(everywhere, name):
    assert triton_dist.simulate(sharing_body, 3, args=(name,)) == [[]] * 3


def test_mistakes_in_calls_that_come_again(everywhere):
    """What looks like a call that was kept, but is none, is looked at as the first one."""

    def run():
        right = torch.ones(8)
        refused = 0
        for operator in (all_reduce, all_gather, reduce_scatter, broadcast, all_to_all):
            out = operator(right.clone(), out=None)
            made = [operator(right, out=torch.empty_like(out)) for _ in range(2)]
            assert torch.equal(made[0], made[1])
            for x, target, options in (
                ([1.0], out, {}),
                (right, "out", {}),
                (right, out[:3], {}),
                (right, out.to(torch.int32), {}),
                (right, out, {"method": ["ll"]}),
                (right, out, {"method": "fast"}),
            ):
                with pytest.raises(InvalidArgumentError, match=operator.__name__):
                    operator(x, out=target, **options)
                refused += 1
        return refused

    assert triton_dist.simulate(run, 2) == [30, 30]


def test_a_call_that_comes_again_is_not_checked(everywhere, monkeypatch):
    def run():
        x, out = torch.ones(8), torch.empty(8)
        results = [float(all_reduce(x, out=out)[0]) for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(repeat, "repeated", None)
            patch.setitem(all_reduce.__globals__, "check_method", None)
            return [*results, float(all_reduce(x, out=out)[0])]

    assert triton_dist.simulate(run, 1) == [[1.0] * 3]


def elsewhere_body() -> list[str]:
    """Which collectives took tensors of the host, of the looks of a call that was kept, though kernels run on a GPU."""
    taken = []
    for operator in (all_reduce, all_gather, reduce_scatter, broadcast, all_to_all):
        x = torch.ones(16, device=triton_dist.device())
        out = operator(x)
        for _ in range(2):
            operator(x, out=torch.empty_like(out))
        try:
            operator(x.cpu(), out=torch.empty_like(out, device="cpu"))
            taken.append(operator.__name__)
        except InvalidArgumentError as error:
            assert "move it there" in str(error)
    return taken


def test_tensors_of_the_host(world):
    taken = [] if world(device_body, 1) == ["cuda"] else ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
    assert world(elsewhere_body, 2) == [taken] * 2


def device_body() -> str:
    return triton_dist.device().type


def test_tensors_that_are_elsewhere(monkeypatch):
    """On GPUs, tensors that are not on this rank's one are refused by name."""
    monkeypatch.setattr(arguments, "require_world", lambda what: SimpleNamespace(device=torch.device("cuda", 1)))
    for x in (torch.ones(3), torch.empty(3, device="meta")):
        with pytest.raises(InvalidArgumentError, match=rf"all_gather: x is on {x.device}, .* run on cuda:1"):
            arguments.check_device("all_gather", x, "auto")
        arguments.check_device("all_gather", x, "library")


def body_by_group() -> tuple[int, list[bool]]:
    """The ranks of a team and of the world are the same, but who may do the call is not."""
    size = triton_dist.world_size()
    team = triton_dist.make_team(range(size))
    x, kept = torch.ones(64 * size, device=triton_dist.device()), []
    outs = {
        "all_reduce": x.clone(),
        "all_gather": x.repeat(size),
        "reduce_scatter": x[:64].clone(),
        "broadcast": x.clone(),
        "all_to_all": x.clone(),
    }
    operators = {
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "broadcast": broadcast,
        "all_to_all": all_to_all,
    }
    for name, operator in operators.items():
        operator(x, out=outs[name], group=team)
    calls = Calls.here("a test", team)
    before = len(calls._prepared)
    for name, operator in operators.items():
        operator(x, out=outs[name])
        kept.append(len(calls._prepared))
    return before, kept


def test_a_call_of_a_team_is_not_one_of_a_process_group(everywhere):
    """A library may do the latter; ranks whose tensors lie otherwise would go there while the others do not."""
    assert triton_dist.simulate(body_by_group, world_size=2) == [(5, [6, 7, 8, 9, 10])] * 2


def test_two_threads_launch_the_same_call_with_tensors_of_their_own():
    launched, interval = [], sys.getswitchinterval()
    prepared = object.__new__(repeat._Prepared)
    prepared._places, prepared._values = [(0, 0), (1, 1)], [0, 0, 5]
    prepared._runner = lambda *values, stream: launched.append(values)

    def launch() -> None:
        given = torch.empty(4), torch.empty(4)
        kept.append(given)
        for _ in range(20_000):
            prepared.run(given, 0)

    kept: list = []
    threads = [threading.Thread(target=launch) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(launched) == {(x.data_ptr(), out.data_ptr(), 5) for x, out in kept} and len(launched) == 60_000
