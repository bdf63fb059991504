"""How ``torch.distributed._symmetric_memory`` comes to use the simulator: only while ``simulate`` runs, undone when it ends."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.distributed._symmetric_memory as torch_module
import torch.utils._triton as torch_triton
import triton
from torch._C import _distributed_c10d as c10d_module
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory

from ...errors import SymmetricMemoryError, UnsupportedOperationError
from ...runtime.symmetric import assigned_name
from .. import context, nvshmem_calls
from ..context import RankContext
from .allocations import SymmetricAllocations
from .arguments import dtype_of, sizes_of, whole_number
from .groups import handle_of, set_group_info
from .handle import SymmetricMemory
from .words import memset32, stream_write_value32

BACKENDS = ("CUDA", "NVSHMEM", "NCCL")

_BACKEND = "torch symmetric memory: backend"


class PerRank(MutableMapping):
    """A dict of each rank's own, in place of one that torch's module keeps for the process. name: of the dict, among a rank's."""

    def __init__(self, name: str, outside: dict) -> None:
        self._name = f"torch symmetric memory: {name}"
        self._outside = outside

    def _items(self) -> dict:
        rank = context.current()
        return self._outside if rank is None else rank.workspaces.setdefault(self._name, {})

    def __getitem__(self, key: Any) -> Any:
        return self._items()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items()[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._items()[key]

    def __iter__(self) -> Iterator:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())


@functools.cache
def _define_triton_functions() -> ModuleType | None:
    """Let torch define its Triton functions for NVSHMEM, which it leaves out where there is no GPU; None for a torch without them."""
    name = f"{torch_module.__name__}._nvshmem_triton"
    has_triton, torch_triton.has_triton = torch_triton.has_triton, lambda: True  # type: ignore[assignment]
    try:
        module = importlib.import_module(name)
        return module if hasattr(module, "put") else importlib.reload(module)
    except ImportError:
        return None
    finally:
        torch_triton.has_triton = has_triton


def _find_device_library(original: Callable[[], str]) -> Callable[[], str]:
    """The library's path where it is installed; else the file that says what the functions mean here, for nothing is linked."""

    def find_device_library() -> str:
        try:
            return original()
        except RuntimeError:
            return nvshmem_calls.__file__

    return find_device_library


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Replace what torch's class and module do, in the threads of ranks. Other threads get the original functions."""
    replaced: dict[tuple[Any, str], Any] = {
        (_SymmetricMemory, name): staticmethod(_in_ranks(function, getattr(_SymmetricMemory, name)))
        for name, function in _METHODS.items()
        if hasattr(_SymmetricMemory, name)
    }
    for name, function in _FUNCTIONS.items():
        if hasattr(torch_module, name):
            replaced[torch_module, name] = _in_ranks(function, getattr(torch_module, name))
    for name in ("_group_name_to_workspace_tensor", "_group_name_to_store", "_backend_streams", "_symm_mem_pools"):
        if hasattr(torch_module, name):
            replaced[torch_module, name] = PerRank(name, getattr(torch_module, name))
    for name in ("empty", *_OF_NCCL):
        if hasattr(torch_module, name):
            original = getattr(torch_module, name)
            replaced[torch_module, name] = _in_ranks(_checked_empty(original) if name == "empty" else _of_nccl(name, original), original)
    for name in _OF_CUDA:
        if hasattr(torch_module, name):
            original = getattr(torch_module, name)
            replaced[torch_module, name] = _in_ranks(_of_cuda(name, original), original)
    functions = _define_triton_functions()
    if functions is not None:
        finder = functions.NvshmemLibFinder
        replaced[finder, "find_device_library"] = staticmethod(_find_device_library(finder.find_device_library))
        replaced[c10d_module, "_nvshmemx_cumodule_init"] = lambda module: None
    missing = object()
    before = {(owner, name): vars(owner).get(name, missing) for owner, name in replaced}
    hook = triton.knobs.runtime.jit_post_compile_hook
    pad_size = _SymmetricMemory.signal_pad_size
    try:
        for (owner, name), value in replaced.items():
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in before.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        if functions is not None and _is_of(functions, triton.knobs.runtime.jit_post_compile_hook):
            triton.knobs.runtime.jit_post_compile_hook = hook
        if _SymmetricMemory.signal_pad_size != pad_size:
            _SymmetricMemory.signal_pad_size = pad_size


def _is_of(functions: ModuleType, hook: Any) -> bool:
    """Whether a hook is the one that ``requires_nvshmem`` sets; another one is the program's own."""
    return getattr(hook, "__module__", None) == functions.__name__


def _in_ranks(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        rank = context.current()
        return original(*args, **kwargs) if rank is None else function(rank, *args, **kwargs)

    return call


_OF_NCCL = ("put_signal", "wait_signal", "reduce_scatter_offset")
"""Functions of torch's module for memory of the backend "NCCL"."""


def _of_nccl(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(rank: RankContext, *args: Any, **kwargs: Any) -> Any:
        if _backend(rank) != "NCCL":
            raise SymmetricMemoryError(
                f'{name} is for memory of the backend "NCCL", and that of this rank is "{_backend(rank)}"; call set_backend("NCCL") before '
                "the memory is allocated, or use the methods of the handle"
            )
        return original(*args, **kwargs)

    return call


_OF_CUDA = (
    "_pipelined_multi_all_gather_and_consume",
    "_pipelined_all_gather_and_consume",
    "_pipelined_all_gather_and_consume_last_dim",
    "_pipelined_produce_and_all2all",
    "_low_contention_all_gather",
    "_low_contention_reduce_scatter",
)
"""Python functions of torch's module that ask ``torch.cuda`` for streams."""


def _of_cuda(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(rank: RankContext, *args: Any, **kwargs: Any) -> Any:
        if rank.shown_device is None:
            raise UnsupportedOperationError(
                f"{name} asks torch.cuda for streams, which ranks have under `triton-dist run` only; run the script by that, or call the "
                "operators of torch.ops.symm_mem"
            )
        return original(*args, **kwargs)

    return call


def _checked_empty(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(rank: RankContext, *size: Any, **kwargs: Any) -> Any:
        sizes = sizes_of(size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size, "empty")
        dtype = kwargs.get("dtype")
        if dtype is not None:
            dtype_of(dtype, "empty")
        return original(*sizes, **kwargs)

    return call


def allocations_of(rank: RankContext) -> SymmetricAllocations:
    """The pieces of a rank's simulation."""
    return rank.simulation.symmetric_memory


def _empty_strided_p2p(
    rank: RankContext,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    group_name: str | None = None,
    alloc_id: int | None = None,
    *,
    name: str | None = None,
) -> torch.Tensor:
    size, stride = sizes_of(size, "empty_strided_p2p"), sizes_of(stride, "empty_strided_p2p")
    if len(size) != len(stride):
        raise SymmetricMemoryError(f"empty_strided_p2p: size {size} and stride {stride} make no tensor")
    elements = 0 if 0 in size else 1 + sum((one - 1) * step for one, step in zip(size, stride, strict=True))
    allocations = allocations_of(rank)
    asked = (
        elements * dtype.itemsize,
        dtype.itemsize,
        name or assigned_name("torch"),
        group_name,
        _backend(rank),
        _SymmetricMemory.signal_pad_size,
    )
    flat = allocations.allocate(rank, *asked) if alloc_id is None else allocations.allocate_again(rank, alloc_id, *asked)
    return flat.view(dtype).as_strided(size, stride)


def _rendezvous(rank: RankContext, tensor: torch.Tensor, group_name: str | None = None) -> SymmetricMemory | None:
    """None for memory that is not symmetric, as torch's."""
    return None if allocations_of(rank).find(tensor) is None else handle_of(rank, tensor, group_name, "rendezvous")


def _backend(rank: RankContext) -> str:
    return rank.workspaces.get(_BACKEND, "CUDA")


def _set_backend(rank: RankContext, name: str) -> None:
    if name not in BACKENDS:
        raise SymmetricMemoryError(f"set_backend: {name!r} is not one of {BACKENDS}")
    rank.workspaces[_BACKEND] = name


def _is_symm_mem_tensor(rank: RankContext, tensor: torch.Tensor) -> bool:
    return allocations_of(rank).find(tensor) is not None


def _has_multicast_support(rank: RankContext, device_type: Any, device_index: int = 0) -> bool:
    return DeviceType(device_type) == DeviceType.CUDA and allocations_of(rank).has_multicast


def _no_pool(rank: RankContext, device: Any) -> None:
    raise UnsupportedOperationError("the simulator has no memory pools; allocate by torch.distributed._symmetric_memory.empty")


def _workspace(rank: RankContext, group_name: str, min_size: int) -> SymmetricMemory:
    """``get_symm_mem_workspace``: grows by a new allocation, which all ranks of the group must make."""
    min_size = whole_number(min_size, "get_symm_mem_workspace", "min_size")
    held = torch_module._group_name_to_workspace_tensor
    tensor = held.get(group_name)
    if tensor is None or tensor.numel() < min_size:
        if rank.capture is not None and rank.capture.takes(rank.stream):
            has = 0 if tensor is None else tensor.numel()
            raise SymmetricMemoryError(
                f"get_symm_mem_workspace: the workspace of group {group_name!r} has {has} bytes and would have to grow to {min_size} while "
                "a CUDA graph is captured; ask for them before"
            )
        name = f"workspace_of_group_{group_name}"
        tensor = _empty_strided_p2p(rank, (min_size,), (1,), torch.uint8, torch.device("cuda"), group_name, name=name)
        held[group_name] = tensor
    return handle_of(rank, tensor, group_name, "get_symm_mem_workspace")


_METHODS: dict[str, Callable[..., Any]] = {
    "set_group_info": set_group_info,
    "empty_strided_p2p": _empty_strided_p2p,
    "rendezvous": _rendezvous,
    "set_backend": _set_backend,
    "get_backend": lambda rank, device: _backend(rank),
    "is_symm_mem_tensor": _is_symm_mem_tensor,
    "has_multicast_support": _has_multicast_support,
    "get_mempool_allocator": _no_pool,
    "memset32": memset32,
    "stream_write_value32": stream_write_value32,
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "get_symm_mem_workspace": _workspace,
    "is_nvshmem_available": lambda rank: True,
    "get_mem_pool": _no_pool,
    "_should_use_implicit_mempool": lambda rank: False,
}
