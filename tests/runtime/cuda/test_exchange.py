"""File descriptors passed between processes: who may send one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from triton_dist.runtime.cuda import exchange


def test_a_descriptor_arrives_with_its_rank(tmp_path):
    (tmp_path / "memory").write_text("contents")
    with (tmp_path / "memory").open() as file, exchange._listener(2) as (path, listener), exchange._sent(path, file.fileno(), 3):
        rank, descriptor = exchange._receive(listener)
        assert rank == 3 and descriptor != file.fileno()
        with os.fdopen(descriptor) as received:
            assert received.read() == "contents"


def test_a_folder_for_temporary_files_may_have_a_long_name(tmp_path, monkeypatch):
    """An address of a socket has room for 107 bytes."""
    long = tmp_path / ("scratch_of_a_job_with_a_long_name/" * 8)
    long.mkdir(parents=True)
    monkeypatch.setattr(exchange.tempfile, "tempdir", str(long))
    test_a_descriptor_arrives_with_its_rank(tmp_path)
    with exchange._listener(2) as (path, _):
        folder = Path(path).parent
        assert folder.parent == long and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(long.iterdir())


def test_other_users_are_kept_out(tmp_path, monkeypatch):
    with (tmp_path / "memory").open("w") as file, exchange._listener(2) as (path, listener):
        folder = Path(path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, "nobody else may enter"
        with exchange._sent(path, file.fileno(), 1):
            monkeypatch.setattr(exchange.os, "getuid", lambda: 12345)
            with pytest.raises(exchange.PeerIdentityError, match="user .* only user 12345's ranks may"):
                exchange._receive(listener)
    assert not folder.exists()


def test_ranks_that_do_not_come(monkeypatch):
    monkeypatch.setattr(exchange, "_TIMEOUT", 0.01)
    with exchange._listener(2) as (_, listener), pytest.raises(TimeoutError):
        exchange._receive(listener)
