"""The benchmarks of GEMM + reduce-scatter and GEMM + all-reduce, dry: all of their code but CUDA's events and graphs, on the simulator."""

import gemm_ar
import gemm_rs
import pytest
from harness import row_parallel
from harness.results import load

import triton_dist.ops

SCRIPTS = pytest.mark.parametrize("script", [gemm_rs, gemm_ar], ids=["gemm_rs", "gemm_ar"])


def dry(script, tmp_path, *words):
    path = tmp_path / "out.json"
    script.main(["--dry-run", "--dry-ranks", "2", "--rounds", "6", "--json", str(path), *words])
    return load(path)


@SCRIPTS
def test_every_method_of_a_sum_is_run_and_checked(script, tmp_path):
    report = dry(script, tmp_path, "--rows", "7", "--variants")
    rows = 8 if script.OPERATOR.scattered else 7
    assert report.complete and [case.sizes["M"] for case in report.cases] == [rows] * 2
    for case in report.cases:
        states = {method.name: method.status for method in case.methods}
        assert set(states) == {*script.METHODS, *script.VARIANTS}
        assert set(states.values()) == {"measured"}
        assert 0 < case.ours.error < case.ours.tolerance
        assert case.comparison.best_peer is not None and case.comparison.bound_us > 0


@SCRIPTS
def test_a_wrong_sum_is_marked_wrong(script, tmp_path, monkeypatch):
    name = script.OPERATOR.name
    monkeypatch.setitem(vars(triton_dist.ops), name, lambda a, b, out, method="auto": out.zero_())
    report = dry(script, tmp_path, "--mode", "eager", "--methods", "ours", "nccl+cublas")
    assert report.cases[0].ours.status == "wrong" and report.cases[0].comparison.ratio is None


@SCRIPTS
def test_fp8_sums(script, tmp_path, monkeypatch):
    """The library's product needs a GPU, so it is replaced."""
    monkeypatch.setattr(row_parallel, "multiply", lambda a, b, out, one: out.copy_(a.float() @ b.float()))
    report = dry(script, tmp_path, "--mode", "eager", "--dtype", "fp8", "--methods", "ours")
    assert report.cases[0].ours.status == "measured" and report.cases[0].ours.error > 0


@SCRIPTS
@pytest.mark.parametrize(
    "words, message",
    [
        (["--rows", "0"], "there is at least one row"),
        (["--methods", "ours", "magic"], "--methods magic: not one of ours nccl"),
        (["--shapes", "gpt5"], "invalid choice"),
    ],
)
def test_bad_arguments_of_sums(script, words, message, capsys):
    with pytest.raises(SystemExit):
        script.main(words)
    assert message in capsys.readouterr().err


def test_the_row_parallel_shapes_of_the_models():
    sizes = {name: (shape.depth // 4, shape.columns) for name, shape in row_parallel.SHAPES.items()}
    assert sizes["llama3-8b-mlp"] == (3584, 4096) and sizes["llama3-8b-attention"] == (1024, 4096)
    assert sizes["llama3-70b-mlp"] == (7168, 8192) and sizes["llama3-70b-attention"] == (2048, 8192)
    assert sizes["qwen3-32b-mlp"] == (6400, 5120) and sizes["qwen3-32b-attention"] == (2048, 5120)
    assert sizes["gpt3-175b-mlp"] == (12288, 12288) and sizes["gpt3-175b-attention"] == (3072, 12288)


@SCRIPTS
def test_methods_for_few_rows_are_left_out_of_large_cases(script, monkeypatch):
    monkeypatch.setattr(gemm_ar.dist, "get_world_size", lambda: 4)
    names = [*script.METHODS, *script.VARIANTS]
    small, large = ({name for name in names if script.fits(name, rows, 8192)} for rows in (8, 16384))
    assert small - large == {"ours:small", "ours:split"} | ({"torch-one-shot"} if script is gemm_ar else set())
