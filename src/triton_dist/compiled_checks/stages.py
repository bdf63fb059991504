"""Compiles a kernel for a GPU that need not be there, up to PTX, and keeps the form of each stage."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from ..sim.ir import Operation, parse_module
from .places import TEXT_SUFFIX, Chains


@dataclass(frozen=True)
class Stages:
    """What one compilation made. source: the front end's IR with functions inlined, before any pass. ttgir: the last GPU IR. ptx: text.

    The first two are trees whose locations are ``Chain``s.
    """

    arch: int
    options: Any
    source: Operation
    ttgir: Operation
    ptx: str


def compile_stages(source: Any, arch: int, options: Mapping[str, Any]) -> Stages:
    """Compile a Triton ``ASTSource`` for compute capability ``arch`` (90, 100); machine code is not made, and no GPU needed.

    options: launch options such as num_warps. Raises what Triton raises for a kernel that does not compile.
    """
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options, **source.parse_options()))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    module = source.make_ir(target, parsed, functions, modules, context)
    front = parse_mlir(str(module), arch, inline=True)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    metadata: dict[str, Any] = {"target": target, **vars(parsed)}
    texts: dict[str, str] = {}
    for name in ("ttir", "ttgir", "llir", "ptx"):
        module = stages[name](module, metadata)
        if name == "ttgir":
            texts[name] = str(module)
    return Stages(arch, parsed, front, parse_mlir(texts["ttgir"], arch), str(module))


def parse_mlir(text: str, arch: int, *, inline: bool = False) -> Operation:
    """Read a module in Triton's own syntax. inline: put functions in place of their calls. Raises IRSyntaxError, RuntimeError.

    MLIR prints its generic form, which has one syntax for every op, when a module does not verify: an attribute without a dialect.
    """
    context = ir.context()
    ir.load_dialects(context)
    make_backend(GPUTarget("cuda", arch, 32)).load_dialects(context)
    handle, path = tempfile.mkstemp(suffix=TEXT_SUFFIX)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        module = ir.parse_mlir_module(path, context)
    finally:
        os.unlink(path)
    module.context = context
    if inline:
        manager = ir.pass_manager(context)
        passes.common.add_inliner(manager)
        manager.run(module, "inline")
    module.set_attr("generic", ir.builder(context).get_int32_attr(1))
    return parse_module(str(module), locations=Chains)
