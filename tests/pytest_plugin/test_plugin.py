"""The pytest plug-in, in sessions of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib import util

import pytest
import torch

import triton_dist

pytest_plugins = "pytester"

RACY = """
    import pytest, torch, triton, triton.language as tl
    import triton_dist, triton_dist.language as dl

    @triton.jit
    def pass_on_kernel(inbox, signals, out, ANNOUNCE: tl.constexpr):
        lanes = tl.arange(0, 64)
        tl.store(dl.symm_at(inbox, (dl.rank() + 1) % dl.num_ranks()) + lanes, dl.rank() + lanes)
        if ANNOUNCE:
            dl.notify(signals, (dl.rank() + 1) % dl.num_ranks(), comm_scope="intra_node")
            dl.wait(signals, 1, "sys", "acquire")
        tl.store(out + lanes, tl.load(inbox + lanes))

    def pass_on(announce):
        inbox, signals = triton_dist.symm_zeros((64,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
        out = torch.zeros(64, dtype=torch.int32, device=triton_dist.device())
        pass_on_kernel[(1,)](inbox, signals, out, announce)
        triton_dist.synchronize()
        return out

    @pytest.mark.ranks(2)
    def test_announced():
        before = (triton_dist.rank() - 1) % triton_dist.world_size()
        assert (pass_on(True) == before + torch.arange(64)).all()

    @pytest.mark.ranks(2{more})
    def test_racy():
        pass_on(False)
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """``run(text, *options)``: a session over one file with that text."""

    def session(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        # In a process of its own: pytester would import the package a second time in this one.
        return pytester.runpytest_subprocess("-p", "triton_dist.pytest_plugin", "-p", "no:cacheprovider", *options)

    return session


def test_a_body_runs_on_each_rank(run, pytester):
    result = run("""
        import os, pathlib, pytest, triton_dist

        @pytest.mark.ranks(3, heap_size=1 << 22, gpu="a100", num_nodes=3)
        def test_ranks(tmp_path, td_world_size, td_seed):
            assert (triton_dist.world_size(), td_world_size, td_seed) == (3, 3, 0)
            assert os.environ["LOCAL_WORLD_SIZE"] == "1"
            pathlib.Path("ranks.txt").open("a").write(f"{triton_dist.rank()} ")

        def test_here(td_world_size):
            assert td_world_size == 0
    """)
    result.assert_outcomes(passed=2)
    assert sorted((pytester.path / "ranks.txt").read_text().split()) == ["0", "1", "2"]


def test_numbers_of_ranks_parameters_and_seeds_are_tests(run):
    result = run(
        """
        import pytest, triton_dist

        @pytest.mark.ranks(1, 2)
        @pytest.mark.parametrize("letter", ["a", "b"])
        def test_letters(letter, td_world_size):
            assert triton_dist.world_size() == td_world_size and letter in "ab"

        @pytest.mark.ranks(2, seed=7)
        def test_its_seed(td_seed):
            assert td_seed == 7

        def test_plain():
            pass
        """,
        "--td-seeds", "2", "-v",
    )  # fmt: skip
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines_random(["*test_letters?2ranks-seed1-b? PASSED*", "*test_its_seed PASSED*", "*test_plain PASSED*"])


def test_ranks_have_tensors_of_their_own(run):
    run("""
        import pytest, torch, triton_dist

        @pytest.fixture
        def tensors():
            return {"x": torch.ones(4), "more": [torch.zeros(2)], "seen": set()}

        @pytest.mark.ranks(3)
        def test_sums(tensors):
            tensors["x"] += triton_dist.rank()
            tensors["more"][0] -= triton_dist.rank()
            triton_dist.synchronize()
            assert tensors["x"].tolist() == [1 + triton_dist.rank()] * 4
            assert tensors["more"][0].tolist() == [-triton_dist.rank()] * 2

        def test_the_fixture_is_as_it_was(tensors):
            assert tensors["x"].tolist() == [1] * 4
    """).assert_outcomes(passed=2)


def test_a_failure_says_how_it_ran_and_how_it_runs_again(run):
    result = run(
        """
        import pytest, triton_dist

        class TestRanks:
            @pytest.mark.ranks(1, 2, schedule="straggler", check=None)
            def test_one(self):
                assert triton_dist.rank() == 0
        """,
        "--td-seeds", "2",
    )  # fmt: skip
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*assert 1 == 0*",
            "*- simulated ranks -*",
            "2 ranks, seed 1, schedule straggler, check none",
            "raised by rank 1 of 2",
            "again by: pytest '*::TestRanks::test_one?2ranks-seed1?' --td-seeds 2",
        ]
    )
    assert "simulate.py" not in result.stdout.str(), "frames of the package are not shown"


@pytest.mark.parametrize(
    ("more", "options", "failed"), [("", (), 1), ("", ("--td-check", "all"), 1), ("", ("--td-check", "none"), 0), (", check=None", (), 0)]
)
def test_races_are_looked_for(run, more, options, failed):
    result = run(RACY.replace("{more}", more), *options, "--td-schedule", "random")
    result.assert_outcomes(passed=2 - failed, failed=failed)
    if failed:
        result.stdout.fnmatch_lines(["*DataRaceError: data race on inbox*", "2 ranks, seed 0, schedule random, check *"])


def test_each_test_has_a_fresh_heap(run):
    run("""
        import pytest, torch, triton_dist

        @pytest.mark.ranks(2, heap_size=1 << 23)
        @pytest.mark.parametrize("time", range(4))
        def test_half_of_the_heap(time):
            words = triton_dist.symm_zeros((1 << 20,), torch.int32)
            assert not words.any()
            words.fill_(1)
    """).assert_outcomes(passed=4)


def test_skips_and_expected_errors(run):
    run("""
        import pytest, triton_dist

        @pytest.mark.ranks(2)
        def test_skips():
            pytest.skip("not today")

        @pytest.mark.xfail(raises=ZeroDivisionError)
        @pytest.mark.ranks(2)
        def test_fails():
            1 / 0

        @pytest.mark.ranks(2)
        def test_raises():
            with pytest.raises(ZeroDivisionError):
                1 / 0
    """).assert_outcomes(skipped=1, xfailed=1, passed=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "say on how many ranks"),
        ("0", "0 is no number of ranks"),
        ("128", "128 is no number of ranks"),
        ("True", "True is no number of ranks"),
        ("'2'", "'2' is no number of ranks"),
        ("2, nodes=2", "nodes= is not known; there are gpu, num_nodes"),
    ],
)
def test_a_marker_that_says_nothing_useful(run, arguments, said):
    result = run(f"import pytest\n@pytest.mark.ranks({arguments})\ndef test_it():\n    pass\n")
    assert result.ret != 0 and said in result.stdout.str() + result.stderr.str()


def test_a_number_of_seeds_that_runs_nothing(run):
    result = run("def test_it():\n    pass\n", "--td-seeds", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "at least one seed" in result.stderr.str()


def test_a_wrong_argument_of_simulate_is_the_tests_failure(run):
    result = run("import pytest\n@pytest.mark.ranks(2, gpu='abacus')\ndef test_it():\n    pass\n")
    result.assert_outcomes(failed=1)
    assert "InvalidArgumentError" in result.stdout.str() and "abacus" in result.stdout.str()


@pytest.mark.skipif(util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_tests_may_be_spread_over_processes(pytester):
    pytester.makepyfile("import pytest\n@pytest.mark.ranks(2, 3)\ndef test_it():\n    pass\n")
    result = pytester.runpytest_subprocess("-p", "triton_dist.pytest_plugin", "-n", "2", "--td-seeds", "2")
    result.assert_outcomes(passed=4)


def test_start_up_is_light():
    code = """
import sys
import triton_dist.pytest_plugin
print([name for name in ("torch", "triton", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "[]", done.stderr


def test_other_projects_tests_are_left_alone(run):
    """A session without the marker loads nothing more, and strict markers know the new one."""
    result = run(
        """
        import pytest, sys

        @pytest.mark.parametrize("value", [1])
        def test_it(value):
            assert value == 1
        """,
        "--strict-markers", "--markers",
    )  # fmt: skip
    result.stdout.fnmatch_lines(["*@pytest.mark.ranks(*world_sizes, gpu=*"])


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_this_project_uses_it(dtype, td_world_size):
    part = torch.full((4,), triton_dist.rank(), dtype=dtype)
    whole = triton_dist.ops.all_gather(part)
    assert whole.tolist() == [rank for rank in range(td_world_size) for _ in range(4)]
