"""The page as text: what is embedded, and that nothing of the user's is markup."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from tests.report import programs
from tests.report.recorded import finding, made_up, record_of
from triton_dist.errors import DataRaceError
from triton_dist.sim.report_page.columns import columns
from triton_dist.sim.report_page.page import embedded, page

pytestmark = pytest.mark.host_code

EVIL = "</script><script>document.title='harmed'</script><!--<img src=x onerror=alert(1)>&amp;\u2028"


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def elements(text: str) -> list[tuple[str, dict]]:
    parser = Elements()
    parser.feed(text)
    return parser.found


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="record">(.*?)</script>', text, re.DOTALL)[1])


def test_the_events_come_back():
    record = record_of(programs.race, raises=DataRaceError, check="race")
    data = data_of(page(record))
    assert data == json.loads(json.dumps(columns(record)))
    events = data["events"]
    assert {len(column) for column in events.values()} == {len(record.events)}
    for number, event in enumerate(record.events):
        assert data["kinds"][events["kind"][number]] == event.kind
        assert data["texts"][events["name"][number]] == event.name
        assert tuple(data["rows"][events["row"][number]]) == event.row
        assert events["begin"][number] == round(event.begin) and events["first"][number] == event.first
    (race,) = data["findings"]
    for side in race["sides"]:
        file, line = data["places"][side["place"]]
        assert "inbox" in data["files"][file]["text"].splitlines()[line - 1]


def test_user_text_is_no_markup():
    record = made_up(30, name=EVIL, findings=(finding(EVIL, EVIL, 1, 1),), sources={EVIL: EVIL})
    text = page(record)
    plain = page(made_up(30, findings=(finding("x", "y", 1, 1),), sources={"y": "z"}))
    assert [tag for tag, _ in elements(text)] == [tag for tag, _ in elements(plain)]
    data = data_of(text)
    assert EVIL in data["texts"] and data["files"][0] == {"name": EVIL, "text": EVIL}


def test_embedded_json_ends_no_element():
    text = embedded({"</script>": ["<!--", "]]>", "\u2028"]})
    assert "<" not in text and ">" not in text and text.isascii()
    assert json.loads(text) == {"</script>": ["<!--", "]]>", "\u2028"]}


def test_the_page_needs_nothing_else():
    text = page(made_up(30))
    without_data = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"https?:|@import|url\(|import\s*\(|fetch\(|XMLHttpRequest", without_data)
    tags = [tag for tag, attributes in elements(text) if "src" in attributes or (tag == "link" and attributes["href"] != "data:,")]
    assert tags == []
    policy = next(attributes["content"] for tag, attributes in elements(text) if attributes.get("http-equiv"))
    assert "default-src 'none'" in policy


def test_ids_that_scripts_ask_for_are_there():
    text = page(made_up(30))
    ids = {attributes["id"] for _, attributes in elements(text) if "id" in attributes}
    asked = set(re.findall(r'getElementById\("([\w-]+)"\)', text))
    assert asked <= ids and {"canvas", "filter", "finding-list", "details"} <= asked


def test_numbers_are_small():
    """About 60 bytes an event."""
    assert len(page(made_up(30_000))) < 80 * 30_000
