"""What ``check`` takes for lints, and what their errors have."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import triton_dist
from triton_dist import simulate
from triton_dist.errors import DataRaceError, InvalidArgumentError, MisuseError
from triton_dist.lints import Finding
from triton_dist.sim.check import LintCheck, RaceCheck


@triton_dist.jit
def masked_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    value = tl.load(x + offset, mask=offset < count)
    tl.store(out, tl.sum(value))
    tl.store(out + 1, tl.max(value))


@triton_dist.jit
def fill_kernel(out):
    tl.store(out, tl.program_id(0))


def sum_and_race() -> None:
    out = torch.zeros(2)
    masked_kernel[(1,)](torch.ones(100), out, 100, BLOCK=128)
    fill_kernel[(2,)](out)


def test_the_first_finding_ends_the_run():
    with pytest.raises(MisuseError, match=r"test_options\.py:\d+: TD112 masked-value \(in masked_kernel, on rank 0\)") as caught:
        simulate(sum_and_race, 1, check="lint")
    (finding,) = caught.value.findings
    assert isinstance(finding, Finding)
    assert caught.value.code == finding.code == "TD112"
    assert (finding.kernel, finding.rank) == ("masked_kernel", 0)


def test_findings_are_collected_one_for_each_line():
    with pytest.raises(MisuseError, match="2 findings") as caught:
        simulate(sum_and_race, 2, check=LintCheck(collect=True))
    assert [finding.code for finding in caught.value.findings] == ["TD112", "TD112"]
    with pytest.raises(MisuseError) as caught:
        simulate(sum_and_race, 2, check=LintCheck(collect=True, limit=1))
    assert len(caught.value.findings) == 1


def test_codes_can_be_left_out():
    simulate(sum_and_race, 1, check=LintCheck(ignore=["TD112"]))


def test_races_are_reported_where_they_are_asked_for():
    with pytest.raises(DataRaceError) as caught:
        simulate(sum_and_race, 1, check=[RaceCheck(), LintCheck(ignore=["TD112"])])
    assert caught.value.races[0].code == caught.value.code == "TD101"


def test_what_was_collected_comes_with_the_error_that_ends_the_run():
    with pytest.raises(DataRaceError) as caught:
        simulate(sum_and_race, 1, check=[RaceCheck(), LintCheck(collect=True)])
    assert [finding.code for finding in caught.value.findings] == ["TD112", "TD112"]
    assert any("TD112" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("ignore", [["TD999"], "TD112", [3]])
def test_other_codes_are_refused(ignore):
    with pytest.raises(InvalidArgumentError, match="ignore="):
        LintCheck(ignore=ignore)


@pytest.mark.parametrize("limit", [0, True, 2.5])
def test_a_bad_limit_is_refused(limit):
    with pytest.raises(InvalidArgumentError, match="LintCheck"):
        LintCheck(limit=limit)


def test_a_run_for_its_time_is_not_checked():
    with pytest.raises(InvalidArgumentError, match="use 'data'"):
        simulate(sum_and_race, 1, check="lint", execute="timing")
