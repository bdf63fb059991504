"""Messages of a rank come whole, or not at all."""

from __future__ import annotations

import io
import sys

import pytest

from triton_dist.runtime.messages import tell


class Writes(io.StringIO):
    """Standard error of a rank, whose writes other ranks' may come between."""

    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, text):
        self.writes.append(text)
        return super().write(text)


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


def closed():
    file = io.StringIO()
    file.close()
    return file


def test_a_message_is_one_write(monkeypatch):
    file = Writes()
    monkeypatch.setattr(sys, "stderr", file)
    tell("first line\n  second line")
    assert file.writes == ["triton_dist: first line\n  second line\n"]


@pytest.mark.parametrize("file", [None, Broken(BrokenPipeError()), Broken(OSError(28, "No space left on device")), closed()])
def test_standard_error_that_is_gone_hides_nothing(monkeypatch, file):
    monkeypatch.setattr(sys, "stderr", file)
    tell("what happened")
