"""Symmetric tensors: the same allocation, at the same offset, on every rank."""

from __future__ import annotations

import ast
import itertools
import linecache
import operator
import re
import sys
from collections.abc import Iterator, Sequence

import torch

from ..errors import InvalidArgumentError
from .team import find_team
from .world import current_world, require_world

_ASSIGNMENT = re.compile(r"\s*(?:\w+\.)*(\w+)\s*(?::[^=]+)?=(?!=)")
_PACKAGE = __name__.split(".")[0]


def symm_empty(
    shape: int | Sequence[int], dtype: torch.dtype = torch.float32, *, name: str | None = None, group: object = None
) -> torch.Tensor:
    """Allocate a symmetric tensor; the contents are unspecified.

    Collective: every rank of ``group``, and nobody else, calls it with the same shape and dtype, in the same order as its other
    symmetric allocations, and waits for the others.

    group: a ``torch.distributed`` process group, a DeviceMesh with one dimension or (mesh, name of a dimension), or a ``Team``
        (``triton_dist.make_team``); default all ranks. The tensor exists on these ranks only, at the same offset in their heaps.
    name: what error reports call it; by default the variable on the caller's line that the result is assigned to.
    Raises AllocationMismatchError, HeapFullError, AddressInUseError, InvalidArgumentError, NotInTeamError, NotInitializedError.
    """
    return _allocate("symm_empty", shape, dtype, name, group, zero=False)


def symm_zeros(
    shape: int | Sequence[int], dtype: torch.dtype = torch.float32, *, name: str | None = None, group: object = None
) -> torch.Tensor:
    """Allocate a symmetric tensor of zeros, as ``symm_empty``; when it returns, the memory of every rank is zero."""
    return _allocate("symm_zeros", shape, dtype, name, group, zero=True)


def symm_full(
    shape: int | Sequence[int], value: float, dtype: torch.dtype = torch.float32, *, name: str | None = None, group: object = None
) -> torch.Tensor:
    """Allocate a symmetric tensor and fill this rank's part with ``value`` on the current stream.

    A peer that reads it needs a barrier first, unlike with ``symm_zeros``.
    """
    return _allocate("symm_full", shape, dtype, name, group, zero=False).fill_(value)


def symm_peer(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    """A tensor over the same elements in world rank ``rank``'s memory; ``tensor`` may be any view of a symmetric tensor.

    Reading and writing it moves data between the ranks, in stream order of the caller; nothing orders it with the peer's work.
    Raises NotSymmetricError, UnreachablePeerError, UseAfterFreeError.
    """
    _require_tensor("symm_peer", tensor)
    if not hasattr(rank, "__index__"):
        raise InvalidArgumentError(f"symm_peer: rank={rank!r} must be an int, the peer's rank in the world")
    return require_world("symm_peer").heap.peer(tensor, rank)


def symm_free(tensor: torch.Tensor) -> None:
    """Free a symmetric tensor (or the one that ``tensor`` is a view of) on all its ranks.

    Collective, like the allocation. Using it afterwards is UseAfterFreeError in every function of this package; on GPUs kernels are
    not checked. Its memory is used again once no rank has a tensor there any more. Does not wait for the device: synchronize first if
    a kernel may still use it. Tensors that nothing refers to any more on any rank are freed without it, at a later collective call.
    """
    _require_tensor("symm_free", tensor)
    context = require_world("symm_free")
    context.heap.free(context, tensor)


def symm_adopt(tensor: torch.Tensor, *, name: str | None = None, group: object = None) -> torch.Tensor:
    """A symmetric tensor over the same bytes as ``tensor``, which another library made: torch's symmetric memory or its MemPool.

    Collective over ``group`` (as for ``symm_empty``): every rank passes a tensor of the same shape, strides and dtype, at the same place
    in an allocation of the same size. The memory is mapped a second time, at this package's addresses, so that ``symm_peer`` and
    ``dl.symm_at`` work on the tensor returned; ``tensor`` stays valid and lives as long as that one does. On the device the two are one
    memory only between kernels and copies: a kernel must not write through one and read through the other. Nothing may use the memory
    during the call. The tensor goes as other symmetric ones do: dropped, by ``symm_free``, or with its world.
    A tensor that is symmetric already is returned as it is.

    Raises NotSymmetricError, on every rank and saying why, where it can't be done: memory of cudaMalloc (torch's ordinary tensors),
    memory that the driver does not export to other processes, a tensor spread over several allocations.
    """
    context = require_world("symm_adopt")
    return context.heap.adopt(context, find_team(group, "symm_adopt"), tensor, name or assigned_name())


def is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` lies in symmetric memory of the present world that has not been freed."""
    context = current_world()
    if context is None:
        return False
    block = context.heap.lookup(address_of(tensor))
    return block is not None and not block.freed and not getattr(block, "foreign", "")


def _require_tensor(what: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgumentError(f"{what} takes a tensor, as symm_empty and symm_zeros make it, not {tensor!r}")


def address_of(tensor: torch.Tensor) -> int:
    """Address of a tensor's first element, also of a tensor without elements (whose ``data_ptr()`` is 0)."""
    return tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()


def _allocate(what: str, shape: int | Sequence[int], dtype: torch.dtype, name: str | None, group: object, *, zero: bool) -> torch.Tensor:
    context = require_world(what)
    if not isinstance(dtype, torch.dtype):
        raise InvalidArgumentError(f"{what}: dtype={dtype!r} must be a torch dtype such as torch.float32")
    return context.heap.allocate(context, find_team(group, what), sizes_of(what, shape), dtype, name or assigned_name(), zero=zero)


def sizes_of(what: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of a shape as ints. Negative ones are the heap's to refuse: on all ranks, if one rank has them."""
    try:
        sizes = tuple(operator.index(size) for size in ((shape,) if hasattr(shape, "__index__") else shape))  # type: ignore[union-attr,arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{what}: shape={shape!r} must be an integer or a sequence of integers") from None
    if any(size >= 1 << 63 for size in sizes):
        raise InvalidArgumentError(f"{what}: shape={shape!r} has a size that does not fit into 64 bits")
    return sizes


def assigned_name(*through: str) -> str | None:
    """The variable that the statement outside this package assigns to, from its source line; ``a, b = f(), g()`` too.

    through: other packages whose functions stand between.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (_PACKAGE, *through):
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
    text, shift = line.strip(), 0
    if text.startswith("elif "):
        text, shift = text[2:], 2
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        # The first line of a statement that has several.
        match = _ASSIGNMENT.match(line)
        return match.group(1) if match else None
    column = next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))[2]
    column = None if column is None else column - (len(line) - len(line.lstrip())) - shift
    names = [name for name, value in _assignments(tree) if column is None or value.col_offset <= column < (value.end_col_offset or 0)]
    return names[0] if len(names) == 1 else None


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What is assigned to a name or an attribute somewhere in ``tree``."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) or node.value is None:
            continue
        whole = node.targets[0] if isinstance(node, ast.Assign) else node.target
        several = isinstance(whole, ast.Tuple) and isinstance(node.value, ast.Tuple)
        for target, value in zip(whole.elts, node.value.elts, strict=False) if several else [(whole, node.value)]:  # type: ignore[attr-defined]
            if isinstance(target, (ast.Name, ast.Attribute)):
                yield ast.unparse(target).rpartition(".")[2], value
