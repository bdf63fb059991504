"""The benchmarks are scripts, run from their own folder; the tests find them there."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture
def report_path():
    """A report with made-up times: two shapes, three sizes, both modes; one peer wrong in one case, one not captured in graphs."""
    return Path(__file__).parent / "synthetic_report.json"


@pytest.fixture
def dry_report_path(report_path, tmp_path):
    """The same, marked as a dry run."""
    values = {**json.loads(report_path.read_text()), "dry_run": True}
    path = tmp_path / "dry.json"
    path.write_text(json.dumps(values))
    return path
