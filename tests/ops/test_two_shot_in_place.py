"""all_reduce by two_shot of tensors in symmetric memory: read and written where they are, wherever that is on each rank; and its twins."""

from __future__ import annotations

import importlib
import itertools

import pytest
import torch
import torch.distributed as dist

import triton_dist
from tests.ops.test_all_reduce import FLOATS, INTEGERS, expected_of, same_bits, tensor_of
from tests.ops.test_low_latency_collectives import kernels_of
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.ops import all_reduce
from triton_dist.ops.collectives.places import in_place
from triton_dist.ops.collectives.plans import Plan
from triton_dist.ops.team import find_team

module = importlib.import_module("triton_dist.ops.collectives.two_shot")
operator = importlib.import_module("triton_dist.ops.collectives.all_reduce")
COUNTS = (16, 1024, 17, 4096, 6000, 1040, 16)
"""Elements. Of 17 none can be in place: the second rank's part would end within a word of 16 bytes."""
MOST = 6144
KINDS = ("same", "apart", "elsewhere", "mixed", "input", "output")


class Memory:
    """A rank's memory of one dtype: symmetric, in which each test takes its tensors at places of its own, and ordinary."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.symmetric = [triton_dist.symm_zeros((4 * MOST,), dtype) for _ in range(2)]
        self.ordinary = [torch.zeros(MOST, dtype=dtype, device=triton_dist.device()) for _ in range(2)]

    def tensors(self, kind: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Input and output. kind: one of ``KINDS``."""
        rank, (first, second), (x, out) = triton_dist.rank(), self.symmetric, (memory[:count] for memory in self.ordinary)
        if kind == "same":
            return first[:count], first[:count]
        if kind == "apart":
            return first[:count], second[:count]
        if kind == "elsewhere":  # at another offset in each rank's heap
            place = self.symmetric[rank % 2][16 * (rank + 1) :][:count]
            return place, place if rank % 3 else self.symmetric[1 - rank % 2][64 * rank :][:count]
        if kind == "mixed":  # each rank in its own way
            return [(first[:count], first[:count]), (x, x), (first[:count], out), (x, first[:count])][rank % 4]
        return (first[:count], out) if kind == "input" else (x, first[:count])


def body(kinds=KINDS, dtype: torch.dtype = torch.float32, op: str = "sum", counts=COUNTS) -> list[str]:
    """One rank: calls back to back that use the same memory again; what was wrong, also behind the tensors."""
    rank, size, memory, calls = triton_dist.rank(), triton_dist.world_size(), Memory(dtype), []
    for number, (count, kind) in enumerate(itertools.product(counts, kinds)):
        x, out = memory.tensors(kind, count)
        behind = [torch.empty(0)] * 2
        for tensor in (x, out):
            if tensor.untyped_storage().nbytes() > MOST * dtype.itemsize:  # what lies behind it belongs to others
                torch.as_strided(tensor, (16,), (1,), tensor.storage_offset() + count).fill_(3)
        x.copy_(tensor_of(rank, number, (count,), dtype))
        result = all_reduce(x, op=op, out=out, method="two_shot")
        behind = [
            torch.as_strided(tensor, (16,), (1,), tensor.storage_offset() + count).clone()
            for tensor in (x, out)
            if tensor.untyped_storage().nbytes() > MOST * dtype.itemsize
        ]
        calls.append((result.clone(), number, count, kind, behind, None if x.data_ptr() == out.data_ptr() else x.clone()))
    wrong = []
    for result, number, count, kind, behind, kept in calls:
        if not same_bits(result, expected_of(size, number, (count,), dtype, op)):
            wrong.append(f"{kind}, {count} elements")
        if any((elements.float() != 3).any() for elements in behind):
            wrong.append(f"{kind}, {count} elements: it wrote behind its output")
        if kept is not None and not same_bits(kept, tensor_of(rank, number, (count,), dtype)):
            wrong.append(f"{kind}, {count} elements: it wrote its input")
    return wrong


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_sums_in_place(world, dtype, world_size):
    counts = COUNTS if dtype == torch.float32 else (1024, 17, 1040)
    assert world(body, world_size, args=(KINDS, dtype, "sum", counts), seed=world_size) == [[]] * world_size


@pytest.mark.parametrize(("op", "dtype"), [("avg", torch.bfloat16), ("max", torch.int32), ("min", torch.float16)])
def test_other_reductions_in_place(world, op, dtype):
    assert world(body, 3, args=(KINDS, dtype, op, (1024, 16))) == [[]] * 3


def test_more_ranks_than_are_unrolled_in_place():
    assert triton_dist.simulate(body, 17, args=(("elsewhere", "mixed"), torch.bfloat16, "sum", (1024, 16))) == [[]] * 17


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", ["random", "pct", "late", "straggler"])
def test_in_place_on_every_schedule(schedule, seed):
    arguments = (KINDS, torch.float32, "sum", (1024, 4096, 16))
    assert triton_dist.simulate(body, 4, args=arguments, seed=seed, schedule=schedule, check="race") == [[]] * 4


@pytest.mark.parametrize("world_size", [2, 3])
def test_nothing_is_found_in_place(world_size):
    assert triton_dist.simulate(body, world_size, args=(KINDS, torch.float16, "sum", (4096, 17)), check="all") == [[]] * world_size


def in_a_graph() -> list[float]:
    """On a GPU a graph of calls on one buffer, replayed; elsewhere the calls again. The sums of ones are powers of the number of ranks."""
    device, x = triton_dist.device(), triton_dist.symm_zeros((8192,))

    def calls() -> None:
        for _ in range(3):
            all_reduce(x, out=x, method="two_shot")

    replay = calls
    if device.type == "cuda":
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            calls()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            calls()
        replay = graph.replay
    seen = []
    for _ in range(3):
        x.fill_(1)
        replay()
        seen += [x.min().item(), x.max().item()]
    return seen


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_graph_of_sums_in_place_is_replayed(world, world_size):
    assert world(in_a_graph, world_size) == [[float(world_size**3)] * 6] * world_size


def of_a_team() -> list[float]:
    rank, device = triton_dist.rank(), triton_dist.device()
    team = triton_dist.make_team([2, 0] if rank % 2 == 0 else [3, 1])
    mine, all_ranks = triton_dist.symm_zeros((32,), group=team), triton_dist.symm_zeros((32,))
    assert in_place(mine, find_team(team, "test")) and not in_place(mine, find_team(None, "test"))
    seen = []
    for x, group in ((mine, team), (all_ranks, team), (mine, None), (torch.empty(32, device=device), team)):
        x.fill_(rank + 1.0)
        seen.append(all_reduce(x, out=x, group=group, method="two_shot")[31].item())
    return seen


def test_sums_of_teams_in_place(world):
    """Memory that only some of the ranks have is staged where others are to read it."""
    assert world(of_a_team, 4) == [[4.0, 4.0, 10.0, 4.0], [6.0, 6.0, 10.0, 6.0]] * 2


def what_is_in_place() -> list[bool]:
    team, memory = find_team(None, "test"), triton_dist.symm_zeros((64,))
    candidates = (memory, memory[4:20], memory[1:17], memory[:17], memory[::2], torch.zeros(64), triton_dist.symm_peer(memory, 1))
    return [in_place(tensor, team) for tensor in candidates]


def test_what_can_be_read_in_place():
    """Not: an odd address, a number that ends within a word, strides, ordinary memory, another rank's."""
    assert triton_dist.simulate(what_is_in_place, 2)[0] == [True, True, False, False, False, False, False]


def by_choice(count: int, placed: bool) -> None:
    x = triton_dist.symm_zeros((count,)) if placed else torch.zeros(count)
    all_reduce(x, out=x)


def test_auto_takes_two_shot_for_symmetric_tensors(monkeypatch):
    assert kernels_of(monkeypatch, by_choice, 2, (1 << 19, True)) == {"two_shot_kernel"}
    assert kernels_of(monkeypatch, by_choice, 2, (1 << 19, False)) == {"one_shot_kernel"}
    assert kernels_of(monkeypatch, by_choice, 2, (1 << 10, True)) == {"low_latency_kernel"}
    methods = {operator.choose_method(1 << power, size, placed=True) for power in range(4, 31) for size in (2, 4, 8)}
    assert methods == {"ll", "two_shot"} and operator.choose_method(1 << 30, 1, placed=True) == "one_shot"


def adopted() -> list[float]:
    from torch.distributed import _symmetric_memory

    dist.init_process_group("nccl")
    theirs = _symmetric_memory.empty(64, dtype=torch.float32, device=triton_dist.device())
    x = triton_dist.symm_adopt(theirs)
    assert in_place(x, find_team(None, "test"))
    x.fill_(triton_dist.rank() + 1.0)
    return all_reduce(x, out=x, method="two_shot")[::63].tolist()


def test_memory_of_torchs_symmetric_memory_that_was_adopted():
    """On simulated ranks only: on GPUs torch_symm_program hands memory over."""
    assert triton_dist.simulate(adopted, 2) == [[3.0, 3.0]] * 2


def for_other_operators() -> float:
    x = triton_dist.symm_full((4, 32), triton_dist.rank() + 1.0, torch.bfloat16)
    module.reduce_in_place(x, find_team(None, "test"), None, "sum", Plan("two_shot", 2, 4, 4096)).run()
    return x[3, 31].item()


def test_the_launch_for_other_operators(world):
    assert world(for_other_operators, 3) == [6.0] * 3


def refused(kind: str) -> None:
    memory = triton_dist.symm_zeros((64,))
    x = {"ordinary": torch.zeros(64), "odd": memory[1:17], "short": memory[:8]}[kind]
    module.reduce_in_place(x, find_team(None, "test"), None)


@pytest.mark.parametrize("kind", ["ordinary", "odd", "short"])
def test_other_memory_is_refused(kind):
    with pytest.raises(errors.NotSymmetricError, match="can't be reduced in place: it has to lie in this rank's symmetric memory"):
        triton_dist.simulate(refused, 2, args=(kind,))


def again(kind: str) -> bool:
    """Calls on one buffer whose writing and reading nothing orders but the calls."""
    rank, size, memory, right = triton_dist.rank(), triton_dist.world_size(), Memory(torch.int32), []
    for number in range(5):
        x, out = memory.tensors(kind, 64)
        x.copy_(tensor_of(rank, number, (64,), torch.int32))
        right.append((all_reduce(x, out=out, method="two_shot").clone(), number))
    return all(same_bits(out, expected_of(size, number, (64,), torch.int32, "sum")) for out, number in right)


def outcomes(monkeypatch, tmp_path, kind: str, right: str, wrong: str) -> set[str]:
    monkeypatch.setattr(module, "two_shot_kernel", twin_of(module, tmp_path, right, wrong).two_shot_kernel)
    seen = set()
    for seed, schedule in [(seed, schedule) for seed in range(3) for schedule in ("random", "straggler")]:
        try:
            results = triton_dist.simulate(again, 4, args=(kind,), seed=seed, schedule=schedule, check="race")
            seen.add("right" if all(results) else "wrong")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


FIRST, SECOND = "meet_at_places(places, telling, now, source, target, SIZE, WORDS)", "meet_again(done, ending, now, SIZE, WORDS)"


@pytest.mark.parametrize("kind", ["same", "apart", "mixed"])
def test_twins_that_do_not_meet_again_are_named(monkeypatch, tmp_path, kind):
    """A peer may still read what this rank writes next, or has not yet written what it reads."""
    assert outcomes(monkeypatch, tmp_path, kind, SECOND, "now") == {"DataRaceError"}


def test_a_twin_that_adds_up_what_may_not_be_there_is_named(monkeypatch, tmp_path):
    """It is content with the words of the call before; in the first call there are none, and their place is nowhere."""
    found = outcomes(monkeypatch, tmp_path, "same", FIRST, FIRST.replace("now", "now - 1"))
    assert found and found.isdisjoint({"right", "wrong"})


def test_a_twin_that_writes_where_it_should_read_is_caught(monkeypatch, tmp_path):
    found = outcomes(monkeypatch, tmp_path, "apart", "places + size, ELEMENT, SIZE", "places, ELEMENT, SIZE")
    assert found and "right" not in found


def test_a_twin_that_counts_alone_hangs(monkeypatch, tmp_path):
    assert outcomes(monkeypatch, tmp_path, "same", SECOND, SECOND.replace("now", "now + index")) == {"DeadlockError"}
