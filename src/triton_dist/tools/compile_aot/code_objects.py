"""What is made ahead of time for AMD GPUs: the code objects, and a header that says how each is launched.

Compiled only: Triton's own assembler and linker make them, without ROCm. The address map and the context page that kernels with primitives
read exist on NVIDIA GPUs only so far, so there is no library that loads and launches them; a program does that by HIP's module calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget

from ...errors import InvalidArgumentError
from ..kernel_signature import read_signature
from .generate import c_type, compile_for, grid_expressions, refuse_descriptors, suffix_parts
from .names import argument_names
from .spaces import Space

TARGETS = ("gfx942",)
"""Architectures that kernels of this package are compiled for in its tests."""

_WARP = 64
Spaces = Sequence[tuple[Any, Space]]
"""Spaces, each with its kernel."""

_BEHIND = "uint64_t global_scratch, uint64_t profile_scratch"


@dataclass(frozen=True)
class _CodeObject:
    """One variant. arguments: as the kernel takes them, in C, with the two that Triton adds. hints: of arguments, as ``name:16``."""

    function: str
    algorithm: int
    name: str
    symbol: str
    threads: int
    shared: int
    arguments: str
    grid: tuple[str, ...]
    hints: str
    image: bytes


def amd_target(text: str) -> str | None:
    """The architecture if it is an AMD GPU's, None for any other text. Raises InvalidArgumentError for one that is not compiled for."""
    found = re.fullmatch(r"(?:hip:)?(gfx[0-9a-f]+)(?::64)?", text.strip())
    if found is None:
        return None
    if found[1] not in TARGETS:
        raise InvalidArgumentError(f"target {text!r}: of AMD GPUs kernels are compiled for {', '.join(TARGETS)}")
    return found[1]


def write_code_objects(spaces: Spaces, place: Path, library: str, arch: str) -> tuple[Path, list[Path], dict[str, int]]:
    """Compile spaces for an AMD GPU. spaces: each with its kernel. place: a folder that is there.

    Returns the header, the code objects, and the number of algorithms of each space. Raises InvalidArgumentError.
    """
    found: list[_CodeObject] = []
    counts: dict[str, int] = {}
    for kernel, space in spaces:
        counts[space.name] = len(space.algorithms)
        found += _compiled(kernel, space, library, arch)
    paths = [place / f"{each.name}.hsaco" for each in found]
    for path, each in zip(paths, found, strict=True):
        path.write_bytes(each.image)
    header = place / f"{library}.h"
    header.write_text(_header(library, arch, found))
    return header, paths, counts


def _compiled(kernel: Any, space: Space, library: str, arch: str) -> list[_CodeObject]:
    made = []
    for algorithm, variants in enumerate(space.algorithms):
        for variant in variants:
            read = read_signature(kernel, variant.signature)
            refuse_descriptors(space.name, read)
            c_names = argument_names(read.types, space.name, library)
            compiled = compile_for(read, GPUTarget("hip", arch, _WARP), variant.options)
            warps, _, shared = compiled.packed_metadata[:3]
            parts = suffix_parts(read, {**variant.options, "target": arch, "world_size": space.world_size})
            taken = {name: kind for name, kind in read.types.items() if name not in read.ones}
            arguments = [f"{c_type(kind)} {c_names[name]}" for name, kind in taken.items()]
            made.append(
                _CodeObject(
                    space.name, algorithm, "_".join((space.name, *parts)), compiled.metadata.name, _WARP * warps, shared,
                    ", ".join([*arguments, _BEHIND]), tuple(grid_expressions(space.name, variant.grid, read, c_names)),
                    " ".join(f"{c_names[name]}:{hint}" for name, hint in read.hints.items()), compiled.asm["hsaco"],
                )
            )  # fmt: skip
    return made


def _header(library: str, arch: str, found: Sequence[_CodeObject]) -> str:
    def row(each: _CodeObject) -> str:
        texts = (each.name + ".hsaco", each.symbol, each.arguments, each.hints, *each.grid)
        quoted = ", ".join(f'"{text}"' for text in texts)
        return f'    {{ "{each.function}", {each.algorithm}, {each.threads}, {each.shared}, {quoted} }},'

    rows = "\n".join(map(row, found))
    return f"""\
/* Code objects for {arch}, built ahead of time for triton_dist; compiled only, nothing here loads or launches them.
   hipModuleLoad(file), hipModuleGetFunction(symbol), hipModuleLaunchKernel with a grid of grid_x, grid_y, grid_z blocks of `threads`
   threads, `shared` bytes of shared memory and `arguments`, of which the last two are 0. A variant may be launched if the
   arguments fulfil its hints: each is a multiple of the number behind it, and those of 1 are no arguments. */
#ifndef {library}_H
#define {library}_H

typedef struct {{
    const char *function;
    int algorithm;
    unsigned threads, shared;
    const char *file, *symbol, *arguments, *hints, *grid_x, *grid_y, *grid_z;
}} {library}_code_object;

static const {library}_code_object {library}_code_objects[] = {{
{rows}
}};

#endif
"""
