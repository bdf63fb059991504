"""Results are kept in a folder of the test, not in the user's."""

from __future__ import annotations

import pytest

from triton_dist.tools.autotune import store


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(store.DIRECTORY, str(tmp_path / "results"))
    return tmp_path / "results"
