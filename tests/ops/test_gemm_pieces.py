"""gemm_rs and gemm_ar in pieces, "pipelined", against torch in float64; and what their twins do wrong.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from tests.ops.test_gemm_rs import SCHEDULES, TOLERANCE, body, matrix, operands_of, reference_of
from tests.ops.twins import twin_of
from tests.pairs import every_pair
from triton_dist import errors
from triton_dist.ops import gemm_ar, gemm_rs
from triton_dist.ops.gemm import ar_pipeline, epilogues
from triton_dist.ops.gemm.pieces import Cuts
from triton_dist.ops.gemm.scatter_plan import MAX_PIECES

BOTH = pytest.mark.parametrize("operator", [gemm_rs, gemm_ar])


@pytest.mark.parametrize(("rows", "size"), [(2, 2), (3, 3), (7, 3), (50, 4), (1001, 8)])
def test_pieces_are_all_rows_and_none_is_empty(rows, size):
    for count in range(1, min(MAX_PIECES, rows // size) + 1):
        cuts = Cuts(rows, size, count)
        parts = sorted((cuts.rows_of(piece, owner) for piece in range(count) for owner in range(size)), key=lambda part: part.start)
        assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])] and parts[-1].stop == rows
        places = [[cuts.place(piece, owner) for piece in range(count)] for owner in range(size)]
        assert all(place.start < place.stop <= cuts.height for block in places for place in block)
        assert all(before.stop == after.start for block in places for before, after in zip(block, block[1:], strict=False))


@pytest.mark.parametrize(
    ("operator", "dtype", "world_size", "count"),
    [
        (operator, dtype, *sizes)
        for operator, dtype, sizes in every_pair(
            [gemm_rs, gemm_ar],
            [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn],
            [(1, 3), (2, 2), (2, 8), (3, 3), (4, 2), (8, 5)],
        )
    ],
)
def test_sums_in_pieces_match_torch(world, world_size, count, dtype, operator):
    options = {"method": "pipelined", "pieces": count}
    found = world(body, world_size, args=(operator, 50, 37, 70, dtype), kwargs=options, seed=count)
    assert max(found) < TOLERANCE[dtype]


def of_any_rows(rows: int, count: int, calls: int = 3) -> tuple[float, list[torch.Tensor]]:
    """gemm_ar of a number of rows that ranks can't share equally."""
    rank, device, results = triton_dist.rank(), triton_dist.device(), []
    for call in range(calls):
        a, b = (operand.to(device) for operand in operands_of(rank, call, rows, 40, 24, torch.bfloat16))
        bias, added = matrix(7, 1, 40, torch.bfloat16)[0].to(device), matrix(8, rows, 40, torch.bfloat16).to(device)
        out = gemm_ar(a, b, bias=bias, method="pipelined", pieces=count, epilogue=epilogues.add(added))
        reference = reference_of(gemm_ar, call, rows, 40, 24, torch.bfloat16)
        results.append((out, reference + bias.cpu().double() + added.cpu().double()))
    return max(relative_error(out, reference) for out, reference in results), [out.cpu() for out, _ in results]


@pytest.mark.parametrize(("world_size", "rows", "count"), [(2, 2, 1), (2, 51, 3), (3, 100, 8), (4, 31, 8), (8, 17, 2)])
def test_every_rank_has_the_same_bits(world, world_size, rows, count):
    """Pieces that are not alike, a bias, and an epilogue that is told its place."""
    found = world(of_any_rows, world_size, args=(rows, count), seed=rows)
    assert max(error for error, _ in found) < TOLERANCE[torch.bfloat16]
    first = found[0][1]
    assert all(torch.equal(mine, theirs) for _, results in found for mine, theirs in zip(results, first, strict=True))


def of_changing_sizes(operator) -> float:
    """Calls of other sizes and other numbers of pieces, back to back, on memory that they share."""
    worst = []
    for rows, columns, count in ((12, 33, 3), (40, 17, 1), (12, 33, 2), (64, 40, 8), (12, 33, 3)):
        worst.append(body(operator, rows, columns, 20, torch.float32, calls=2, method="pipelined", pieces=count))
    return max(worst)


@BOTH
@pytest.mark.parametrize("world_size", [2, 3])
def test_pieces_of_changing_sizes(world, world_size, operator):
    assert max(world(of_changing_sizes, world_size, args=(operator,))) < TOLERANCE[torch.float32]


def in_turns() -> float:
    """Both operators on one stream, which share slots and signals."""
    return max(body(operator, 20, 24, 16, torch.float32, calls=2, method="pipelined", pieces=2) for operator in (gemm_ar, gemm_rs) * 3)


@pytest.mark.parametrize("world_size", [2, 3])
def test_both_sums_in_pieces_share_memory(world, world_size):
    assert max(world(in_turns, world_size)) < TOLERANCE[torch.float32]


@BOTH
@pytest.mark.parametrize("world_size", [2, 3])
def test_pieces_are_silent_under_the_checks(world_size, operator):
    for seed, schedule in SCHEDULES:
        options = {"method": "pipelined", "pieces": 3, "calls": 4}
        arguments = (operator, 16, 48, 64, torch.bfloat16)
        found = triton_dist.simulate(body, world_size, args=arguments, kwargs=options, seed=seed, schedule=schedule, check="race")
        assert max(found) < TOLERANCE[torch.bfloat16]


TWINS = {
    "sums are copied before they have come": (
        "signal_batch([Wait(space.summed[piece, owner], 1), Write(space.summed[piece, owner], 0)], space.fetch_stream)",
        "signal_batch([Write(space.summed[piece, owner], 0)], space.fetch_stream)",
    ),
    "the word stays set, so the next call copies too early": (
        "signal_batch([Wait(space.summed[piece, owner], 1), Write(space.summed[piece, owner], 0)], space.fetch_stream)",
        "signal_batch([Wait(space.summed[piece, owner], 1)], space.fetch_stream)",
    ),
    "a sum is sent before it is there": ("space.share_stream.wait_event(adding.record_event())", "pass"),
    "the word is set ahead of the sum": (
        "            copy_async(target, out[cuts.rows_of(piece, index)], space.share_stream)\n"
        "            write_value(space.peer_summed[owner][piece, index], 1, space.share_stream)\n",
        "            write_value(space.peer_summed[owner][piece, index], 1, space.share_stream)\n"
        "            copy_async(target, out[cuts.rows_of(piece, index)], space.share_stream)\n",
    ),
    "the result is given out before the last sums are in it": (
        "for other in (space.share_stream, space.fetch_stream):",
        "for other in (space.share_stream,):",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_racy_twins_of_pieces_are_named(monkeypatch, tmp_path, name):
    operator = importlib.import_module("triton_dist.ops.gemm.gemm_ar")
    monkeypatch.setattr(operator, "pipelined", twin_of(ar_pipeline, tmp_path, *TWINS[name]).pipelined)
    assert "DataRaceError" in outcomes_of_twin()


def outcomes_of_twin() -> Iterator[str]:
    """What goes wrong, schedule by schedule: "wrong", "right" or the name of an error. Who has seen enough need not ask for all."""
    for seed, schedule in SCHEDULES:
        options = {"method": "pipelined", "pieces": 3, "calls": 3}
        arguments = (gemm_ar, 16, 48, 64, torch.bfloat16)
        try:
            found = triton_dist.simulate(body, 3, args=arguments, kwargs=options, seed=seed, schedule=schedule, check="race")
            yield "wrong" if max(found) > 1e-2 or any(map(math.isnan, found)) else "right"
        except (errors.DataRaceError, errors.DeadlockError) as error:
            yield type(error).__name__


def test_a_hanging_twin_of_pieces_is_named(monkeypatch, tmp_path):
    operator = importlib.import_module("triton_dist.ops.gemm.gemm_ar")
    right = "            write_value(space.peer_summed[owner][piece, index], 1, space.share_stream)\n"
    monkeypatch.setattr(operator, "pipelined", twin_of(ar_pipeline, tmp_path, right, "").pipelined)
    with pytest.raises(errors.DeadlockError, match="summed"):
        triton_dist.simulate(body, 2, args=(gemm_ar, 16, 48, 64, torch.bfloat16), kwargs={"method": "pipelined", "pieces": 2})
