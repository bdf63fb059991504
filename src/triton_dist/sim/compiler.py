"""Compiles a kernel for the simulator: Triton's own front end and TTIR passes, as for the pretended GPU, then MLIR's generic form.

The generic form has one syntax for every op, so a small parser reads it. MLIR prints it when a module fails verification, which
an attribute without a dialect on the module brings about; a copy of the module is spoiled so, never the module itself.
"""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import dataclass, fields

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions

from .asm_layouts import ATTRIBUTE, find_layouts, needs_layouts

FORMAT = 2
"""Version of the stored form; part of Triton's cache key."""


@dataclass(frozen=True)
class SimOptions(CUDAOptions):
    """The CUDA back end's options; ``simulated`` is how a device primitive knows that it is compiled for the simulator."""

    simulated: bool = True

    def hash(self) -> str:
        return "sim-" + super().hash()


@functools.cache
def _cuda_backend(capability: int) -> CUDABackend:
    return CUDABackend(GPUTarget("cuda", capability, 32))


class SimCompiler:
    """Implements Triton's ``BaseBackend`` for the target ``("sim", capability, 32)`` by way of the CUDA back end."""

    def __init__(self, target: GPUTarget) -> None:
        self.capability = int(target.arch)
        self.cuda = _cuda_backend(self.capability)

    def hash(self) -> str:
        return f"triton_dist-sim-{FORMAT}-{triton.__version__}-{self.capability}"

    def parse_options(self, options: dict) -> SimOptions:
        cuda = self.cuda.parse_options(dict(options))
        values = {field.name: getattr(cuda, field.name) for field in fields(CUDAOptions)}
        values["extern_libs"] = dict(values["extern_libs"])
        return SimOptions(**values)

    def pack_metadata(self, metadata) -> tuple:
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options) -> dict:
        return self.cuda.get_codegen_implementation(options)

    def get_module_map(self) -> dict:
        return self.cuda.get_module_map()

    def load_dialects(self, context) -> None:
        self.cuda.load_dialects(context)

    def add_stages(self, stages: dict, options: SimOptions, language) -> None:
        stages["ttir"] = lambda module, metadata: self._make_ttir(module, metadata, options)
        stages["simir"] = lambda module, metadata: self._generic_form(module, self._layouts(module, options)).encode()

    def _make_ttir(self, module, metadata: dict, options: SimOptions):
        module = self.cuda.make_ttir(module, metadata, options, self.capability)
        metadata["name"] = module.get_entry_func_name()
        metadata["shared"] = 0
        return module

    def _layouts(self, module, options: SimOptions) -> str:
        """How the CUDA back end lays out tiles of inline assembly, see ``asm_layouts``; "" where that is not needed or known."""
        if not needs_layouts(str(module)):
            return ""
        copy, context = self._copy(module)
        metadata = {"target": self.cuda.target, **vars(options)}
        try:
            return find_layouts(str(self.cuda.make_ttgir(copy, metadata, options, self.capability)))
        except RuntimeError:
            # Passes that do not take a kernel of the simulator's: then nothing is known, and nothing else is lost.
            return ""

    def _generic_form(self, module, layouts: str) -> str:
        copy, context = self._copy(module)
        builder = ir.builder(context)
        if layouts:
            copy.set_attr(ATTRIBUTE, builder.get_string_attr(layouts))
        copy.set_attr("generic", builder.get_int32_attr(1))
        return str(copy)

    def _copy(self, module):
        """The module in a context of its own, and that."""
        context = ir.context()
        ir.load_dialects(context)
        self.load_dialects(context)
        handle, path = tempfile.mkstemp(suffix=".ttir")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(str(module))
            copy = ir.parse_mlir_module(path, context)
        finally:
            os.unlink(path)
        copy.context = context
        return copy, context
