"""The benchmark of AG+GEMM, dry: all of its code but CUDA's events and graphs, on the simulator."""

import argparse

import ag_gemm
import pytest
import tables
import torch
from harness.results import load

import triton_dist.ops

from .conftest import ROOT


def dry(tmp_path, *words):
    path = tmp_path / "out.json"
    ag_gemm.main(["--dry-run", "--rounds", "6", "--json", str(path), *words])
    return load(path)


def test_every_method_is_run_and_checked(tmp_path, capsys):
    report = dry(tmp_path, "--dry-ranks", "2", "--rows", "7", "1")
    assert report.complete and report.dry_run and report.settings["rounds"] == 6
    assert [(case.sizes["M"], case.mode) for case in report.cases] == [(8, "eager"), (8, "graph"), (2, "eager"), (2, "graph")]
    for case in report.cases:
        states = {method.name: method.status for method in case.methods}
        assert set(states) == set(ag_gemm.METHODS) and set(states.values()) == {"measured"}
        assert 0 < case.ours.error < case.ours.tolerance and case.method("nccl-all-gather").error == 0
        assert case.comparison.best_peer in ("nccl+cublas", "torch-fused") and case.comparison.bound_us > 0
    text = capsys.readouterr().out
    assert "A dry run: these are not times of a GPU." in text


def test_a_wrong_operator_is_marked_wrong(tmp_path, monkeypatch):
    monkeypatch.setitem(vars(triton_dist.ops), "ag_gemm", lambda a, b, out: out.zero_())
    report = dry(tmp_path, "--mode", "eager", "--methods", "ours", "nccl+cublas", "--dry-ranks", "2")
    assert report.cases[0].ours.status == "wrong" and report.cases[0].comparison.ratio is None


def test_a_spent_budget_names_what_was_left_out(tmp_path, capsys):
    report = dry(tmp_path, "--budget", "0", "--rows", "4", "8", "--dry-ranks", "2")
    assert report.cases == [] and report.left_out == ["dry M=4 N=48 K=48 bf16", "dry M=8 N=48 K=48 bf16"]
    assert "left out, --budget 0 was spent: dry M=4" in capsys.readouterr().out


def test_one_rank_has_no_link(tmp_path):
    report = dry(tmp_path, "--dry-ranks", "1", "--mode", "eager", "--methods", "ours", "nccl+cublas", "cublas")
    assert report.link == {} and report.cases[0].comparison.bound_by == "cublas"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--rows", "0"], "there is at least one row"),
        (["--methods", "ours", "magic"], "--methods magic: not one of ours nccl"),
        (["--rounds", "5"], "5 rounds give no interval; at least 6"),
        (["--shapes", "gpt5"], "invalid choice"),
    ],
)
def test_bad_arguments(words, message, capsys):
    with pytest.raises(SystemExit):
        ag_gemm.parse(words)
    assert message in capsys.readouterr().err


def test_the_shapes_of_the_models():
    sizes = {name: (shape.columns // 4, shape.depth) for name, shape in ag_gemm.SHAPES.items()}
    assert sizes["llama3-8b-mlp"] == (7168, 4096) and sizes["llama3-8b-attention"] == (1536, 4096)
    assert sizes["llama3-70b-mlp"] == (14336, 8192) and sizes["llama3-70b-attention"] == (2560, 8192)
    assert sizes["qwen3-32b-mlp"] == (12800, 5120) and sizes["qwen3-32b-attention"] == (2560, 5120)
    assert sizes["gpt3-175b-mlp"] == (12288, 12288) and sizes["gpt3-175b-attention"] == (9216, 12288)
    arguments = ag_gemm.parse([])
    assert "dry" not in arguments.shapes and len(arguments.shapes) == 8 and arguments.rows == list(ag_gemm.ROWS)


def test_the_heap_holds_every_gathered_a():
    arguments = ag_gemm.parse(["--shapes", "llama3-8b-mlp", "gpt3-175b-mlp", "--rows", "1", "16384"])
    assert ag_gemm.heap_size(arguments) > 2 * (16384 + 4) * (4096 + 12288) * 2
    assert ag_gemm.heap_size(argparse.Namespace(heap_gib=2.5)) == 5 * 2**29


def test_the_methods_of_the_operator_are_found(monkeypatch):
    import importlib

    operator = importlib.import_module("triton_dist.ops.gemm.ag_gemm")
    monkeypatch.setattr(operator, "METHODS", ("auto", "fused", "nccl"), raising=False)
    monkeypatch.setattr(operator, "ag_gemm", lambda a, b, *, out, method="auto": torch.matmul(a, b, out=out))
    assert ag_gemm.our_variants() == ("ours:fused", "ours:nccl")
    monkeypatch.setattr(operator, "ag_gemm", lambda a, b, *, out: out)
    assert ag_gemm.our_variants() == ()


def test_tables_of_our_documents_are_current():
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
    assert tables.main([*map(str, documents), "--check"]) == 0


def test_without_a_gpu_it_says_what_to_do():
    if torch.cuda.is_available():
        pytest.skip("for machines without a GPU")
    with pytest.raises(SystemExit, match="--dry-run"):
        ag_gemm.main([])
