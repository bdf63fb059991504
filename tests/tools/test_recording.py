"""The page of the tools: each row's files are there, and a recording of GPUs goes into its place."""

from __future__ import annotations

import re

import pytest

from tests.gpu.record_tools import EXAMPLES, PAGE, ROOT, reasons, recorded


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert len(links) >= 3 * len(EXAMPLES) and all((PAGE.parent / link).exists() for link in links)
    assert all((ROOT / "examples" / file).exists() for file, _ in EXAMPLES.values())


def test_a_recording_replaces_the_one_before():
    page = PAGE.read_text()
    once = recorded(page, "### autotune\nfirst\\1\n")
    assert "first\\1" in once and recorded(once, "second") == recorded(page, "second")
    with pytest.raises(ValueError, match="0 places for a recording"):
        recorded("no page", "text")


def test_of_a_failure_the_error_is_told():
    lines = ["Traceback", "[rank0]: triton_dist.errors.HeapFullError: full", "torch.distributed...ChildFailedError:", "===="]
    assert reasons(lines) == [lines[1]] and reasons(["one", "two"]) == ["one", "two"]
