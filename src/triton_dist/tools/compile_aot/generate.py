"""One compiled kernel as C source and header: its machine code, and functions that load, unload and launch it.

Names and the comments that tell a linker of them are those of ``triton.tools.compile``; what is different: no driver is needed to
compile nor to link, a failure is a code instead of the end of the process, and scalars are passed by their own C types.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from ...errors import InvalidArgumentError
from ...jit_function import compile_and_prepare
from ...runtime.address_map import CONTEXT
from ...runtime.context_layout import PAGE_BYTES
from ..folder import make_folder
from ..kernel_signature import KernelSignature, read_signature, read_target
from .names import argument_names, check_function_name, check_name
from .options import check_options, check_world_size

C_TYPES = {
    "i1": "int8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "fp16": "uint16_t", "bf16": "uint16_t", "fp32": "float", "fp64": "double",
}  # fmt: skip
"""C types of scalars; 16-bit floating-point numbers are passed as their bits. Pointers are ``uint64_t``, device addresses."""

_MOST_STATIC = 48 * 1024
_NUMBER = re.compile(r"\b(0x[0-9a-fA-F]+|\d{12,})\b")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_PLACEHOLDER = re.compile(r"%(?=[A-Za-z_])")
"""Begins the name of a constant in a grid; a remainder has a space behind it."""

_BYTES_A_LINE = 24

Grid = Sequence[str | int]


def make_ast_source(kernel: Any, signature: str | Sequence[str] | Mapping[str, str], constants: Mapping[str, Any] | None = None) -> Any:
    """What Triton compiles: the ``triton.compiler.ASTSource`` of a kernel for one signature. Needs no GPU.

    kernel: decorated by ``triton_dist.jit`` or ``triton.jit``, autotuned or not. signature, constants: see ``read_signature``.
    Raises InvalidArgumentError.
    """
    return read_signature(kernel, signature, constants).source()


def kernel_name_suffix(
    kernel: Any,
    signature: str | Sequence[str] | Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    *,
    target: str | int = "sm_90",
    world_size: int = 0,
    **options: Any,
) -> str:
    """What follows the name of a compiled kernel: a hash of all that it is compiled for, then its hints: "1f3a09bc_0d2c".

    In the hints a number is the place of an argument, ``d`` says that it is a multiple of 16, ``c`` that it is 1.
    target, world_size, options: see ``materialize_c_params``. Raises InvalidArgumentError.
    """
    read = read_signature(kernel, signature, constants)
    check_world_size(read.kernel.__name__, world_size)
    arch = _cuda_target(read.kernel.__name__, target)
    check_options(make_backend(GPUTarget("cuda", arch, 32)), options)
    return "_".join(suffix_parts(read, {**options, "target": arch, "world_size": world_size}))


def suffix_parts(signature: KernelSignature, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Hash and hints of ``kernel_name_suffix``. settings: target, world size and options of the compilation."""
    text = signature.text() + " " + " ".join(f"{name}={settings[name]}" for name in sorted(settings))
    places = [name for name in signature.kernel.arg_names if name in signature.types]
    hints = "".join(f"{places.index(name)}{'c' if hint == 1 else 'd'}" for name, hint in signature.hints.items())
    return hashlib.sha256(text.encode()).hexdigest()[:8], hints


def compile_for(signature: KernelSignature, target: GPUTarget, options: Mapping[str, Any]) -> Any:
    """Triton's compiled kernel, as a launch by ``triton_dist.jit`` would have it; no GPU is needed.

    options: of Triton's backend. Raises InvalidArgumentError for others, and what Triton raises for a kernel that does not compile.
    """
    backend = make_backend(target)
    check_options(backend, options)
    source = signature.source()
    parsed = backend.parse_options({**options, **source.parse_options()})
    return compile_and_prepare(triton.compile, backend, source, target=target, options=dict(vars(parsed)))


def materialize_c_params(
    kernel: Any,
    signature: str | Sequence[str] | Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    *,
    grid: Grid,
    name: str | None = None,
    library: str = "kernels",
    target: str | int = "sm_90",
    world_size: int = 0,
    **options: Any,
) -> dict[str, str]:
    """Compile a kernel and give what its C source is filled with, by name; ``dump_c_code`` writes it. Needs no GPU.

    grid: three C expressions of the arguments, of constants by name (with or without ``%`` before it), and of ``cdiv(a, b)``.
    name: what the C functions' names begin with, the kernel's own by default. library: of the library that it will be part of.
    target: the GPU's compute capability. world_size: ranks that the world has to have, checked when it is loaded; 0 for any.
    options: of Triton's compilation. Raises InvalidArgumentError, and what Triton raises for a kernel that does not compile.
    """
    read = read_signature(kernel, signature, constants)
    name = check_function_name(read.kernel.__name__ if name is None else name)
    check_name(library, "library")
    check_world_size(name, world_size)
    refuse_descriptors(name, read)
    arch = _cuda_target(name, target)
    compiled = compile_for(read, GPUTarget("cuda", arch, 32), options)
    metadata = compiled.metadata
    if getattr(metadata, "profile_scratch_size", 0):
        raise InvalidArgumentError(f"{name}: compiled with Triton's instrumentation, which a library can't run; switch it off")
    warps, blocks, shared = compiled.packed_metadata[:3]
    kept = [argument for argument in read.types if argument not in read.ones]
    sig_hash, hints = suffix_parts(read, {**options, "target": arch, "world_size": world_size})
    c_names = argument_names(read.types, name, library)
    x, y, z = grid_expressions(name, grid, read, c_names)
    return {
        "kernel_name": f"{name}_{sig_hash}_{hints}",
        "original_name": name,
        "library": library,
        "symbol": metadata.name,
        "signature_hash": sig_hash,
        "hints": hints,
        "arguments": " ".join(c_names.values()),
        "argument_types": " ".join(c_type(kind) for kind in read.types.values()),
        "argument_hints": " ".join(str(read.hints.get(argument, 0)) for argument in read.types),
        "signature": ", ".join(f"{c_type(read.types[argument])} {c_names[argument]}" for argument in kept),
        "full_signature": ", ".join(f"{c_type(kind)} {c_names[argument]}" for argument, kind in read.types.items()),
        "pointers": "".join(f"&{c_names[argument]}, " for argument in kept),
        "description": _described(read, {**options, "target": f"sm_{arch}"}),
        "algorithm": f"warps{metadata.num_warps}xstages{metadata.num_stages}",
        "grid_x": x,
        "grid_y": y,
        "grid_z": z,
        "threads": str(32 * warps),
        "shared": str(shared),
        "blocks": str(blocks),
        "opt_in": str(int(metadata.shared > _MOST_STATIC)),
        "cooperative": str(int(metadata.launch_cooperative_grid)),
        "dependent_launch": str(int(metadata.launch_pdl)),
        "needs_heap": str(int(needs_heap(compiled.asm["ptx"]))),
        "world_size": str(int(world_size)),
        "scratch": str(getattr(metadata, "global_scratch_size", 0) or 0),
        "image": _as_text(compiled.asm["cubin"]),
    }


def c_type(kind: str) -> str:
    """The C type of an argument from its type in the signature."""
    return "uint64_t" if kind.startswith("*") else C_TYPES[kind]


def needs_heap(ptx: str) -> bool:
    """Whether a kernel reads the context page, whose words are at constant addresses."""
    return any(CONTEXT <= int(number, 0) < CONTEXT + PAGE_BYTES for number in _NUMBER.findall(ptx))


def refuse_descriptors(name: str, signature: KernelSignature) -> None:
    """Raise InvalidArgumentError for arguments that are tensor descriptors, which C code would have to encode for the kernel's layouts."""
    for argument, kind in signature.types.items():
        if kind.startswith("tensordesc"):
            raise InvalidArgumentError(
                f"{name}: {argument!r} is a tensor descriptor, which the host makes; pass a pointer and make it in the kernel by "
                "tl.make_tensor_descriptor"
            )


def _cuda_target(name: str, target: str | int) -> int:
    if str(target).removeprefix("hip:").startswith("gfx"):
        raise InvalidArgumentError(
            f"{name}: C code that loads and launches kernels is for NVIDIA GPUs; for {target} build_library (triton-dist aot) writes code "
            "objects, with a header that says how each is launched"
        )
    return read_target(str(target))


def grid_expressions(name: str, grid: Grid, signature: KernelSignature, c_names: Mapping[str, str]) -> list[str]:
    """The grid's three expressions with constants filled in and arguments by their names in C. Raises InvalidArgumentError."""
    if isinstance(grid, str) or not isinstance(grid, Sequence) or len(grid) != 3:
        raise InvalidArgumentError(f"{name}: grid {grid!r}; give three expressions, as in ['cdiv(n, %BLOCK)', '1', '1']")
    values = {**signature.constants, **dict.fromkeys(signature.ones, 1)}

    def replaced(match: re.Match[str]) -> str:
        word = match[0]
        if word == "cdiv" and match.string[match.end() :].lstrip().startswith("("):
            return word
        if word in values:
            if not isinstance(values[word], int):
                raise InvalidArgumentError(f"{name}: the grid names {word}, which is {values[word]!r}, no integer")
            return str(int(values[word]))
        if word in signature.types:
            return c_names[word]
        raise InvalidArgumentError(
            f"{name}: the grid names {word!r}, which is no argument and no constant; there are {', '.join((*signature.types, *values))}"
        )

    return [_WORD.sub(replaced, _PLACEHOLDER.sub("", str(part))) for part in grid]


def _described(signature: KernelSignature, options: Mapping[str, Any]) -> str:
    lines = [f"{name} = {value}" for name, value in {**signature.constants, **options}.items()]
    return "\n".join(line.replace("*/", "* /") for line in [signature.text(), *lines])


def _as_text(image: bytes) -> str:
    rows = (image[start : start + _BYTES_A_LINE] for start in range(0, len(image), _BYTES_A_LINE))
    return ",\n".join(", ".join(map(str, row)) for row in rows)


_HEADER = """\
#ifndef {kernel_name}_H
#define {kernel_name}_H

#include "{library}_runtime.h"

// tt-linker-backend: cuda

/*
{description}
*/
void load_{kernel_name}(void);
void unload_{kernel_name}(void);
// tt-linker: {kernel_name}:{full_signature}:{algorithm}
CUresult {kernel_name}(CUstream stream{comma}{signature});

#endif
"""

_SOURCE = """\
#include "{kernel_name}.h"

static const unsigned char image[] = {{
{image}
}};

static struct {library}_kernel kernel = {{
    .image = image,
    .symbol = "{symbol}",
    .threads = {threads},
    .shared = {shared},
    .blocks = {blocks},
    .opt_in = {opt_in},
    .cooperative = {cooperative},
    .dependent_launch = {dependent_launch},
    .needs_heap = {needs_heap},
    .world_size = {world_size},
    .scratch = {scratch},
}};

void load_{kernel_name}(void) {{ {library}_runtime_load(&kernel); }}

void unload_{kernel_name}(void) {{ {library}_runtime_unload(&kernel); }}

CUresult {kernel_name}(CUstream stream{comma}{signature}) {{
    CUdeviceptr scratch = 0, profile = 0;
    void *arguments[] = {{ {pointers}&scratch, &profile }};
    return (CUresult){library}_runtime_launch(
        &kernel, stream, (unsigned)({grid_x}), (unsigned)({grid_y}), (unsigned)({grid_z}), arguments, &scratch);
}}
"""


_FILLED = frozenset(re.findall(r"(?<!{){(\w+)}", _HEADER + _SOURCE)) - {"comma"}
"""Names of what the two texts are filled with."""


def dump_c_code(out_path: str | Path, params: Mapping[str, str]) -> tuple[Path, Path]:
    """Write the C source and header of a compiled kernel; returns their paths.

    out_path: a folder, which is made if it is not there. params: what ``materialize_c_params`` gave. The source includes the runtime
    header of its library, which ``build_library`` writes beside it. Raises InvalidArgumentError.
    """
    missing = sorted(_FILLED - set(params)) if isinstance(params, Mapping) else sorted(_FILLED)
    if missing:
        raise InvalidArgumentError(f"dump_c_code: params has no {', '.join(missing)}; pass what materialize_c_params gave")
    folder = make_folder(out_path)
    filled = {**params, "comma": ", " if params["signature"] else ""}
    source, header = folder / f"{params['kernel_name']}.c", folder / f"{params['kernel_name']}.h"
    source.write_text(_SOURCE.format(**filled))
    header.write_text(_HEADER.format(**filled))
    return source, header
