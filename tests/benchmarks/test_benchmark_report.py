"""The JSON file, the comparison in it, tables in documents, and the picture."""

import json
import math

import plot
import pytest
import tables
from harness.comparison import compare
from harness.plots import draw, share_points
from harness.results import CaseResult, MethodResult, Report, load, save
from harness.tables import case_line, plain_table, summary, update_document

TABLE = "before\n<!-- benchmark table: {} -->\n{}<!-- end of benchmark table -->\nafter\n"


def timed(name, kind, time, **facts):
    return MethodResult(name, kind, median_us=time, low_us=time, high_us=time, samples_us=[time] * 9, **facts)


def test_the_best_peer_is_the_fastest_that_is_right():
    methods = [timed("ours", "ours", 90.0), timed("slow", "peer", 200.0), timed("good", "peer", 100.0)]
    methods += [timed("wrong", "peer", 10.0, status="wrong"), timed("part", "part", 80.0), timed("ours:other", "variant", 1.0)]
    result = compare(methods, {"product": 80.0, "link": 40.0})
    assert (result.best_peer, result.ratio, result.bound_us, result.bound_by) == ("good", 0.9, 80.0, "product")
    assert result.share == pytest.approx(80 / 90)


def test_no_bound_without_all_of_its_parts():
    result = compare([timed("ours", "ours", 90.0)], {"product": None, "link": 40.0})
    assert result.bound_us is None and result.share is None and result.ratio is None


def test_ours_wrong_is_not_compared():
    result = compare([timed("ours", "ours", 90.0, status="wrong"), timed("peer", "peer", 100.0)], {"link": 1.0})
    assert result.best_peer == "peer" and result.ratio is None and result.share is None


def test_the_file_comes_back_as_it_was(report_path, tmp_path):
    report = load(report_path)
    assert len(report.cases) == 12 and report.cases[0].ours.name == "ours"
    save(report, tmp_path / "new" / "copy.json")
    assert load(tmp_path / "new" / "copy.json") == report
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy.json"]


def test_what_the_file_says_follows_from_its_samples(report_path):
    for case in load(report_path).cases:
        again = compare(case.methods, {case.comparison.bound_by: case.comparison.bound_us})
        assert again == case.comparison


def test_a_report_without_cases(tmp_path):
    report = Report("op", {"cards": ["x"], "date": "now"}, {}, {})
    save(report, tmp_path / "empty.json")
    assert load(tmp_path / "empty.json") == report
    assert plain_table(report) == "no case was measured"


def test_another_schema_is_refused(report_path, tmp_path):
    values = {**json.loads(report_path.read_text()), "schema": 99}
    (tmp_path / "new.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="has schema 99, but this version reads 1; measure again"):
        load(tmp_path / "new.json")


def test_the_summary_counts_losses_and_names_the_worst(report_path):
    text = summary(load(report_path))
    assert "eager: in 5 of 6 cases" in text and "graph: in 5 of 6 cases" in text
    assert "the worst is 1.300" in text and "wrong results: torch-fused" in text
    assert "1 of 2 reach 0.95 of the bound, the lowest 0.90" in text and "us of host time" in text


def test_a_run_that_ended_early_says_so(report_path):
    report = load(report_path)
    report.complete, report.left_out = False, ["a", "b"]
    assert "Left out: 2 cases, and what came after the run ended early." in summary(report)


def test_a_line_of_progress_names_what_does_not_count(report_path):
    case = next(case for case in load(report_path).cases if any(method.status == "wrong" for method in case.methods))
    assert "torch-fused wrong (relative error" in case_line(case)
    empty = CaseResult("s", {"M": 1}, "bf16", 2, "eager", [], compare([], {}))
    assert case_line(empty) == "s M=1 eager: ours left out"


def test_a_table_is_written_and_checked(report_path, tmp_path, capsys):
    document = tmp_path / "README.md"
    (tmp_path / "report.json").write_text(report_path.read_text())
    document.write_text(TABLE.format("report.json mode=graph M=64,4096", ""))
    assert tables.main([str(document), "--check"]) == 1
    assert "not current" in capsys.readouterr().out
    assert tables.main([str(document)]) == 0
    text = document.read_text()
    lines = [line for line in text.splitlines() if line.startswith("| large") or line.startswith("| small")]
    assert len(lines) == 4 and text.startswith("before\n") and text.endswith("after\n")
    assert "| not captured |" in text and "eager: in 5 of 6" in text  # the summary is of all cases
    assert tables.main([str(document), "--check"]) == 0
    document.write_text(text.replace("| large |", "| larger |", 1))
    assert tables.main([str(document), "--check"]) == 1


def test_a_document_without_tables_is_current(tmp_path):
    document = tmp_path / "README.md"
    document.write_text("nothing here\n")
    assert tables.main([str(document), "--check"]) == 0


@pytest.mark.parametrize(
    "marker, message",
    [
        ("report.json mode=none", "no case of the file fits"),
        ("report.json color=red", r"\['color'\] can't choose cases"),
        ("report.json graph", "must be name=value"),
        ("dry.json", "is a dry run; its times must not be shown"),
    ],
)
def test_a_table_that_can_not_be_shown(marker, message, report_path, dry_report_path, tmp_path):
    (tmp_path / "report.json").write_text(report_path.read_text())
    document = tmp_path / "README.md"
    document.write_text(TABLE.format(marker, ""))
    with pytest.raises(ValueError, match=message):
        update_document(document)
    assert tables.main([str(document), "--check"]) == 2


def test_a_table_without_its_end(report_path, tmp_path):
    document = tmp_path / "README.md"
    document.write_text("<!-- benchmark table: report.json -->\ntext\n")
    with pytest.raises(ValueError, match="1 tables begin but 0 have both markers"):
        update_document(document)


def test_the_picture(report_path, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "report.json").write_text(report_path.read_text())
    assert plot.main([str(tmp_path / "report.json")]) == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"report_eager.png", "report_graph.png"}
    assert all(path.stat().st_size > 10_000 for path in tmp_path.glob("*.png"))
    with pytest.raises(SystemExit):
        plot.main([str(tmp_path / "report.json"), "--output", str(tmp_path / "one.png")])


def test_no_picture_without_a_bound(report_path, tmp_path):
    report = load(report_path)
    for case in report.cases:
        case.comparison.bound_us = None
    with pytest.raises(ValueError, match="no case of mode 'graph' with a bound"):
        draw(report, "graph", tmp_path / "x.png")


def test_a_line_has_a_gap_where_a_method_does_not_count(report_path):
    cases = [case for case in load(report_path).cases if case.mode == "eager" and case.shape == "large"]
    points = share_points(list(reversed(cases)), "torch-fused")
    assert [size for size, *_ in points] == [64, 512, 4096]
    assert [math.isnan(share) for _, share, _, _ in points] == [False, True, False]
    assert all(low <= share <= high for _, share, low, high in points if not math.isnan(share))


def test_columns_of_variants_and_of_the_best_peer(report_path, tmp_path):
    methods = [timed("ours", "ours", 6.0), timed("ours:ll", "variant", 5.0)]
    methods += [timed(name, "peer", time) for name, time in (("nccl", 12.0), ("one-shot", 7.5), ("two-shot", 8.0))]
    case = CaseResult("all_reduce", {"bytes": 8192}, "bf16", 4, "graph", methods, compare(methods, {"link": 1.0}))
    report = Report("collectives", {"cards": ["x"], "date": "now"}, {}, {}, [case])
    save(report, tmp_path / "report.json")
    document = tmp_path / "page.md"
    document.write_text(TABLE.format("report.json bytes=8192 variants=shown", ""))
    heading, _, row = update_document(document).splitlines()[2:5]
    assert heading == (
        "| shape | bytes | mode | ours, us | ours:ll | nccl | one-shot | two-shot | best peer | ours / best peer | share of bound | error |"
    )
    assert row.startswith("| all_reduce | 8 KiB | graph | 6.0 [6.0, 6.0] | 5.0 | 12.0 | 7.5 | 8.0 | one-shot | 0.800")
    document.write_text(TABLE.format("report.json variants=no", ""))
    with pytest.raises(ValueError, match="it can be variants=shown"):
        update_document(document)
    document.write_text(TABLE.format("report.json", ""))
    assert "ours:ll" not in update_document(document)
