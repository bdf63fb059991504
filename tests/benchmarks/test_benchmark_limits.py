"""The budget, the watchdog, the check of a product, and the link's arithmetic."""

import math
import subprocess
import sys
import time

import pytest
import torch
from harness.correctness import reference_rows, relative_error, sample_rows, tolerance_of
from harness.limits import TIMEOUT_EXIT, Budget
from harness.link import transfer_us

from .conftest import ROOT


def test_a_budget_leaves_out_what_would_not_end_in_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = Budget(10)
    assert budget.has_room()
    with budget.case():
        now[0] += 4
    assert budget.has_room()
    with budget.case():
        now[0] += 3
    assert budget.spent == 7 and not budget.has_room()  # 7 and the longest, 4
    assert Budget(None).has_room()


def test_the_watchdog_ends_a_step_that_hangs_and_names_it():
    code = "import time\nfrom harness.limits import Watchdog\nwith Watchdog(0.2, 3).watch('m, graph'): time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=60)
    assert done.returncode == TIMEOUT_EXIT
    assert "rank 3: m, graph took more than 0.2 s; giving up" in done.stderr and "Thread" in done.stderr


@pytest.mark.parametrize("rows, count", [(1, 16), (2, 16), (5, 3), (100, 16)])
def test_sampled_rows_have_both_ends_of_every_shard(rows, count):
    sampled = sample_rows(rows, 3, count, seed=0)
    assert sampled == sorted(set(sampled)) and sampled == sample_rows(rows, 3, count, seed=0)
    for shard in range(3):
        mine = [row for row in sampled if row // rows == shard]
        assert {shard * rows, (shard + 1) * rows - 1} <= set(mine) and len(mine) <= max(count, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_right_product_passes_and_one_wrong_element_does_not(dtype):
    torch.manual_seed(0)
    a, b = torch.randn(64, 96).to(dtype), torch.randn(96, 5000).to(dtype)
    sampled = sample_rows(16, 4, 8, seed=1)
    expected = reference_rows(a[sampled], b)
    result = (a.double() @ b.double()).to(dtype)
    assert 0 < relative_error(result, sampled, expected) < tolerance_of(dtype) / 1.5
    result[sampled[5], 4999] += 0.2 * float(expected.std())
    assert relative_error(result, sampled, expected) > tolerance_of(dtype)


def test_one_element_that_was_not_written_is_found_in_any_row():
    a, b = torch.randn(64, 8), torch.randn(8, 8)
    sampled = sample_rows(16, 4, 4, seed=0)
    result = a @ b
    result[next(row for row in range(64) if row not in sampled), 3] = float("nan")
    assert math.isnan(relative_error(result, sampled, reference_rows(a[sampled], b)))


def test_time_of_a_transfer():
    assert transfer_us({"pull": 350.0, "push": 400.0}, 400e6) == pytest.approx(1000)
    assert transfer_us({}, 1e9) is None
