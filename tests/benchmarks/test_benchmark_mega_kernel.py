"""The benchmark of a decoding step in one kernel, dry: all but CUDA's events and graphs and ``torch.compile``, on the simulator."""

import mega_kernel
import pytest
import torch
from harness.results import load

from triton_dist.mega_triton_kernel import ModelBuilder


def dry(tmp_path, ranks, *words):
    path = tmp_path / "out.json"
    mega_kernel.main(
        ["--dry-run", "--dry-ranks", str(ranks), "--rounds", "6", "--context", "70", "--layers", "2", "--json", str(path), *words]
    )
    return load(path)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_method_of_a_step_is_run_and_checked(ranks, tmp_path):
    report = dry(tmp_path, ranks, "--rows", "3", "--mode", "eager", "--methods", *mega_kernel.METHODS, *mega_kernel.VARIANTS)
    assert report.complete and report.operator == "mega_kernel"
    (case,) = report.cases
    assert case.sizes == {"M": 3, "layers": 2, "context": 70}
    # torch.compile does not run on simulated ranks.
    names = {*mega_kernel.METHODS, *mega_kernel.VARIANTS} - {"torch-compiled"}
    assert {method.name: method.status for method in case.methods} == dict.fromkeys(names, "measured")
    assert 0 < case.ours.error < case.ours.tolerance
    assert case.comparison.best_peer == "torch" and case.comparison.bound_us > 0


def test_a_wrong_step_is_marked_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(ModelBuilder, "make_silu_mul_up", lambda self, x, out, layer_id: out.zero_())
    report = dry(tmp_path, 1, "--rows", "1", "--mode", "eager", "--methods", "ours", "torch")
    assert report.cases[0].ours.status == "wrong" and report.cases[0].comparison.ratio is None


def test_what_is_read_is_all_that_a_step_needs():
    model = mega_kernel.MODELS["dry"]
    layer = mega_kernel.make_layer(torch.device("cpu"), model, 3, 70, 2, 0, torch.float32)
    heads = (model.heads + 2 * model.kv_heads) // 2 * model.head_dim
    weights = heads * model.hidden + model.hidden * model.heads // 2 * model.head_dim + 3 * model.intermediate // 2 * model.hidden
    caches = 2 * 3 * 128 * model.kv_heads // 2 * model.head_dim
    assert sum(tensor.numel() for tensor in layer.streamed()) == weights + caches
