"""The command ``triton-dist``: what it prints, its exit codes, and how little it loads to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest
import torch

import triton_dist
from triton_dist.tools import cli


def run(*arguments: str, code: str = "from triton_dist.tools.cli import run; run()") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=200, env={**os.environ, "COLUMNS": "120"}
    )


def without(*packages: str) -> str:
    """Code that runs the command line where these packages can't be imported."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r})); from triton_dist.tools.cli import run; run()"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(package):
    done = run("doctor", code=without(package))
    assert done.returncode == cli.MISSING_EXTRA
    assert f"{package} " in done.stderr and "not installed" in done.stderr and "pip install 'triton-dist[tools]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_starting_loads_neither_torch_nor_triton():
    pytest.importorskip("typer")
    code = """
import sys
from triton_dist.tools.cli import main
main(["--version"])
print([name for name in ("torch", "triton", "numpy") if name in sys.modules])
"""
    assert run(code=code).stdout.splitlines() == [f"triton-dist {triton_dist.__version__}", "[]"]


def test_help_and_wrong_usage():
    pytest.importorskip("typer")
    for arguments in ((), ("--help",)):
        done = run(*arguments)
        assert "doctor" in done.stdout + done.stderr and "attach" in done.stdout + done.stderr
    for arguments in (("no-such-command",), ("doctor", "--timeout", "soon"), ("attach",), ("attach", "0")):
        done = run(*arguments)
        assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr, arguments


def test_doctor_on_this_machine():
    """Without a GPU it says what works there, and that is fine."""
    pytest.importorskip("typer")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = run("doctor", "--json")
    told = json.loads(done.stdout)
    found = {finding["name"]: finding for finding in told["findings"]}
    assert done.returncode == 0 and told["ok"], done.stdout
    assert found["simulator"]["status"] == found["compilation"]["status"] == found["torch"]["status"] == "ok"
    assert found["GPU"]["status"] == "not tested"
    done = run("doctor", "--quick")
    assert done.returncode == 0 and "two simulated ranks exchanged a tile" in done.stdout


def test_doctor_without_the_extra():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, "-m", "triton_dist.tools.doctor", "--quick"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"]
    done = subprocess.run([sys.executable, "-m", "triton_dist.tools.doctor", "--wrong"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 2 and "--quick" in done.stderr


def test_attach_is_called_with_the_pid(monkeypatch):
    pytest.importorskip("typer")
    asked = []
    stand_in = types.ModuleType("triton_dist.tools.attach")
    stand_in.attach = lambda pid: asked.append(pid) or 3
    monkeypatch.setitem(sys.modules, "triton_dist.tools.attach", stand_in)
    assert cli.main(["attach", "1234"]) == 3
    assert asked == [1234]
