"""GEMM + reduce-scatter: each rank gets its rows of ``sum over the ranks of a @ b``, and products run while earlier ones travel.

"pipelined": cuBLAS multiplies the rows of one destination after the other, on two streams in turn, the next rank's first and this rank's
own last; the copy engine takes each finished block to its owner's staging memory, and a kernel there adds up the ranks' blocks when all are
there (see ``pieces``). It wins where the product takes longer than the scattering. "direct" is as "pipelined" without the copies: cuBLAS
stores its result over the link. "fused": one persistent TMA kernel, whose tiles go to their owners by TMA stores. "split": one product,
then one kernel that pushes rows to their owners and adds: for few rows, where cutting the product would read B again for each piece.
"small": a single kernel, which multiplies and pushes its tiles from registers: for very few rows. "library" and "torch" are cuBLAS followed
by ``torch.distributed``, and torch's fused operator. ``scatter_plan`` chooses by shape.

Partial products are rounded to the output's dtype, in which they travel, then added up in fp32 from the group's first rank to its last
and rounded once (with "library" and "torch": as these do it).

Who writes, resets and waits for each signal of "pipelined", "direct" and "fused", once a call:
- ``ready[s]`` of a rank is set to 1 ("fused": to the number of tiles of a block) by rank ``s`` when its call starts: what was staged there
  in the call before has been added up. The rank waits for it and takes it back to 0 before it signals ``s`` anything.
- ``flags[p, s]`` of a rank is set to 1 by rank ``s`` behind piece ``p`` of its block ("fused": its programs add the numbers of their
  tiles), waited for by the kernel that adds, and reset to 0 by the last program of it. Rank ``s`` sets it again only after it has seen
  this rank's next ``ready``, which the stream orders behind that kernel.
So a slot is written again only after it was read; there is no barrier, nothing is counted on the host, and a call captured in a CUDA graph
can be replayed. "split" and "small" alternate between two slots, see ``collectives.staging``: a rank that has met its peers in one call
knows that they have ended the call before, and so have read the slot that it fills next.
The method is that of tile-centric overlapping (arXiv 2406.06858, 2504.19442), with whole blocks of rows as the tiles.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

from ...errors import InvalidArgumentError
from ...runtime.preload import preload
from ...runtime.streams import Wait, Write, current_stream, signal_batch, stream, write_value
from ...runtime.symmetric import symm_peer
from ..collectives.arguments import library_can
from ..team import GrowingBuffer, Team, workspace
from ..tensors import filled
from . import library
from .ag_gemm import ag_gemm
from .call import Call, Operator, run_call
from .epilogues import Epilogue, apply_to, arguments_of, epilogue_key, refuse_epilogue
from .gradients import GemmRs, refuse_output, wants_gradient
from .operands import Operands, Request
from .pieces import Cuts, Pieces
from .plan import Tiles
from .scatter_plan import RS_METHODS, choose_rs_method
from .scattering import scattering_launch, suiting_scattering
from .slots import Slots, addition_of, blocks_in, local_buffer, slots_of
from .small import push_and_add_launch, small_launch, suits_small


@dataclass(frozen=True)
class _Problem:
    """One call: its checked arguments, and what follows from them. out: (rows, columns)."""

    operands: Operands
    out: torch.Tensor
    team: Team
    group: object
    tiles: Tiles
    pieces: int

    @property
    def rows(self) -> int:
        return self.out.shape[0]

    def slots(self) -> tuple[Slots, torch.Tensor]:
        """The team's slots on the current stream, and this rank's, (size, rows, columns)."""
        space = slots_of(self.team, self.group, self.out.device)
        return space, blocks_in(space.staging, (self.team.size, *self.out.shape), self.out.dtype)

    def multiply(self, owner: int, out: torch.Tensor) -> None:
        """The product of ``owner``'s rows."""
        library.matmul(self.operands.a[owner * self.rows : (owner + 1) * self.rows], self.operands.b, out, self.operands.scales)


def gemm_rs(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    tiles: Tiles | None = None,
    pieces: int | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    epilogue: Epilogue | JITFunction | None = None,
) -> torch.Tensor:
    """This rank's rows of ``sum over the ranks of a @ b, + bias``, in stream order of the current stream.

    All ranks of the group call it, with tensors of the same shapes and dtypes and the same options; strides may differ.

    a: (M, K_local), this rank's columns of A, any strides; fp32, fp16, bf16 or fp8; the group's size divides M. b: (K_local, N), this
    rank's rows of B, any strides, of the same dtype. bias: (N,), of the output's dtype; added once, by the rank that the rows belong to
    ("library": by the group's first rank to its product), so all ranks pass the same.
    out: (M / size, N), contiguous: rows ``i * M / size`` on, for the group's rank ``i``; allocated if None.
    group: a ``torch.distributed`` group (or what else ``find_team`` takes) whose ranks reach each other by direct pointers; None is all.
    method: one of ``RS_METHODS`` (see the module), or "auto". tiles: how "fused" cuts the product, instead of what is chosen. pieces: of
    each rank's rows in "pipelined", up to 8 (default 1): one is added up while the next is multiplied.
    scale_a, scale_b: fp8 only, both or neither: one fp32 element each that this rank's product is multiplied by; they may differ from
    rank to rank. out_dtype: of ``out``; by default that of ``a``, and bf16 for fp8.
    epilogue: what is done to this rank's rows of the sum, once, after the bias, in fp32 before they are rounded ("library", "torch": after
    that too); see ``epilogues``. It has no gradient and is not traced.
    Autograd goes through it, see ``gradients``, and so does ``torch.compile``, for which ``group`` is None or a process group and
    ``tiles`` and ``pieces`` are not looked at.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError,
    and CaptureError for the first call with a shape inside a CUDA graph's capture.
    """
    options: dict = {"group": group, "method": method, "scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    if torch.compiler.is_compiling():
        from . import custom_ops

        refuse_epilogue("gemm_rs", epilogue, "torch.compile traces")
        options["out_dtype"] = out.dtype if out_dtype is None and out is not None else out_dtype
        options["group"] = custom_ops.name_of("gemm_rs", group)
        result = custom_ops.gemm_rs_op(a, b, bias, *options.values())
        return filled("gemm_rs", result, out)
    if wants_gradient(a, b, bias, *arguments_of(epilogue)):
        refuse_output("gemm_rs", out, scale_a, scale_b)
        refuse_epilogue("gemm_rs", epilogue, "autograd knows")

        def run(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
            return run_gemm_rs(a, b, bias=bias, tiles=tiles, pieces=pieces, **options)

        return GemmRs.apply(a, b, bias, run, functools.partial(ag_gemm, group=group), group)
    return run_gemm_rs(a, b, bias=bias, out=out, tiles=tiles, pieces=pieces, epilogue=epilogue, **options)


def run_gemm_rs(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """``gemm_rs`` that autograd and ``torch.compile`` do not look at. options: as for it."""
    return run_call(_OPERATOR, Request(a, b, **options), _prepare)


def _result_rows(rows: int, team: Team) -> int:
    if rows % team.size:
        padding = -rows % team.size
        raise InvalidArgumentError(
            f"gemm_rs: a has {rows} rows, which {team.size} ranks can't share equally; append {padding} rows of zeros "
            f"(torch.nn.functional.pad(a, (0, 0, 0, {padding}))), or use gemm_ar, which takes any number"
        )
    return rows // team.size


def _prepare(call: Call) -> Callable[[], None] | None:
    operands, out, team, group = call.operands, call.out, call.team, call.group
    itemsize = operands.a.element_size()
    shape = (out.shape[0], operands.columns, operands.depth, itemsize)
    chosen = choose_rs_method(call.method, team.size, *shape, out.device.type, library_can(group, out.device))
    if chosen in ("library", "torch"):
        (library.reduce_scatter_product if chosen == "library" else library.torch_gemm_rs)(operands, out, team, group)
        apply_to(out, operands.epilogue)
        return None
    return _ENQUEUE[chosen](_Problem(operands, out, team, group, call.tiles or Tiles(k=128 // itemsize), call.pieces or 1))


_OPERATOR = Operator("gemm_rs", RS_METHODS, _result_rows)


def _pipelined(problem: _Problem) -> Callable[[], None]:
    """Products by cuBLAS and copies to their owners, ready to be queued on the current stream."""
    cuts, index = Cuts(problem.rows * problem.team.size, problem.team.size, min(problem.pieces, problem.rows)), problem.team.index
    operands, out, team, group = problem.operands, problem.out, problem.team, problem.group
    return Pieces.of("gemm_rs", operands, out, cuts, lambda piece: cuts.place(piece, index), team, group).enqueue


def _direct(problem: _Problem) -> Callable[[], None]:
    """As ``_pipelined``, but each product is stored into its owner's memory by cuBLAS itself."""
    (space, blocks), index = problem.slots(), problem.team.index
    addition = addition_of(space, blocks, problem.out, problem.operands, index)
    preload("gemm_rs", ("add", 1, *_key(problem)), lambda: [addition])

    def enqueue() -> None:
        main, second = current_stream(), space.second_stream
        second.wait_event(main.record_event())
        signal_batch([Write(space.peer_ready[peer][index], 1) for peer in problem.team.others], second)
        turns = itertools.cycle((main, second))
        for owner in problem.team.others:
            with stream(next(turns)):
                signal_batch([Wait(space.ready[owner], 1), Write(space.ready[owner], 0)])
                problem.multiply(owner, symm_peer(blocks, problem.team.ranks[owner])[index])
                write_value(space.peer_flags[owner][0, index], 1)
        with stream(next(turns)):
            problem.multiply(index, blocks[index])
        main.wait_event(second.record_event())
        addition.run()

    return enqueue


def _fused(problem: _Problem) -> Callable[[], None] | None:
    """The persistent kernel, and the one that adds, ready to be queued on the current stream.

    Operands that lie otherwise than descriptors can say are copied, as they may on some ranks only; then all is queued at once.
    """
    if problem.operands.a.dtype == torch.float32 or problem.operands.columns * problem.out.element_size() % 16:
        raise InvalidArgumentError(
            "gemm_rs: method='fused' needs operands of fp16, bf16 or fp8, and rows of the result that are multiples of 16 bytes; use "
            "another method"
        )
    operands = suiting_scattering(problem.operands)
    enqueue = _fused_of(replace(problem, operands=operands))
    if operands is problem.operands:
        return enqueue
    enqueue()
    return None


def _fused_of(problem: _Problem) -> Callable[[], None]:
    """For operands that suit."""
    operands, tiles = problem.operands, problem.tiles
    expected = triton.cdiv(problem.rows, tiles.m) * triton.cdiv(operands.columns, tiles.n)
    space, blocks = problem.slots()
    addition = addition_of(space, blocks, problem.out, operands, problem.team.index, expected=expected)
    product = scattering_launch(operands, blocks, problem.team, tiles, (space.ready, space.flags[0], space.world_ranks))
    key = ("fused", tiles, operands.scales is None, operands.a.dtype, operands.b.stride(), operands.depth, *_key(problem))
    preload("gemm_rs", key, lambda: [product, addition])

    def enqueue() -> None:
        product.run()
        addition.run()

    return enqueue


def _split(problem: _Problem) -> Callable[[], None]:
    """The whole product by cuBLAS, and the kernel that pushes and adds, ready to be queued on the current stream."""
    operands, team = problem.operands, problem.team
    shape = (operands.a.shape[0], operands.columns)
    buffer: GrowingBuffer = workspace("gemm_rs product", team.ranks, lambda: local_buffer("gemm_rs", operands.a.device))
    nbytes = shape[0] * shape[1] * operands.out_dtype.itemsize
    product = buffer.at_least(nbytes)[:nbytes].view(operands.out_dtype).view(shape)
    addition = push_and_add_launch("gemm_rs", product, problem.out, operands, team, problem.group)

    def enqueue() -> None:
        library.matmul(operands.a, operands.b, product, operands.scales)
        addition.run()

    return enqueue


def _small(problem: _Problem) -> Callable[[], None]:
    """One kernel for product and sum."""
    suits_small("gemm_rs", problem.operands)
    return small_launch("gemm_rs", problem.operands, problem.out, problem.team, problem.group, scatter=True).run


_ENQUEUE: dict[str, Callable[[_Problem], Callable[[], None] | None]] = {
    "pipelined": _pipelined,
    "direct": _direct,
    "fused": _fused,
    "split": _split,
    "small": _small,
}


def _key(problem: _Problem) -> tuple:
    """What decides, beside constants, which kernel Triton compiles to add up."""
    out, bias = problem.out, problem.operands.bias
    alignment = (out.data_ptr() % 16, None if bias is None else bias.data_ptr() % 16)
    return problem.team.size, out.dtype, tuple(out.shape), *alignment, *epilogue_key(problem.operands.epilogue)
