"""Puts the page together."""

from __future__ import annotations

import html
import json
from pathlib import Path

from ..recording.record import Record
from .columns import columns

_FOLDER = Path(__file__).parent
_SCRIPTS = ("model.js", "layout.js", "paint.js", "source.js", "panel.js", "main.js")


def page(record: Record) -> str:
    """The text of the file. Texts of the user's reach the document as JSON, from which scripts make text nodes, and never as markup."""
    scripts = "\n".join(_read(name) for name in _SCRIPTS)
    parts = {
        "<!-- title -->": html.escape(f"triton_dist: {_verdict(record)}"),
        "/* style */": _read("page.css"),
        "/* script */": f'(() => {{\n"use strict";\n{scripts}\n}})();',
        "/* record */": embedded(columns(record)),
    }
    text = _read("page.html")
    for mark, part in parts.items():
        before, found, after = text.partition(mark)
        assert found, f"page.html has no {mark}"
        text = before + part + after
    return text


def embedded(value: object) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins a comment."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str).replace("<", "\\u003c").replace(">", "\\u003e")


def _verdict(record: Record) -> str:
    if not record.findings:
        return f"a run of {record.world_size} ranks"
    first = record.findings[0]
    return first.title if first.kind != "error" else first.text.partition("\n")[0]


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
