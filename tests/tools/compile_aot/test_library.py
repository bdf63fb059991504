"""A library built with no GPU: a C program links it, and runs it as far as a machine has a driver; a made-up driver takes it further."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.compile_aot.kernels import fill_kernel, push_kernel, scale_kernel
from triton_dist.errors import InvalidArgumentError, MissingToolError, ToolFailedError
from triton_dist.runtime import context_layout
from triton_dist.tools import aot_compile_spaces, build_library
from triton_dist.tools.compile_aot import Library
from triton_dist.tools.compile_aot.library import cuda_headers

HERE = Path(__file__).parent
STRICT = "-Wall -Wextra -Werror -Wno-strict-prototypes"
HEAP = {"FAKE_MARK": str(context_layout.LAYOUT_MARK)}

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def compile_c(output: Path, *arguments: str | Path) -> None:
    done = subprocess.run(["gcc", *STRICT.split(), "-o", output, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def pushes(tmp_path_factory) -> Library:
    return build_library([push_kernel], tmp_path_factory.mktemp("pushes"), "pushes", compiler=f"gcc {STRICT}")


@pytest.fixture(scope="module")
def program(pushes) -> Path:
    """The C program, linked against the library alone."""
    folder = pushes.shared.parent
    compile_c(folder / "program", HERE / "program.c", f"-I{folder}", f"-L{folder}", "-lpushes", f"-Wl,-rpath,{folder}")
    return folder / "program"


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """The folder of the made-up driver."""
    folder = tmp_path_factory.mktemp("driver")
    compile_c(folder / "libcuda.so.1", "-shared", "-fPIC", f"-I{cuda_headers()}", HERE / "fake_driver.c")
    return folder


def run(program: Path, *arguments: str, driver: Path | None = None, **settings: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_", "LD_LIBRARY_PATH"))}
    if driver is not None:
        environment["LD_LIBRARY_PATH"] = str(driver)
    done = subprocess.run([program, *arguments], env=environment | settings, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done
    return done.stdout.splitlines()


def test_what_was_built(pushes):
    assert pushes.functions == {"push": 2, "push_of_four": 1}
    assert pushes.shared.name == "libpushes.so" and all(path.exists() for path in (*pushes.sources, pushes.header))
    needed = subprocess.run(["readelf", "-d", pushes.shared], capture_output=True, text=True).stdout
    assert "libcuda" not in needed
    text = pushes.header.read_text()
    assert "cuda.h" not in text
    assert re.search(r"int push\(void \*stream, uint64_t data, uint64_t flags, int32_t count, int algo_id\);", text)


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_without_a_driver_the_program_says_so(program):
    lines = run(program)
    assert len(lines) == 1
    assert lines[0].startswith("load: -1 no NVIDIA driver on this machine (libcuda.so.1: cannot open shared object file")


def test_the_call_takes_the_variant_that_fits(program, driver):
    """Two algorithms of two variants each; the grid follows the arguments."""
    lines = run(program, driver=driver, **HEAP)
    assert lines[:4] == ["load push_kernel"] * 4 and lines[4] == "load: 0"
    assert lines[5:7] == [
        "launch grid 4,1,1 threads 128 shared 0 stream 0x55 attributes arguments 0x108000200000 0x108000300000 4096",
        "push: 0",
    ]
    assert lines[7:] == ["unload 1"] * 4 + ["unload: 0"]
    assert "launch grid 17,1,1 threads 64 shared 0" in "\n".join(run(program, "0x108000200000", "4099", "1", driver=driver, **HEAP))
    assert "launch grid" not in "\n".join(run(program, "0x108000200000", "0", driver=driver, **HEAP)), "no blocks: no launch"


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "words"),
    [
        ((), {"FAKE_CONTEXT": "0"}, "load: -2", "no CUDA context"),
        ((), {}, "load: -3", "no symmetric heap (nothing at 0x100000000000); call triton_dist.initialize()"),
        (
            (),
            {"FAKE_MARK": str(context_layout.LAYOUT_MARK + 1)},
            "load: -4",
            f"version {context_layout.LAYOUT_VERSION + 1}, pushes was built for version {context_layout.LAYOUT_VERSION}; build",
        ),
        ((), {"FAKE_MARK": "0"}, "load: -4", "has no version"),
        ((), {**HEAP, "FAKE_OTHER_GPU": "1"}, "load: 209", "push_kernel: no kernel image (CUDA_ERROR_NO_BINARY_FOR_GPU)"),
        (("0x108000200004",), HEAP, "push: -6", "no variant for these arguments; compiled hints: data % 16 == 0, flags % 16 == 0, count"),
        (("0x108000200000", "16", "2"), HEAP, "push: -7", "no algorithm 2; it has 2"),
        (("0x108000200000", "16", "-1"), HEAP, "push: -7", "no algorithm -1"),
    ],
)
def test_failures_have_a_code_and_words(program, driver, arguments, settings, code, words):
    lines = run(program, *arguments, driver=driver, **settings)
    wrong = next(line for line in lines if line.startswith(code))
    assert words in wrong


def small_program(folder: Path, library: Library, body: str) -> Path:
    """A program that includes the library's header and has ``body`` in main."""
    source = folder / "small.c"
    source.write_text(f'#include "{library.header.name}"\n#include <stdio.h>\nint main(void) {{ setbuf(stdout, 0);\n{body}\nreturn 0; }}\n')
    where = library.header.parent
    compile_c(folder / "small", source, f"-I{where}", f"-L{where}", f"-l{library.name}", f"-Wl,-rpath,{where}")
    return folder / "small"


def test_the_number_of_ranks_is_checked(pushes, driver, tmp_path):
    small = small_program(tmp_path, pushes, 'printf("%d %s\\n", load_push_of_four(), pushes_last_error());')
    assert run(small, driver=driver, **HEAP, FAKE_WORLD_SIZE="2") == ["-5 push_kernel was compiled for 4 ranks, this world has 2"]
    assert run(small, driver=driver, **HEAP, FAKE_WORLD_SIZE="4") == ["load push_kernel", "0 "]


def test_a_kernel_without_the_heap(driver, tmp_path):
    """Clusters, cooperative launches, memory for descriptors, floats; a kernel under autotune. It needs no world."""
    library = build_library([scale_kernel], tmp_path / "library", "scales", compiler=f"gcc {STRICT}")
    small = small_program(tmp_path, library, 'printf("%d\\n", scale_default((void *)0x7, 0x1000, 0x2000, 9, 2.5f));')
    lines = run(small, driver=driver)
    assert lines[0] == "load scale_kernel" and re.fullmatch(r"allocate \d+ on 0x7", lines[1])
    launch = re.fullmatch(r"launch grid 2,2,1 threads 32 shared \d+ stream 0x7 attributes 2 4 5 arguments 0x1000 0x2000 9", lines[2])
    assert launch, lines
    assert lines[3:] == ["free 0x7000 on 0x7", "0"]
    small = small_program(tmp_path, library, 'printf("%d\\n", scales_synchronize((void *)0x7));')
    assert run(small, driver=driver) == ["synchronize 0x7", "0"]


def test_arguments_with_names_of_c(driver, tmp_path):
    """They get an underscore, in the grid, too."""
    library = build_library([fill_kernel], tmp_path / "library", "fills", compiler=f"gcc {STRICT}")
    assert "uint64_t arguments_, uint64_t kernel_, int32_t scratch_, int32_t stream_" in library.header.read_text()
    small = small_program(tmp_path, library, 'printf("%d\\n", fill_default((void *)0x7, 0x1000, 0x2000, 9, 4));')
    lines = run(small, driver=driver)
    assert lines[1].startswith("launch grid 3,1,1 ") and lines[1].endswith(" 0x1000 0x2000 9") and lines[2] == "0"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_header_is_c_plus_plus_too(pushes, tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text(f'#include "{pushes.header}"\nint main() {{ return push_default(nullptr, 0, 0, 0) + push_get_num_algos(); }}\n')
    folder = pushes.shared.parent
    done = subprocess.run(["g++", "-Wall", "-Werror", "-o", tmp_path / "program", source, f"-L{folder}", "-lpushes"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_second_context_is_refused(pushes, driver, tmp_path):
    body = 'printf("%d\\n", load_push()); setenv("FAKE_CONTEXT", "2", 1); printf("%d %s\\n", load_push(), pushes_last_error());'
    small = small_program(tmp_path, pushes, "extern int setenv(const char *, const char *, int);" + body)
    assert run(small, driver=driver, **HEAP)[-1].startswith("-8 push_kernel is loaded in another CUDA context")


def test_the_compiler_is_named(tmp_path):
    with pytest.raises(MissingToolError, match="no C compiler 'no-such-cc'; install one"):
        build_library([scale_kernel], tmp_path, "scales", compiler="no-such-cc")
    with pytest.raises(ToolFailedError, match="ended with"):
        build_library([scale_kernel], tmp_path, "scales", compiler="gcc -no-such-option")
    library = build_library([scale_kernel], tmp_path, "scales", compiler="no-such-cc", sources_only=True)
    assert library.shared is None
    compile_c(tmp_path / "elsewhere.so", "-shared", "-fPIC", f"-I{cuda_headers()}", *library.sources)


def test_what_can_not_be_a_library(tmp_path):
    def build(space, name="one"):
        return build_library([aot_compile_spaces({name: space})(scale_kernel.fn)], tmp_path, "library")

    with pytest.raises(InvalidArgumentError, match="no spaces; decorate it by aot_compile_spaces"):
        build_library([push_kernel.__class__(push_kernel.fn)], tmp_path, "library")
    with pytest.raises(InvalidArgumentError, match="can't be a name in C"):
        build_library([push_kernel], tmp_path, "not-a-name")
    with pytest.raises(InvalidArgumentError, match="two kernels have a space 'push'"):
        build_library([push_kernel, push_kernel], tmp_path, "library")
    grid = ["1", "1", "1"]
    with pytest.raises(InvalidArgumentError, match="its variants take different arguments"):
        build({"signature": ["*fp32, *fp32, i32, fp32, 128", "*fp32, *fp32, 128, fp32, 128"], "grid": grid})


def test_an_older_layout_is_known():
    """Where words of the context page lie belongs to a version: who moves one raises ``LAYOUT_VERSION`` and writes down the new places."""
    from triton_dist.runtime import address_map

    places = {name: value for name, value in vars(context_layout).items() if name.isupper() and name not in ("CONTEXT", "LAYOUT_MARK")}
    assert places == {
        "LAYOUT_VERSION": 1, "LAYOUT": 0x38, "RANK": 0, "NUM_RANKS": 4, "LOCAL_RANK": 8, "LOCAL_NUM_RANKS": 12, "PEER_MASK": 16,
        "NVSHMEM_DELTA": 32, "WAIT_BOARD": 40, "SHMEM_WORDS": 48, "RECORD_COUNTER": 256, "TEAM_TABLE": 1024, "TEAM_RECORD_BYTES": 16,
        "MAX_TEAMS": 64, "TEAM_MEMBERS": 2048, "MEMBERS_PER_TEAM": 128, "SHMEM_EPOCHS": 32768, "SHMEM_BYTES": 33024, "PAGE_BYTES": 2 << 20,
    }  # fmt: skip
    assert (address_map.CONTEXT, address_map.STRIDE_BITS, address_map.GUARD_BYTES) == (1 << 44, 39, 2 << 20)
