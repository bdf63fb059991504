"""A compiled kernel: generated code with its map back to source lines."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from types import TracebackType

from . import nvshmem_calls
from .check.kernel_lints import KernelFacts, find_kernel_facts
from .codegen import generate
from .ir import UNKNOWN, Location, parse_module
from .relocation import relocate
from .requests import Steps

_HIDDEN = (
    f"{os.sep}triton{os.sep}language{os.sep}",
    f"{os.sep}triton_dist{os.sep}language{os.sep}",
    f"{os.sep}triton_dist{os.sep}primitives{os.sep}",
    f"{os.sep}torch{os.sep}distributed{os.sep}_symmetric_memory{os.sep}",
)
"""Files whose lines are not the user's: reports name the line that calls them."""

_KEPT = 512
_lock = threading.Lock()
_kernels: OrderedDict[tuple[bytes, int, bool, str, bool, bool], Kernel] = OrderedDict()


class Kernel:
    """Generated code of one compiled kernel.

    function: generator function ``(program, *values)``; its source is in ``function.source``.
    name: of the kernel; threads: of a block. timing: whether it is the form that only takes time. file: that the kernel's source
    is in now, if that is known. checked: whether it is the form that looks for data races. linted: whether it looks for misuse, too;
    ``facts`` are then what its IR says.
    """

    def __init__(
        self, text: bytes, name: str, threads: int, timing: bool = False, file: str = "", checked: bool = False, linted: bool = False
    ) -> None:
        module = parse_module(text.decode(), _HIDDEN)
        nvshmem_calls.translate(module)
        if file:
            relocate(module, name, file)
        self.facts = find_kernel_facts(module) if linted else KernelFacts()
        self.name = name
        self.threads = threads
        self.function, self._lines, self.table, self._filename = generate(module, name, threads, timing, checked, linted)

    def location(self, number: int) -> Location:
        """Source line by the number that generated code passes to the run time; -1 is unknown."""
        return self.table[number] if 0 <= number < len(self.table) else UNKNOWN

    def _at(self, line: int) -> Location:
        return self._lines[line - 1] if 0 < line <= len(self._lines) else UNKNOWN

    def location_of(self, generator: Steps | None) -> Location:
        """Source line where a suspended program stands."""
        found = UNKNOWN
        while generator is not None:
            frame = getattr(generator, "gi_frame", None)
            if frame is not None and frame.f_code.co_filename == self._filename:
                found = self._at(frame.f_lineno)
            generator = getattr(generator, "gi_yieldfrom", None)
        return found

    def location_of_error(self, traceback: TracebackType | None) -> Location:
        """Source line at which an exception left the generated code."""
        found = UNKNOWN
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._filename:
                found = self._at(traceback.tb_lineno)
            traceback = traceback.tb_next
        return found


def load_kernel(
    text: bytes, name: str, threads: int, timing: bool = False, file: str = "", checked: bool = False, linted: bool = False
) -> Kernel:
    """The kernel for a module in generic form; generated once for each text, form and file. See ``Kernel``."""
    key = (text, threads, timing, file, checked, linted)
    with _lock:
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = Kernel(text, name, threads, timing, file, checked, linted)
            while len(_kernels) > _KEPT:
                _kernels.popitem(last=False)
        else:
            _kernels.move_to_end(key)
        return kernel


def forget_kernels() -> None:
    """Generate kernels anew: what they are made of has changed."""
    with _lock:
        _kernels.clear()
