"""Loading every kernel of an operator before one of them waits.

A kernel that is launched for the first time is first loaded onto the GPU, and the driver may do that only when the GPU's context is
idle. If a kernel that waits for this one is already spinning there, the load waits for it and it for the load, for ever. So an operator
calls ``preload`` with all its kernels before its first launch. Triton's ``warmup`` only compiles (on 3.6 to 3.9 it returns before the
module is loaded), and with lazy loading, CUDA's default, having the module is not having the function; here both are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .cuda.nvshmem import library_in_use
from .world import require_world

ALIGNMENT = 16
"""Triton compiles a kernel of its own for pointers and integers that are multiples of this."""

_loaded: set[Hashable] = set()
"""(device, NVSHMEM's library if it is linked into kernels, operator, key) of what was loaded; never shrinks, as Triton keeps its kernels
for the life of the process, also those of an earlier world that was made of the other backing."""


@dataclass(frozen=True)
class Launch:
    """One launch that an operator is going to make: ``kernel[(programs,)](*arguments, **options)``."""

    kernel: Any
    arguments: Sequence[Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    programs: int = 1

    @classmethod
    def of(cls, kernel: Any, programs: int) -> Callable[..., Launch]:
        """``Launch.of(kernel, programs)(*arguments, **options)`` reads as the launch itself would."""
        return lambda *arguments, **options: cls(kernel, arguments, options, programs)

    def run(self) -> None:
        """Launch it on the current stream."""
        self.kernel[(self.programs,)](*self.arguments, **self.options)


def preload(what: str, key: Hashable, launches: Callable[[], Iterable[Launch]]) -> None:
    """Compile and load the kernels of ``launches()`` on this rank's GPU unless that was done before; nothing in the simulator.

    what: the operator's name. key: everything that decides which kernels Triton makes of the arguments: constants, dtypes, and
    ``specialization`` of tensors and integers. The same (what, key) again costs one look-up. launches: called at the first time only.
    It may be called while a CUDA graph is being captured, and then loads all the same.
    Raises NotInitializedError outside a world, and what compiling and loading raise.
    """
    world = require_world(what)
    entry = (world.device, library_in_use(), what, key)
    if entry in _loaded:
        return
    if world.device.type == "cuda":
        from .cuda import driver

        # Loading puts nothing on a stream that could be captured.
        with driver.allowed_while_capturing():
            for launch in launches():
                load(launch)
    _loaded.add(entry)


def load(launch: Launch) -> None:
    """Compile one kernel and load it onto the current GPU without launching it."""
    compiled = launch.kernel.warmup(*launch.arguments, grid=(1,), **launch.options)
    if hasattr(compiled, "result"):  # it is compiled in the background
        compiled = compiled.result()
    if compiled is None:
        return  # a hook of the user took the compilation over
    compiled.run  # noqa: B018  # Triton makes the launcher and loads the module when this is read
    _load_function(compiled.function)


def specialization(*arguments: Any) -> tuple[Hashable, ...]:
    """What of the arguments Triton compiles a kernel of its own for: for ``key`` of ``preload``.

    A tensor counts by dtype and alignment, an integer by width, divisibility, and whether it is 1; anything else by its value.
    """
    return tuple(_specialization_of(argument) for argument in arguments)


def _specialization_of(argument: Any) -> Hashable:
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT == 0
    if isinstance(argument, int) and not isinstance(argument, bool):
        bits = 32 if -(1 << 31) <= argument < 1 << 31 else 64 if argument < 1 << 63 else 65
        return bits, argument == 1, argument % ALIGNMENT == 0
    return argument


def _load_function(function: int) -> None:
    """Ask the driver to finish loading a function that it may have put off until its first launch."""
    from .cuda import driver

    # Before CUDA 12.4 the call is missing, and looking the function up, which Triton has done, loads it.
    if int(driver.call("cuDriverGetVersion")) >= 12_040:
        driver.call("cuFuncLoad", function)
