"""benchmarks/calibrate.py and benchmarks/predict.py, on the simulator's own GPU."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from triton_dist.sim.gpus import GPUS

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
pytestmark = pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor.*:FutureWarning")


@pytest.fixture
def benchmark_module(monkeypatch):
    """Imports a module of benchmarks/ by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for name in ("calibrate", "predict", "persistent_gemm"):
        sys.modules.pop(name, None)


def test_the_measurements_find_the_costs_of_the_simulated_gpu(benchmark_module):
    calibrate = benchmark_module("calibrate")
    known = GPUS["h100"].costs
    other = replace(
        known, link=200.0, link_per_sm=30.0, copy_engine=180.0, hbm=2000.0, collective=150.0, signal_ns=4000.0, notify_ns=900.0,
        wait_ns=700.0, remote_ns=1500.0, launch_ns=5000.0, copy_start_ns=3000.0, event_ns=2000.0,
        matrix_flop_per_ns={**known.matrix_flop_per_ns, "fp16": 5000.0, "fp8": 9000.0},
    )  # fmt: skip
    found = json.loads(json.dumps(calibrate.simulated(3, replace(GPUS["h100"], costs=other))))
    costs = calibrate.fit(found)
    for kind in ("fp16", "fp8"):
        assert costs["matrix_flop_per_ns"][kind] == pytest.approx(other.matrix_flop_per_ns[kind], rel=0.05)
    for name in ("hbm", "link", "copy_engine", "collective", "link_per_sm", "launch_ns", "copy_start_ns", "event_ns", "torch_ns"):
        assert costs[name] == pytest.approx(getattr(other, name), rel=0.05), name
    for name in ("signal_ns", "notify_ns", "wait_ns", "local_ns", "remote_ns", "stream_write_ns"):
        assert costs[name] == pytest.approx(getattr(other, name), rel=0.02), name
    assert costs["l2_per_sm"] == pytest.approx(other.l2_per_sm, rel=0.1)


def test_a_fitted_entry_replaces_the_one_in_the_source(benchmark_module, tmp_path):
    calibrate = benchmark_module("calibrate")
    source = tmp_path / "cost_model.py"
    source.write_text(calibrate.COST_MODEL.read_text())
    calibrate.update("H100", calibrate.entry("H100", {"hbm": 1234.5}), source)
    namespace: dict = {"__name__": "triton_dist.sim.cost_model_copy"}
    sys.modules[namespace["__name__"]] = type(sys)("copy")  # dataclasses look their module up
    try:
        exec(compile(source.read_text().replace("from ..", "from triton_dist."), str(source), "exec"), namespace)  # noqa: S102
    finally:
        del sys.modules[namespace["__name__"]]
    assert namespace["H100"].hbm == 1234.5
    assert namespace["H100"].link == GPUS["h100"].costs.link
    with pytest.raises(SystemExit, match="H300"):
        calibrate.update("H300", "", source)


def test_predictions_are_within_a_quarter_of_what_was_measured(benchmark_module):
    """On the probes of AG+GEMM: a method of which no number went into the costs."""
    predict = benchmark_module("predict")
    cases = predict.read_measured(predict.RESULTS / "ag_gemm_probes_h100.json")
    assert len(cases) == 4
    for shape, measured, rotate in cases:
        (predicted,) = predict.predict(shape, ["overlapped"], rotate_mib=rotate).values()
        assert abs(predicted / measured["overlapped"] - 1) < predict.WITHIN


def test_results_of_the_benchmark_are_read(benchmark_module, tmp_path):
    """Of two modes the graph's time counts; what failed does not."""
    predict = benchmark_module("predict")

    def case(mode: str, us: float) -> dict:
        methods = [{"name": "cublas", "status": "measured", "median_us": us}, {"name": "ours", "status": "wrong", "median_us": 1.0}]
        sizes = {"M": 256, "N": 512, "K": 1024}
        return {"shape": "x", "sizes": sizes, "dtype": "bf16", "world_size": 2, "mode": mode, "methods": methods}

    path = tmp_path / "ag_gemm.json"
    path.write_text(json.dumps({"settings": {"rotate_mib": 100}, "cases": [case("graph", 20.0), case("eager", 30.0)]}))
    assert predict.read_measured(path) == [(predict.Shape(256, 512, 1024, "bf16", 2), {"cublas": 20.0}, 100.0)]


def test_the_program_prints_and_writes_its_predictions(benchmark_module, tmp_path, capsys, monkeypatch):
    predict = benchmark_module("predict")
    monkeypatch.setattr(predict, "PROJECTIONS", (("small", 512, 2048),))
    measured = tmp_path / "measured.json"
    methods = [{"name": name, "status": "measured", "median_us": 50.0} for name in ("overlapped", "nccl+cublas", "ours", "copy-all-gather")]
    sizes = {"M": 512, "N": 256, "K": 512}
    case = {"shape": "x", "sizes": sizes, "dtype": "bf16", "world_size": 2, "mode": "graph", "methods": methods}
    measured.write_text(json.dumps({"cases": [case]}))
    predict.main([str(measured), "--worlds", "3", "--output", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out
    assert "512 x 256 x 512 bf16, 2 ranks | overlapped" in printed
    assert "Predicted, not measured" in printed
    written = json.loads((tmp_path / "out.json").read_text())
    assert {row["method"] for row in written["compared"]} == {"overlapped", "nccl+cublas", "ours", "copy-all-gather"}
    assert written["predicted"] and all(row["measured_us"] is None and row["predicted_us"] > 0 for row in written["predicted"])
