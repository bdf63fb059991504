"""A shared library of kernels: all C files of it, and the C compiler's run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from ...errors import InvalidArgumentError, MissingToolError, ToolFailedError
from ..folder import make_folder
from .code_objects import amd_target, write_code_objects
from .dispatch import Algorithms, check_alike, library_header, library_source, runtime_text
from .generate import dump_c_code, materialize_c_params
from .names import check_name, check_symbols
from .spaces import Space, Variant, spaces_of

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Library:
    """What was built. header: what a C program includes. sources: to build it elsewhere, with cuda.h. shared: the library, None if only
    sources were asked for. functions: number of algorithms by C function. code_objects: for AMD GPUs, instead of sources and library."""

    name: str
    header: Path
    sources: tuple[Path, ...]
    shared: Path | None
    functions: Mapping[str, int]
    code_objects: tuple[Path, ...] = ()


def build_library(
    kernels: Sequence[Any],
    folder: str | Path,
    name: str,
    *,
    target: str | int = "sm_90",
    compiler: str = "cc",
    sources_only: bool = False,
) -> Library:
    """Compile the spaces of some kernels and build ``lib<name>.so`` from them. Needs a C compiler, and neither a GPU nor its driver.

    kernels: decorated by ``aot_compile_spaces``. folder: for all files; made if it is not there. target: compute capability of the GPUs; or
        "gfx942", for which there are code objects and a header, and no library: on AMD GPUs kernels are compiled only so far.
    compiler: the C compiler's command. sources_only: write the C files and no library.
    Raises InvalidArgumentError, MissingToolError, ToolFailedError, and what Triton raises for a kernel that does not compile.
    """
    check_name(name, "library")
    spaces = _spaces(kernels)
    place = make_folder(folder)
    amd = amd_target(str(target))
    if amd is not None:
        header, objects, counts = write_code_objects(spaces, place, name, amd)
        return Library(name, header, (), None, counts, tuple(objects))
    check_symbols(name, [space.name for _, space in spaces])
    compiler_command = [] if sources_only else _command(compiler)
    functions: dict[str, Algorithms] = {}
    for kernel, space in spaces:
        functions[space.name] = _compile_space(kernel, space, name, target)
        check_alike(space.name, functions[space.name])
    header = place / f"{name}.h"
    header.write_text(library_header(name, functions))
    for file in ("runtime.h", "runtime.c", "join.c"):
        (place / f"{name}_{file}").write_text(runtime_text((_HERE / file).read_text(), name))
    own = place / f"{name}.c"
    own.write_text(library_source(name, functions))
    variants = [params for algorithms in functions.values() for algorithm in algorithms for params in algorithm]
    sources = (own, place / f"{name}_runtime.c", place / f"{name}_join.c", *(dump_c_code(place, params)[0] for params in variants))
    counts = {function: len(algorithms) for function, algorithms in functions.items()}
    shared = None if sources_only else _build(compiler_command, place / f"lib{name}.so", sources)
    return Library(name, header, sources, shared, counts)


def _spaces(kernels: Any) -> list[tuple[Any, Space]]:
    """The spaces of all kernels, each with its kernel. Raises InvalidArgumentError."""
    if isinstance(kernels, str) or not isinstance(kernels, Sequence) or not kernels:
        raise InvalidArgumentError(f"build_library: kernels={kernels!r} must be a list of at least one kernel, as in [kernel]")
    found = [(kernel, space) for kernel in kernels for space in spaces_of(kernel).values()]
    names = [space.name for _, space in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidArgumentError(f"two kernels have a space {twice[0]!r}; each is a C function and needs a name of its own")
    return found


def _compile_space(kernel: Any, space: Space, library: str, target: str | int) -> list[list[dict[str, str]]]:
    def params(variant: Variant) -> dict[str, str]:
        return materialize_c_params(
            kernel, variant.signature, grid=variant.grid, name=space.name, library=library, target=target, world_size=space.world_size,
            **variant.options,
        )  # fmt: skip

    return [[params(variant) for variant in variants] for variants in space.algorithms]


def cuda_headers() -> Path:
    """The folder with the cuda.h that comes with Triton."""
    return Path(triton.__file__).parent / "backends" / "nvidia" / "include"


def _command(compiler: Any) -> list[str]:
    """A C compiler's command in parts. Raises InvalidArgumentError, MissingToolError."""
    if not isinstance(compiler, str) or not compiler.split():
        raise InvalidArgumentError(f"compiler={compiler!r} must be the command of a C compiler, such as 'cc'")
    parts = compiler.split()
    if shutil.which(parts[0]) is None:
        raise MissingToolError(
            f"there is no C compiler {parts[0]!r}; install one (gcc or clang), name yours by compiler=, or write the C files alone "
            "(sources_only=True) and build them elsewhere"
        )
    return parts


def _build(compiler: Sequence[str], shared: Path, sources: Sequence[Path]) -> Path:
    command = [
        *compiler, "-shared", "-fPIC", "-O2", "-fvisibility=hidden", f"-I{cuda_headers()}", f"-I{shared.parent}", "-o", str(shared),
        *map(str, sources), "-ldl",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ToolFailedError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return shared
