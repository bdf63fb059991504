"""A changed lowering changes Triton's cache key of every kernel that uses a primitive."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest
import triton

from triton_dist.primitives import (
    flagged_functions,
    functions,
    shmem_functions,
    shmem_team_functions,
    stamp,
    thread_functions,
    word_functions,
)

MODULES = {
    "functions.py": functions,
    "thread_functions.py": thread_functions,
    "word_functions.py": word_functions,
    "flagged_functions.py": flagged_functions,
    "shmem_functions.py": shmem_functions,
    "shmem_team_functions.py": shmem_team_functions,
}
STAMPED = pytest.mark.parametrize("path", stamp.STAMPED_FILES, ids=lambda path: path.name)
STAMPED_CALLEES = r"\b(ld|st|tid|atomic_add|shfl_sync|red_release|globaltimer|num_threads|inline_asm_elementwise|wait)\("
"""What a function may be made of that has no stamp of its own: others that have one, or stock Triton."""


@STAMPED
def test_the_stamps_are_current(path):
    carried = stamp.stamps_in(path.read_text())
    assert carried == {stamp.compute_stamp()}, "run python -m triton_dist.primitives.stamp"


@STAMPED
def test_every_primitive_carries_a_stamp(path):
    module = MODULES[path.name]
    bodies = re.split(r"@(?:triton\.jit|primitive)\n", path.read_text())[1:]
    own = {
        value for value in vars(module).values() if isinstance(value, triton.runtime.jit.JITFunction) and value.module == module.__name__
    }
    assert len(bodies) == len(own)
    for body in bodies:
        assert stamp.LITERAL.search(body) or re.search(STAMPED_CALLEES, body.partition('"""\n')[2]), body.splitlines()[0]


def test_every_file_of_the_lowerings_is_stamped():
    others = {"__init__.py", "primitive_function.py", "stamp.py", "warp_specialization.py"} | set(MODULES)
    present = {path.name for path in stamp.STAMPED_FILES[0].parent.glob("*.py")}
    assert present - others == {path.name for path in stamp.LOWERING_FILES}


@pytest.mark.parametrize("name", [path.name for path in stamp.LOWERING_FILES])
def test_a_changed_file_makes_the_stamp_stale(name, monkeypatch, tmp_path):
    before = stamp.compute_stamp()
    changed = tmp_path / name
    changed.write_text(next(path for path in stamp.LOWERING_FILES if path.name == name).read_text() + "\n")
    monkeypatch.setattr(stamp, "LOWERING_FILES", tuple(changed if path.name == name else path for path in stamp.LOWERING_FILES))
    assert stamp.compute_stamp() != before


def test_a_changed_address_map_makes_the_stamp_stale(monkeypatch):
    before = stamp.compute_stamp()
    monkeypatch.setattr(stamp.address_map, "STRIDE_BITS", 40)
    assert stamp.compute_stamp() != before


@STAMPED
def test_restamping_does_not_change_the_stamp(path):
    source = path.read_text()
    assert stamp.stamps_in(stamp.restamp(source, "0123456789abcdef")) == {"0123456789abcdef"}
    assert stamp.restamp(source, stamp.compute_stamp()) == source


def import_from(path, name):
    specification = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


USER = """
import triton
import {module} as dl


@triton.jit
def helper(words):
    return dl.wait_ge(words, 1, "sys", "acquire")


@triton.jit
def direct(words):
    dl.notify(words, 0)


@triton.jit
def nested(words):
    helper(words)
"""


@pytest.mark.parametrize("kernel", ["direct", "nested", "helper"])
def test_another_stamp_gives_callers_another_cache_key(kernel, tmp_path):
    source = stamp.STAMPED_FILES[0].read_text()
    keys = []
    for number, text in enumerate([source, source, stamp.restamp(source, "0123456789abcdef")]):
        path = tmp_path / str(number)
        path.mkdir()
        (path / "functions_copy.py").write_text(text)
        import_from(path / "functions_copy.py", "functions_copy")
        (path / "user_of_copy.py").write_text(USER.format(module="functions_copy"))
        keys.append(getattr(import_from(path / "user_of_copy.py", "user_of_copy"), kernel).cache_key)
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@pytest.mark.parametrize("arguments, code", [(["--check"], 0), ([], 0)])
def test_the_command_says_when_all_is_current(arguments, code, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["stamp", *arguments])
    assert stamp.main() == code
    assert "the stamps are current" in capsys.readouterr().out


def test_the_command_finds_and_mends_stale_stamps(monkeypatch, capsys, tmp_path):
    stale = tmp_path / "functions.py"
    stale.write_text(stamp.restamp(stamp.STAMPED_FILES[0].read_text(), "0" * 16))
    monkeypatch.setattr(stamp, "STAMPED_FILES", (stale,))
    monkeypatch.setattr(sys, "argv", ["stamp", "--check"])
    assert stamp.main() == 1
    assert "run this without --check" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["stamp"])
    assert stamp.main() == 0
    assert stamp.stamps_in(stale.read_text()) == {stamp.compute_stamp()}
