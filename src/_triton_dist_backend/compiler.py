"""The compiler half of the simulator's Triton back end: a shell that loads ``triton_dist.sim.compiler`` on first use."""

from __future__ import annotations

from triton.backends.compiler import BaseBackend, GPUTarget


class SimBackend(BaseBackend):
    """Compiles a kernel to the generic form of its TTIR; every method is delegated to ``triton_dist.sim.compiler``."""

    binary_ext = "simir"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "sim"

    def __init__(self, target: GPUTarget) -> None:
        super().__init__(target)
        from triton_dist.sim.compiler import SimCompiler

        self.implementation = SimCompiler(target)

    def hash(self) -> str:
        return self.implementation.hash()

    def parse_options(self, options: dict) -> object:
        return self.implementation.parse_options(options)

    def pack_metadata(self, metadata):
        return self.implementation.pack_metadata(metadata)

    def get_codegen_implementation(self, options):
        return self.implementation.get_codegen_implementation(options)

    def get_module_map(self):
        return self.implementation.get_module_map()

    def load_dialects(self, context) -> None:
        self.implementation.load_dialects(context)

    def add_stages(self, stages: dict, options, language=None) -> None:
        self.implementation.add_stages(stages, options, language)
