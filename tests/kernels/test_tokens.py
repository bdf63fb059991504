"""Tokens to the ranks of their experts and back, against indexing, on every world size, dtypes and schedules; and twins."""

from __future__ import annotations

import importlib

import pytest
import torch
import triton.language as tl

import triton_dist
from tests.ops.twins import twin_of
from triton_dist import errors
from triton_dist.kernels.nvidia import all_to_all_post_process, create_all_to_all_context, fast_all_to_all

module = importlib.import_module("triton_dist.kernels.nvidia.all_to_all")
EXPERTS, MAX_M = 3, 40


def splits_of(rank: int, call: int, size: int) -> torch.Tensor:
    """Rows of each expert, some of them none, at most MAX_M in all."""
    generator = torch.Generator().manual_seed(100 * call + rank)
    most = MAX_M // (size * EXPERTS)
    return torch.randint(0, most + 1, (size * EXPERTS,), generator=generator) * (torch.rand(size * EXPERTS, generator=generator) < 0.7)


def rows_of(rank: int, call: int, size: int, hidden: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    count = int(splits_of(rank, call, size).sum())
    rows = torch.randint(-100, 100, (count, hidden), generator=torch.Generator().manual_seed(1000 * call + rank)).to(dtype)
    return rows, torch.arange(count, dtype=torch.float32) + 1000 * rank


def cumulated(splits: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([torch.zeros(1, dtype=dtype), splits.cumsum(0).to(dtype)])


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.cpu().view(torch.uint8), other.contiguous().view(torch.uint8))


def body(dtype: torch.dtype = torch.float32, hidden: int = 24, calls: int = 5, index: torch.dtype = torch.int32) -> bool:
    """One rank: what comes in, by expert, in several calls with other splits; every second one with scales."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    context = create_all_to_all_context(MAX_M, hidden, rank, size * EXPERTS, size, EXPERTS, dtype)
    kept, right = [], True
    for call in range(calls):
        rows, scale = rows_of(rank, call, size, hidden, dtype)
        cumsum = cumulated(splits_of(rank, call, size), index).to(device)
        splits, tokens, scales = fast_all_to_all(context, rows.to(device), cumsum, scale.to(device) if call % 2 else None)
        assert splits is not None and tokens is not None and (scales is not None) == bool(call % 2)
        kept.append((splits.clone(), *all_to_all_post_process(context, splits, tokens, scales)))
    for call, (splits, tokens, scales) in enumerate(kept):
        mine = slice(rank * EXPERTS, (rank + 1) * EXPERTS)
        theirs = [splits_of(peer, call, size) for peer in range(size)]
        parts = [slice(int(each[: mine.start].sum()), int(each[: mine.stop].sum())) for each in theirs]
        sent = [rows_of(peer, call, size, hidden, dtype) for peer in range(size)]
        right &= torch.equal(splits.cpu(), torch.cat([each[mine] for each in theirs]).int())
        right &= same(tokens, torch.cat([rows[part] for (rows, _), part in zip(sent, parts, strict=True)]))
        right &= scales is None or same(scales, torch.cat([scale[part] for (_, scale), part in zip(sent, parts, strict=True)]))
    context.finalize()
    return right


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("dtype", "hidden"), [(torch.bfloat16, 64), (torch.float32, 7), (torch.float8_e4m3fn, 5), (torch.int8, 66)])
def test_tokens_reach_their_experts(world, world_size, dtype, hidden):
    assert all(world(body, world_size, args=(dtype, hidden)))


def test_wide_indices_and_many_programs(world):
    assert all(world(body, 2, args=(torch.float32, 3000, 3, torch.int64)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", ["random", "straggler", "late"])
def test_on_every_schedule(seed, schedule):
    assert all(triton_dist.simulate(body, 3, seed=seed, schedule=schedule, check="all"))


def two_contexts() -> bool:
    """The second one's memory may be the first one's; its calls begin anew."""
    return all(body(calls=count) for count in (1, 2, 3))


def test_contexts_follow_each_other(world):
    assert all(world(two_contexts, 2))


def made(**changes) -> object:
    arguments = {"max_m": 8, "hidden": 4, "rank": triton_dist.rank(), "num_tot_experts": 4, "WORLD_SIZE": 2, "experts_per_rank": 2}
    return create_all_to_all_context(**{**arguments, "dtype": torch.float32, **changes})


def called(rows=(3, 4), dtype=torch.float32, cumsum=(5,), scale=None) -> None:
    fast_all_to_all(made(), torch.ones(rows, dtype=dtype), torch.zeros(cumsum, dtype=torch.int32), scale)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(WORLD_SIZE=3), "this is rank"),
        (lambda: made(rank=5), "rank 5 of 2"),
        (lambda: made(num_tot_experts=5), "num_tot_experts"),
        (lambda: made(hidden=0), "hidden=0"),
        (lambda: called((9, 4)), "at most 8 rows of 4"),
        (lambda: called((3, 5)), "at most 8 rows of 4"),
        (lambda: called(dtype=torch.int32), "torch.float32"),
        (lambda: called(cumsum=(4,)), "send_split_cumsum"),
        (lambda: called(scale=torch.ones(2)), "send_scale"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def splits_that_are_too_large() -> list[int]:
    """More rows than there are: nothing outside of a rank's part is written."""
    rank = triton_dist.rank()
    context = create_all_to_all_context(4, 2, rank, 2, 2, 1, torch.float32)
    cumsum = torch.tensor([0, 100, 200], dtype=torch.int32, device=triton_dist.device())
    _, tokens, _ = fast_all_to_all(context, torch.full((3, 2), 1.0 + rank, device=triton_dist.device()), cumsum, None)
    assert tokens is not None
    return tokens[:, 0].tolist()


def test_splits_beyond_the_rows_write_nothing_else(world):
    assert world(splits_that_are_too_large, 2) == [[1.0] * 3 + [0.0] + [2.0] * 3 + [0.0], [0.0] * 8]


def outcomes(monkeypatch, tmp_path, right: str, wrong: str, **options) -> set[object]:
    twin = twin_of(module, tmp_path, right, wrong)
    monkeypatch.setattr(module, "all_to_all_kernel", twin.all_to_all_kernel)
    seen: set[object] = set()
    for seed in range(6):
        try:
            seen.add(all(triton_dist.simulate(body, 3, seed=seed, **options)))
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("    meet(arrived, peer_arrived, index, SIZE, now, WORDS)\n", ""),
        ("slot = now % 2", "slot = now * 0"),
        ("end_call(epochs, now)", "end_call(epochs, now - 1)"),
    ],
)
def test_racy_twins_are_named(monkeypatch, tmp_path, right, wrong):
    assert outcomes(monkeypatch, tmp_path, right, wrong, check="race") == {"DataRaceError"}


def test_a_hanging_twin_is_named(monkeypatch, tmp_path):
    right = "meet(arrived, peer_arrived, index, SIZE, now, WORDS)"
    assert outcomes(monkeypatch, tmp_path, right, right.replace("now", "now + index")) == {"DeadlockError"}


@triton_dist.jit
def read_kernel(tokens, out, COUNT: tl.constexpr):
    offset = tl.arange(0, COUNT)
    tl.store(out + offset, tl.load(tokens + offset))


def test_a_result_that_is_read_behind_the_next_call_is_named():
    def late():
        rank, cumsum, out = triton_dist.rank(), torch.tensor([0, 4, 8], dtype=torch.int32), torch.zeros(16)
        context = create_all_to_all_context(8, 4, rank, 2, 2, 1, torch.float32)
        result = fast_all_to_all(context, torch.ones(8, 4), cumsum, None)[1]
        fast_all_to_all(context, torch.ones(8, 4), cumsum, None)
        read_kernel[(1,)](result, out, 16)
        fast_all_to_all(context, torch.ones(8, 4), cumsum, None)

    with pytest.raises(errors.DataRaceError, match="read_kernel"):
        triton_dist.simulate(late, 2, check="race")
