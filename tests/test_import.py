"""What importing does, and does not do, to a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import triton_dist

SOURCE = Path(triton_dist.__file__).parent.parent


def run(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_neither_torch_nor_triton():
    assert run("import sys, triton_dist; print([name for name in ('torch', 'triton', 'numpy') if name in sys.modules])") == "[]"


def test_importing_triton_loads_only_the_entry_point():
    code = "import sys, triton; print(sorted(name for name in sys.modules if 'triton_dist' in name))"
    assert run(code) == "['_triton_dist_backend', '_triton_dist_backend.compiler', '_triton_dist_backend.driver']"


def test_a_broken_package_does_not_break_triton(tmp_path):
    """The entry point needs nothing of the package, even where importing the package fails."""
    broken = tmp_path / "triton_dist"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('broken')\n")
    code = "import triton; print(sorted(triton.backends.backends))"
    assert run(code, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}") == "['amd', 'nvidia', 'sim']"


def test_the_back_end_is_not_active_unless_asked_for():
    code = "import triton.backends as b; print(b.backends['sim'].driver.is_active())"
    assert run(code) == "False"
    assert run(code, TRITON_DIST_SIMULATE="1") == "True"
    assert run(code, TRITON_DIST_SIMULATE="0") == "False"
    assert run("import triton_dist; " + code) == "True"  # a machine with no GPU, or this whole suite would not run on it


def test_simulate_needs_no_entry_point():
    """The package may be on the path only, and TRITON_BACKENDS_IN_TREE=1 leaves entry points out."""
    code = """
import triton.backends
before = "sim" in triton.backends.backends
from triton_dist.tools.doctor.simulator import exchange
import triton_dist
print(before, triton_dist.simulate(exchange, 2)[1])
"""
    assert run(code, TRITON_BACKENDS_IN_TREE="1") == f"False {list(range(16))}"


def test_importing_everything_sets_no_hook_and_no_driver():
    code = """
import triton
from triton import knobs
hooks = lambda: (repr(knobs.runtime.launch_enter_hook), repr(knobs.runtime.launch_exit_hook), knobs.runtime.jit_cache_hook,
                 knobs.runtime.jit_post_compile_hook, knobs.compilation.listener, triton.runtime.driver._active,
                 triton.language.load, triton.jit, triton.autotune)
before = hooks()
import triton_dist
for name in dir(triton_dist):
    getattr(triton_dist, name)
import triton_dist.ops, triton_dist.utils, triton_dist.sim.simulate, triton_dist.language.extra.language_extra
triton_dist.ops.ag_gemm
print(before == hooks())
"""
    assert run(code) == "True"


def test_every_public_name_exists():
    assert all(getattr(triton_dist, name) is not None for name in triton_dist.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = triton_dist.no_such_name


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "triton_dist" / "py.typed").exists()
