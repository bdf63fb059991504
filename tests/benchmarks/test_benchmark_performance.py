"""The summary over all operators and the list of lost cases: what they say of given results, and that those of the project are current."""

from __future__ import annotations

import pytest
import tables
from harness import performance
from harness.choices import chosen_method
from harness.comparison import compare
from harness.performance import Reason, losses_table, outcomes_of, reasons_of, summary_table, update_text, why
from harness.results import CaseResult, MethodResult, Report, save

from tests.mutation.targets import ROOT

RESULTS = ROOT / "benchmarks" / "results"
SIZES = (1024, 4096, 65536, 1 << 20)


def case_of(shape: str, sizes: dict[str, int], ours: float, peer: float, mode: str = "graph", size: int = 2) -> CaseResult:
    methods = [
        MethodResult(name, kind, median_us=time, low_us=time, high_us=time, samples_us=[time] * 9)
        for name, kind, time in (("ours", "ours", ours), ("nccl", "peer", peer), ("slow", "peer", 2 * peer))
    ]
    return CaseResult(shape, sizes, "bf16", size, mode, methods, compare(methods, {}))


def report_of(operator: str, cases: list[CaseResult], **facts) -> Report:
    return Report(operator, {"cards": ["2 x GPU"], "date": "now"}, {}, {}, cases=cases, complete=True, **facts)


@pytest.fixture
def folder(tmp_path):
    """Results of two operators: all_reduce loses at the second and third of its sizes, gemm_rs nowhere."""
    times = (0.5, 1.1, 1.25, 0.9)
    collectives = [case_of("all_reduce", {"bytes": size}, 100 * time, 100.0) for size, time in zip(SIZES, times, strict=True)]
    collectives.append(case_of("all_reduce", {"bytes": 1024}, 300.0, 100.0, mode="eager"))
    save(report_of("collectives", collectives), tmp_path / "a.json")
    save(report_of("gemm_rs", [case_of("model-mlp", {"M": 64, "N": 4096, "K": 512}, 90.0, 100.0)]), tmp_path / "b.json")
    (tmp_path / "other.json").write_text('{"rows": []}')
    return tmp_path


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_summary_has_a_row_for_each_operator_and_mode(folder):
    graph, eager, product = cells(summary_table(outcomes_of(folder)))
    assert graph[:3] == ["`all_reduce`", "2 x GPU", "graph"] and graph[5:7] == ["2 of 4", "4 KiB to 64 KiB"]
    assert graph[3] == "0.500 [0.500, 0.500] at 1 KiB" and graph[4] == "1.250 [1.250, 1.250] at 64 KiB"
    assert eager[2] == "eager" and eager[5:7] == ["1 of 1", "1 KiB"]
    assert product[0] == "`gemm_rs`" and product[5:] == ["0 of 1", "", ""]


def test_every_lost_case_is_listed_with_what_runs_and_why(folder):
    (folder / "reasons.toml").write_text('[[reason]]\noperator = "all_reduce"\nmode = "graph"\nleast = 5000\ntext = "because"\n')
    rows = cells(losses_table(outcomes_of(folder), reasons_of(folder)))
    assert [(row[1], row[3], row[-1]) for row in rows] == [
        ("4 KiB", "graph", "not known"),
        ("64 KiB", "graph", "because"),
        ("1 KiB", "eager", "not known"),
    ]
    assert rows[1][4:9] == ["125.0 [125.0, 125.0]", "nccl", "100.0", "1.250 [1.250, 1.250]", "`ll`"]


def test_without_a_loss_it_says_so(folder):
    assert losses_table([one for one in outcomes_of(folder) if not one.lost], []) == "No case is lost."


def test_a_document_is_written_anew_between_its_markers(folder):
    empty = "before\n<!-- performance {}: . mode=graph -->\nold\n<!-- end of performance {} -->\nafter\n"
    updated = update_text(empty.format("summary", "summary") + empty.format("losses", "losses"), folder, "a document")
    assert "old" not in updated and updated.startswith("before\n<!-- perf") and updated.endswith("after\n")
    assert "eager" not in updated and updated.count("all_reduce") == 1 + 2
    assert update_text(updated, folder, "a document") == updated
    with pytest.raises(ValueError, match="a document: 1 performance tables begin but 0 have both markers"):
        update_text("<!-- performance summary: . -->\n<!-- end of performance losses -->\n", folder, "a document")


def test_the_command_finds_what_is_not_current(folder, capsys):
    document = folder / "page.md"
    document.write_text("<!-- performance losses: . -->\n<!-- end of performance losses -->\n")
    assert tables.main([str(document), "--check"]) == 1 and "not current" in capsys.readouterr().out
    assert tables.main([str(document)]) == 0 and tables.main([str(document), "--check"]) == 0


def test_what_must_not_be_shown_is_refused(folder):
    save(report_of("gemm_rs", [], dry_run=True), folder / "c.json")
    with pytest.raises(ValueError, match="is a dry run"):
        outcomes_of(folder)
    (folder / "c.json").unlink()
    (folder / "reasons.toml").write_text('[[reason]]\nsize = 3\ntext = "x"\n')
    with pytest.raises(ValueError, match=r"reasons.toml: .*size"):
        reasons_of(folder)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no results"):
        outcomes_of(tmp_path)


def test_reasons_fit_by_operator_mode_peer_shape_and_size(folder):
    one = next(one for one in outcomes_of(folder) if one.operator == "gemm_rs")
    fitting = [Reason("x"), Reason("x", operator="gemm_rs", peer="nccl", shape="mlp", least=64, most=64)]
    others = [Reason("x", operator="gemm_ar"), Reason("x", peer="slow"), Reason("x", shape="attention"), Reason("x", least=65)]
    assert all(reason.fits(one.operator, one.case) for reason in fitting)
    assert not any(reason.fits(one.operator, one.case) for reason in [*others, Reason("x", mode="eager"), Reason("x", most=63)])
    assert why([Reason("first", shape="mlp"), Reason("second")], one) == "first"


def test_what_runs_is_what_the_operators_choose():
    """The choice at a size on GPUs with a library; the operators' own tests say what it is."""
    sizes = {"M": 256, "N": 4096, "K": 7168}
    products = [chosen_method(name, case_of("x", sizes, 1.0, 1.0, size=4)) for name in ("ag_gemm", "gemm_rs", "gemm_ar")]
    assert products[0] in ("fused", "pipelined", "split") and products[2] == "two_shot"
    assert chosen_method("gemm_rs", case_of("x", {"M": 512, "N": 12288, "K": 12288}, 1.0, 1.0, size=4)) == "library"
    small = case_of("all_reduce", {"bytes": 1024}, 1.0, 1.0)
    assert chosen_method("all_reduce", small) == "ll" and chosen_method("tp_mlp", small) == ""


def test_every_reason_of_the_project_is_that_of_a_lost_case():
    lost = [one for one in outcomes_of(RESULTS) if one.lost]
    reasons = reasons_of(RESULTS)
    used = {why(reasons, one) for one in lost}
    assert reasons and [reason.text for reason in reasons if reason.text not in used] == []


def test_the_project_shows_all_operators_and_its_pages_are_current():
    """What ``make performance`` would write is what stands there (the tables of single operators: test_benchmark_ag_gemm)."""
    for name in ("README.md", "docs/performance.md"):
        text = (ROOT / name).read_text()
        assert update_text(text, (ROOT / name).parent, name) == text, f"{name} is not current; run: make performance"
        assert "<!-- performance summary: " in text
    readme = (ROOT / "README.md").read_text()
    for operator in ("ag_gemm", "gemm_rs", "gemm_ar", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        assert f"| `{operator}` |" in readme
    assert performance.GOAL == 1.02, "README.md names it"
