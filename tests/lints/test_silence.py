"""Comments that silence a code on a line."""

from pathlib import Path

import pytest

from triton_dist.lints import silenced


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("x = 1  # td: ignore[TD101]", "TD101", True),
        ("x = 1  # td:ignore[TD102, TD101]", "TD101", True),
        ("x = 1  # why not. td: ignore[TD101]", "TD101", False),
        ("x = 1  # td: ignore[TD1011]", "TD101", False),
        ("x = 1  # td: ignore[]", "TD101", False),
        ("x = 1", "TD101", False),
    ],
)
def test_silenced(tmp_path: Path, text: str, code: str, expected: bool) -> None:
    file = tmp_path / "source.py"
    file.write_text(f"\n{text}\n")
    assert silenced(str(file), 2, code) is expected
    assert not silenced(str(file), 1, code)


def test_a_place_that_is_not_known_silences_nothing() -> None:
    assert not silenced(None, None, "TD101")
    assert not silenced("/no/such/file.py", 3, "TD101")
