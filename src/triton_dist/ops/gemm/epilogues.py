"""What a caller wants done to the elements of a product, or of a sum of products, before they are stored.

An epilogue is a function of ``@triton.jit`` that gets an fp32 tile of the result and returns one: ``f(tile, *arguments)``, or, if it has to
know where the tile lies, ``f(tile, row, column, inside, *arguments)``: row, (TILE_M, 1), and column, (1, TILE_N), count from the first
element of this rank's result, and what is loaded from there needs ``mask=inside``. It may run for elements outside of the result, and in
any order; it must not store, signal or wait. ``relu``, ``gelu``, ``silu``, ``scale``, ``add`` and ``multiply`` are ready-made.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

import triton_dist

from ...errors import InvalidArgumentError
from ...runtime.preload import Launch, preload, specialization

_ELEMENTS = 2048
_PROGRAMS = 1056


@triton.jit
def apply_epilogue(tile, row, column, inside, epilogue_row, epilogue_args, EPILOGUE: tl.constexpr, PLACED: tl.constexpr):
    """``tile`` after the epilogue; the tile itself if there is none.

    epilogue_row: the result's row that is number 0 to ``row``. epilogue_args: a tuple, or None if there are none.
    """
    result = tile
    if EPILOGUE is not None:
        at = epilogue_row + row
        if epilogue_args is None:
            result = EPILOGUE(tile, at, column, inside) if PLACED else EPILOGUE(tile)
        else:
            result = EPILOGUE(tile, at, column, inside, *epilogue_args) if PLACED else EPILOGUE(tile, *epilogue_args)
        tl.static_assert(result.shape == tile.shape, "an epilogue has to return a tile of the shape that it got")
    return result


@triton_dist.jit(do_not_specialize=["epilogue_row"])
def epilogue_kernel(
    out, rows, columns, stride, epilogue_row, epilogue_args,
    EPILOGUE: tl.constexpr, PLACED: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """``out``, (rows, columns), after the epilogue, in place: for what a library has computed."""
    tiles_n = tl.cdiv(columns, TILE_N)
    for tile in range(tl.program_id(0), tl.cdiv(rows, TILE_M) * tiles_n, tl.num_programs(0)):
        row = (tile // tiles_n * TILE_M + tl.arange(0, TILE_M))[:, None]
        column = (tile % tiles_n * TILE_N + tl.arange(0, TILE_N))[None, :]
        inside = (row < rows) & (column < columns)
        pointers = out + row.to(tl.int64) * stride + column
        value = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
        value = apply_epilogue(value, row, column, inside, epilogue_row, epilogue_args, EPILOGUE, PLACED)
        tl.store(pointers, value.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Epilogue:
    """A function of ``@triton.jit`` and what it gets besides the tile; see the module.

    arguments: tensors (pointers to the function) on the result's device, and numbers. shape: rows and columns that the result has to
    have; None is any number.
    first_row: the result's row that the operator counts as 0; operators set it.
    """

    function: JITFunction
    arguments: tuple[torch.Tensor | float, ...] = ()
    shape: tuple[int | None, int | None] = (None, None)
    first_row: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.function, JITFunction):
            raise InvalidArgumentError(f"an epilogue is a function with @triton.jit, or an Epilogue of one, not {self.function!r}")
        wrong = [value for value in self.arguments if not isinstance(value, torch.Tensor | int | float)]
        if wrong:
            raise InvalidArgumentError(f"an epilogue's arguments are tensors and numbers, not {wrong[0]!r}")
        if self.parameters not in (1 + len(self.arguments), 4 + len(self.arguments)):
            names = ", ".join(self.function.arg_names)
            raise InvalidArgumentError(
                f"epilogue {self.function.__name__}({names}) does not go with {len(self.arguments)} arguments; it has to take (tile) or "
                "(tile, row, column, inside), and then one parameter for each argument: Epilogue(function, (tensor, 0.5))"
            )

    @property
    def parameters(self) -> int:
        return len(self.function.arg_names)

    @property
    def placed(self) -> bool:
        """Whether the function gets to know where the tile lies."""
        return self.parameters == 4 + len(self.arguments)

    def after(self, rows: int) -> Epilogue:
        """For a part of the result that begins ``rows`` rows further down; the whole was checked."""
        return replace(self, first_row=self.first_row + rows, shape=(None, None))

    def identity(self) -> Hashable:
        """What makes two epilogues the same to a captured graph: tensors by address."""
        return (self.function, self.first_row, *[(v.data_ptr(), v.dtype) if isinstance(v, torch.Tensor) else v for v in self.arguments])

    def check(self, what: str, out: torch.Tensor) -> None:
        """what: the operator. Raises InvalidArgumentError for what can't be done to ``out``."""
        if any(wanted not in (None, size) for wanted, size in zip(self.shape, out.shape, strict=True)):
            raise InvalidArgumentError(f"{what}: the epilogue is for a result of {self.shape}, and this one is {tuple(out.shape)}")
        for tensor in self.arguments:
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device != out.device:
                raise InvalidArgumentError(f"{what}: a tensor of the epilogue is on {tensor.device} and the result on {out.device}")
            if tensor.is_neg():
                raise InvalidArgumentError(f"{what}: a tensor of the epilogue is a lazily negated view; pass its resolve_neg()")
            if tensor.untyped_storage().data_ptr() == out.untyped_storage().data_ptr() and out.numel():
                raise InvalidArgumentError(
                    f"{what}: a tensor of the epilogue shares its memory with out, which holds products before the epilogue reads; "
                    "give another out"
                )


def as_epilogue(what: str, given: object) -> Epilogue | None:
    """The epilogue that a caller has given to operator ``what``. Raises InvalidArgumentError."""
    if given is None or isinstance(given, Epilogue):
        return given
    try:
        return Epilogue(given)  # type: ignore[arg-type]  # checked there
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{what}: {error}") from None


def arguments_of(epilogue: object) -> tuple:
    """What the function gets besides the tile, for autograd to look at."""
    return epilogue.arguments if isinstance(epilogue, Epilogue) else ()


def refuse_epilogue(what: str, epilogue: object, who: str) -> None:
    """Raises InvalidArgumentError if there is one. who: what has no way to deal with it, "autograd knows"."""
    if epilogue is not None:
        raise InvalidArgumentError(
            f"{what}: no epilogue is one that {who}; leave it out and do the same to the result by torch's functions, or call {what} "
            "under torch.no_grad() and outside of torch.compile"
        )


def epilogue_options(epilogue: Epilogue | None) -> dict[str, Any]:
    """The parameters of a kernel that calls ``apply_epilogue``."""
    if epilogue is None:
        return {"epilogue_row": 0, "epilogue_args": None, "EPILOGUE": None, "PLACED": False}
    function, arguments = epilogue.function, tuple(epilogue.arguments) or None
    return {"epilogue_row": epilogue.first_row, "epilogue_args": arguments, "EPILOGUE": function, "PLACED": epilogue.placed}


def epilogue_key(epilogue: Epilogue | None) -> tuple[Hashable, ...]:
    """What of an epilogue decides which kernels Triton compiles, for ``preload``."""
    return () if epilogue is None else (epilogue.function, *specialization(*epilogue.arguments))


def apply_to(out: torch.Tensor, epilogue: Epilogue | None) -> None:
    """The epilogue of what lies in ``out``, (rows, columns) with last stride 1, queued on the current stream; nothing without one."""
    if epilogue is not None and out.numel():
        launch = epilogue_launch(out, epilogue)
        # A caller may be in the capture of a CUDA graph, in which Triton by itself can't load a kernel.
        preload("an epilogue", (*specialization(*launch.arguments), *epilogue_key(epilogue)), lambda: [launch])
        launch.run()


def epilogue_launch(out: torch.Tensor, epilogue: Epilogue) -> Launch:
    """``epilogue_kernel`` for ``out``, (rows, columns), not empty, with last stride 1."""
    rows, columns = out.shape
    tile_n = min(_ELEMENTS, max(16, triton.next_power_of_2(columns)))
    tile_m = _ELEMENTS // tile_n
    programs = min(_PROGRAMS, triton.cdiv(rows, tile_m) * triton.cdiv(columns, tile_n))
    return Launch.of(epilogue_kernel, programs)(
        out, rows, columns, out.stride(0), **epilogue_options(epilogue), TILE_M=tile_m, TILE_N=tile_n, num_warps=8
    )


@triton.jit
def _relu(tile):
    return tl.maximum(tile, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _gelu(tile):
    return 0.5 * tile * (1.0 + tl.math.erf(tile * 0.7071067811865476))


@triton.jit
def _silu(tile):
    return tile / (1.0 + tl.exp(-tile))


@triton.jit
def _scale(tile, factor):
    return tile * factor


@triton.jit
def _scale_by(tile, factor):
    return tile * tl.load(factor).to(tl.float32)


@triton.jit
def _add(tile, row, column, inside, other, row_stride, column_stride):
    return tile + _element(row, column, inside, other, row_stride, column_stride)


@triton.jit
def _multiply(tile, row, column, inside, other, row_stride, column_stride):
    return tile * _element(row, column, inside, other, row_stride, column_stride)


@triton.jit
def _element(row, column, inside, other, row_stride, column_stride):
    offset = row.to(tl.int64) * row_stride + column.to(tl.int64) * column_stride
    return tl.load(other + offset, mask=inside, other=0.0).to(tl.float32)


relu = Epilogue(_relu)
gelu = Epilogue(_gelu)
"""By the error function, as torch's default."""
silu = Epilogue(_silu)


def scale(factor: float | torch.Tensor) -> Epilogue:
    """Times a number, or times the one element of a tensor that the kernel reads."""
    if not isinstance(factor, torch.Tensor):
        return Epilogue(_scale, (float(factor),))
    if factor.numel() != 1:
        raise InvalidArgumentError(f"scale: factor has to be a number or a tensor of one element, not of shape {tuple(factor.shape)}")
    return Epilogue(_scale_by, (factor,))


def add(other: torch.Tensor) -> Epilogue:
    """Plus ``other``, such as a residual: of the result's shape, or (columns,), which is added to each row; any dtype and strides."""
    return _elementwise("add", _add, other)


def multiply(other: torch.Tensor) -> Epilogue:
    """Times ``other``, such as a gate: as for ``add``."""
    return _elementwise("multiply", _multiply, other)


def _elementwise(name: str, function: JITFunction, other: torch.Tensor) -> Epilogue:
    if not isinstance(other, torch.Tensor) or other.dim() not in (1, 2):
        seen = f"shape {tuple(other.shape)}" if isinstance(other, torch.Tensor) else repr(type(other))
        raise InvalidArgumentError(f"{name}: other has to be (rows, columns) or (columns,), got {seen}")
    if other.dim() == 1:
        return Epilogue(function, (other, 0, other.stride(0)), shape=(None, other.shape[0]))
    return Epilogue(function, (other, *other.stride()), shape=(other.shape[0], other.shape[1]))
