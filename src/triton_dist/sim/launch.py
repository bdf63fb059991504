"""From Triton's launcher call to a launch that the machine can run."""

from __future__ import annotations

import gc
import operator
import threading
from collections.abc import Callable

import numpy as np
import torch

from ..errors import InvalidArgumentError
from . import context
from .check.launch_lints import Argument
from .kernel import Kernel, load_kernel
from .machine import Machine
from .memory import Allocation, Memory, to_numpy_dtype
from .ops.descriptor import Descriptor
from .types import DTYPES
from .untraced import untraced
from .work import Work

_LARGEST_GRID = {"x": (1 << 31) - 1, "y": 65_535, "z": 65_535}
"""Programs along each axis that CUDA launches at most."""

HOST_MARK, PINNED_MARK = "_triton_dist_on_host", "_triton_dist_pinned"
"""Attributes of tensors that a script under ``triton-dist run`` made on the host, and in pinned memory."""

launched: Callable[[Launcher], object] | None = None
"""Called with what launches a kernel, before each launch; for tools that collect the kernels of a program. None calls nothing."""

_FLOATS = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "f32": "f32",
    "f64": "f64",
    "fp8e5": "f8E5M2",
    "fp8e4nv": "f8E4M3FN",
}


class KernelLaunch(Work):
    """A launched grid.

    values: the kernel's arguments as the generated code takes them. kept: objects that must live until the launch has run.
    next_program: how many programs have started. finished: how many have ended.
    """

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int], values: list, kept: tuple, memory: Memory) -> None:
        super().__init__(f"kernel {kernel.name} with grid {grid}")
        self.kernel = kernel
        self.grid = grid
        self.values = values
        self.kept: tuple | None = kept
        self.threads = kernel.threads
        self.count = grid[0] * grid[1] * grid[2]
        self.memory = memory
        self._found: dict[int, Allocation] = {}
        self.next_program = 0
        self.finished = 0

    def find(self, address: int) -> Allocation | None:
        """The allocation that a pointer argument points to. Arguments live as long as the launch, so it is looked up once."""
        found = self._found.get(address)
        if found is None or found.freed:
            found = self.memory.find(address)
            if found is not None:
                self._found[address] = found
        return found

    def program_id(self, number: int) -> tuple[int, int, int]:
        """The ids of the program that starts as the ``number``-th."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def start(self, machine: Machine) -> None:
        if self.count == 0:
            self.complete(machine)
        else:
            machine.start_launch(self)

    def complete(self, machine: Machine) -> None:
        self.kept = None
        super().complete(machine)

    def abandon(self) -> None:
        self.kept = None
        super().abandon()


class Launcher:
    """What Triton calls to launch a kernel; made once for each compiled kernel.

    source, metadata: what Triton compiled, and how.
    """

    def __init__(self, source, metadata) -> None:
        self.source, self.metadata = source, metadata
        self.name = metadata.name
        self.threads = metadata.num_warps * 32
        self.names = list(source.signature) if hasattr(source, "fn") else [str(key) for key in source.signature]
        self.signature = list(source.signature.values())
        # The cache may have compiled the same text in another file.
        code = getattr(getattr(getattr(source, "fn", None), "fn", None), "__code__", None)
        self.file = "" if code is None else code.co_filename
        self.code = code
        self.stages = int(getattr(metadata, "num_stages", 1))
        self._declared = {parameter.name for parameter in getattr(getattr(source, "fn", None), "params", ()) if parameter.is_constexpr}

    @untraced
    def __call__(self, grid_x, grid_y, grid_z, stream, function, packed, launch_metadata, enter_hook, exit_hook, *arguments) -> None:
        if launched is not None:
            launched(self)
        if enter_hook is not None:
            enter_hook(launch_metadata)
        grid = (_grid_size("x", grid_x), _grid_size("y", grid_y), _grid_size("z", grid_z))
        rank = context.current()
        timing, races = (rank.machine.timing, rank.machine.races) if rank is not None else (False, None)
        linted = races is not None and races.lints is not None
        kernel = load_kernel(function, self.name, self.threads, timing, self.file, races is not None, linted)
        if rank is not None:
            if races is not None and races.launch_lints is not None:
                races.launch_lints.launched(kernel, rank.rank, grid, self.stages, self.code, self._integers(arguments))
            rank.submit(self._launch(kernel, grid, arguments, rank.machine), stream=stream)
        else:
            machine = Machine(1, memory=_private_memory())
            machine.memory.adopt = _adopt_tensor
            try:
                machine.submit(0, 0, self._launch(kernel, grid, arguments, machine))
                machine.run()
                _local.clock = machine.clock
            finally:
                machine.close()
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _integers(self, arguments: tuple) -> dict[str, Argument]:
        """The integer arguments that are not declared as constants."""
        found = {}
        for name, kind, argument in zip(self.names, self.signature, arguments, strict=True):
            if type(argument) is int and name not in self._declared and isinstance(kind, str):
                found[name] = Argument(argument, kind == "constexpr")
        return found

    def _launch(self, kernel: Kernel, grid: tuple[int, int, int], arguments: tuple, machine: Machine) -> KernelLaunch:
        values: list = []
        for name, kind, argument in zip(self.names, self.signature, arguments, strict=True):
            _add_value(values, name, kind, argument, machine)
        # A tensor may get other memory (``tensor.data = ...``) before the kernel runs, which keeps what it was launched with.
        tensors = (getattr(argument, "base", argument) for argument in arguments)
        storages = tuple(each.untyped_storage() for each in tensors if isinstance(each, torch.Tensor) and each.layout is torch.strided)
        return KernelLaunch(kernel, grid, values, (*arguments, *storages), machine.memory)


def _adopt_tensor(memory: Memory, address: int) -> Allocation | None:
    """Register the tensor that lies at an address which no argument of the launch gave away: a table of ``data_ptr()`` numbers did.

    Only for a launch outside of ``simulate``, inside which every tensor is known from the start.
    """
    from torch._subclasses.fake_tensor import is_fake

    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and not is_fake(item) and item.device.type == "cpu" and item.layout == torch.strided:
            try:
                storage = item.untyped_storage()
                begin, nbytes = storage.data_ptr(), storage.nbytes()
            except (RuntimeError, NotImplementedError):
                continue  # a tensor without memory, such as torch.compile's
            if 0 < begin <= address < begin + nbytes:
                return memory.register(item)
    return None


def _grid_size(axis: str, size) -> int:
    try:
        value = operator.index(size)
    except TypeError:
        raise InvalidArgumentError(f"grid dimension {axis} is {size!r}; it has to be an integer") from None
    if not 0 <= value <= _LARGEST_GRID[axis]:
        raise InvalidArgumentError(f"grid dimension {axis} is {value}; a GPU takes 0 to {_LARGEST_GRID[axis]}")
    return value


def _add_value(values: list, name: str, kind, argument, machine: Machine) -> None:
    """Append what the generated function takes for one argument: nothing for a constexpr, several values for tuples and descriptors."""
    if isinstance(kind, (tuple, list)):
        fields = getattr(argument, "_fields", [str(number) for number in range(len(kind))])
        for field, inner, item in zip(fields, kind, argument, strict=True):
            _add_value(values, f"{name}.{field}", inner, item, machine)
    elif kind == "constexpr":
        return
    elif kind.startswith("tensordesc"):
        _add_descriptor(values, name, argument, machine)
    elif kind.startswith("*"):
        values.append(_pointer(name, argument, machine))
    elif kind in _FLOATS:
        values.append(DTYPES[_FLOATS[kind]].type(argument))
    elif kind in ("i1", "u1"):
        values.append(bool(argument))
    else:
        bits = int(kind[1:])
        value = int(argument) & ((1 << bits) - 1)
        values.append(value - (1 << bits) if value >> (bits - 1) else value)


def _pointer(name: str, argument, machine: Machine) -> int:
    """Address of a tensor argument; an int is an address already."""
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    tensor = getattr(argument, "base", argument) if not isinstance(argument, torch.Tensor) else argument
    if isinstance(tensor, torch.Tensor):
        if tensor.device.type != "cpu":
            raise InvalidArgumentError(
                f"argument {name!r} is on {tensor.device}; on the simulator tensors are on triton_dist.device(), the CPU"
            )
        if getattr(tensor, HOST_MARK, False) and not getattr(tensor, PINNED_MARK, False):
            raise InvalidArgumentError(f"argument {name!r} is in the host's memory, where a GPU's kernel can't reach it; pass its .cuda()")
        machine.memory.register(tensor, name=name)
        return tensor.data_ptr()
    return int(argument.data_ptr())


def _add_descriptor(values: list, name: str, argument, machine: Machine) -> None:
    tensor = argument.base
    address = _pointer(name, tensor, machine)
    dtype = to_numpy_dtype(tensor.dtype)
    shape, strides = [int(size) for size in argument.shape], [int(stride) for stride in argument.strides]
    nan = getattr(argument, "padding", "zero") == "nan"
    is_unsigned = dtype.kind == "u"
    dtype = np.dtype(f"i{dtype.itemsize}") if is_unsigned else dtype
    block = tuple(int(size) for size in argument.block_shape)
    values.append(Descriptor(address, shape, strides, block, dtype, nan, machine.memory.find(address), is_unsigned))
    values.extend(shape)
    values.extend(strides)


_local = threading.local()
"""Of launches outside ``simulate``: ``memory``, and ``clock``, the simulated nanoseconds that the last one took."""


def _private_memory() -> Memory:
    """Memory of launches outside ``simulate``, one a thread: a tensor that is launched again and again is registered once."""
    memory = getattr(_local, "memory", None)
    if memory is None:
        memory = _local.memory = Memory()
    return memory


def simulated_time(kernel_call: Callable[[], object]) -> float:
    """Simulated microseconds that the launches of ``kernel_call()`` take on the current stream."""
    rank = context.current()
    if rank is None:
        kernel_call()
        return _local.clock / 1000
    rank.synchronize()
    before = rank.machine.rank_clock(rank.rank)
    kernel_call()
    rank.synchronize()
    return (rank.machine.rank_clock(rank.rank) - before) / 1000
