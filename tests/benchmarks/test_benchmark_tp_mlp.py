"""The benchmark of the MLP block, dry: all of its code but CUDA's events and graphs, on the simulator."""

import pytest
import tp_mlp
from harness.models import BLOCKS, Block
from harness.results import load

from triton_dist.layers import TPMLP


def dry(tmp_path, *words):
    path = tmp_path / "out.json"
    tp_mlp.main(["--dry-run", "--dry-ranks", "2", "--rounds", "6", "--json", str(path), *words])
    return load(path)


@pytest.mark.parametrize(("form", "rows", "names"), [([], 8, tp_mlp.METHODS), (["--replicated"], 7, tp_mlp.REPLICATED)])
def test_every_method_of_a_block_is_run_and_checked(form, rows, names, tmp_path):
    report = dry(tmp_path, "--rows", "7", *form)
    assert report.complete and report.operator == " ".join(["tp_mlp", *(word[2:] for word in form)])
    assert [case.sizes for case in report.cases] == [{"M": rows, "H": 48, "I": 48}] * 2
    for case in report.cases:
        assert {method.name: method.status for method in case.methods} == dict.fromkeys(names, "measured")
        assert 0 < case.ours.error < case.ours.tolerance
        assert case.comparison.best_peer is not None and case.comparison.bound_us > 0


def test_a_wrong_block_is_marked_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(TPMLP, "forward", lambda self, x, out: out.copy_(x))
    report = dry(tmp_path, "--mode", "eager", "--methods", "ours", "nccl+cublas")
    assert report.cases[0].ours.status == "wrong" and report.cases[0].comparison.ratio is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "fp8"], "invalid choice"),
        (["--shapes", "llama3-8b-mlp"], "invalid choice"),
        (["--methods", "magic"], "--methods magic"),
    ],
)
def test_bad_arguments_of_a_block(words, message, capsys):
    with pytest.raises(SystemExit):
        tp_mlp.main(words)
    assert message in capsys.readouterr().err


def test_the_blocks_of_the_models():
    assert BLOCKS["llama3-70b"] == Block(8192, 28672, True) and BLOCKS["gpt3-175b"] == Block(12288, 49152, False)
    assert BLOCKS["llama3-8b"] == Block(4096, 14336, True) and BLOCKS["qwen3-32b"] == Block(5120, 25600, True)
