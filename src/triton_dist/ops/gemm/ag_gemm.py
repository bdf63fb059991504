"""All-gather + GEMM: every rank gets ``concat(a_shards) @ b`` and computes while the shards of A still arrive.

Fused methods: each rank pushes its rows of A to every peer, by the copy engine ("fused") or by a few programs of a kernel ("fused_kernel"),
block of rows by block of rows, and sets a signal behind each block. The GEMM, one persistent kernel, starts with its own rows, goes on in
the order in which the others arrive, and waits once for each group of blocks. They win where the product takes longer than the gathering.
"pipelined" has the same copies and calls cuBLAS for each shard that has arrived, on two streams in turn: for products that don't fill the
GPU's last turn of large tiles. "split" gathers by one kernel of low latency and then calls cuBLAS: for few rows, where latency is all there
is. "nccl" and "torch" are NCCL followed by cuBLAS, and torch's fused operator. ``choose_plan`` chooses by shape.

Who writes, resets and waits for each signal of "pipelined" and the fused methods, once a call:
- ``ready[s]`` of a rank is set to the number of blocks by rank ``s`` when its GEMM starts: what it gathered in the call before has been
  used. The rank's producer waits for it before it pushes to ``s``, and takes it back to 0 before its last signal to ``s``.
- ``flags[s, b]`` of a rank is set to 1 by rank ``s`` when block ``b`` of its rows has arrived, waited for by the GEMM, and reset to 0 by
  the last program of the GEMM ("pipelined": by the stream that has waited). Rank ``s`` sets it again only after it has seen this
  rank's next ``ready``.
So there is no barrier, nothing is counted on the host, and a call captured in a CUDA graph can be replayed.
The method is that of tile-centric overlapping (arXiv 2503.20313, 2504.19442).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
from triton.runtime.jit import JITFunction

from ...runtime.preload import Launch, preload
from ...runtime.streams import Stream, Wait, Write, copy_async, current_stream, own_stream, signal_batch, stream, write_value
from ...runtime.symmetric import symm_peer, symm_zeros
from ...triton_dtypes import TRITON_DTYPES
from ..collectives.all_gather import gather_launch
from ..team import GrowingBuffer, Team, workspace, world_ranks_tensor
from ..tensors import filled
from . import library
from .ag_gemm_kernels import any_gemm_kernel, gathered_gemm_kernel, push_shard_kernel
from .call import Call, Operator, run_call
from .epilogues import Epilogue, apply_to, arguments_of, epilogue_key, epilogue_options, refuse_epilogue
from .gradients import AgGemm, refuse_output, wants_gradient
from .operands import DTYPES as DTYPES
from .operands import FP8, Operands, Request
from .plan import METHODS, PRODUCER_PROGRAMS, Tiles, choose_plan, tail_parts

MAX_BLOCKS = 8
"""Most blocks of rows, each with its signal, that a shard is cut into."""


@dataclass
class _Workspace:
    """Memory of one (team, stream): gathered bytes, ready (size,) and flags (size, MAX_BLOCKS) are symmetric; finished is one word."""

    gathered: GrowingBuffer
    ready: torch.Tensor
    flags: torch.Tensor
    peer_ready: list[torch.Tensor]
    peer_flags: list[torch.Tensor]
    finished: torch.Tensor
    world_ranks: torch.Tensor
    side_stream: Stream
    second_stream: Stream

    def gathered_rows(self, problem: _Problem) -> torch.Tensor:
        """(size * rows, depth), symmetric."""
        nbytes = problem.team.size * problem.shard.numel() * problem.shard.element_size()
        return self.gathered.at_least(nbytes)[:nbytes].view(problem.shard.dtype).view(-1, problem.depth)


@dataclass(frozen=True)
class _Problem:
    """One call: its checked arguments, and what follows from them. shard: contiguous (rows, depth)."""

    operands: Operands
    out: torch.Tensor
    team: Team
    group: object
    tiles: Tiles

    @property
    def shard(self) -> torch.Tensor:
        return self.operands.a

    @property
    def b(self) -> torch.Tensor:
        return self.operands.b

    @property
    def scales(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        return self.operands.scales

    @property
    def epilogue(self) -> Epilogue | None:
        return self.operands.epilogue

    @property
    def rows(self) -> int:
        return self.shard.shape[0]

    @property
    def depth(self) -> int:
        return self.shard.shape[1]

    @property
    def rows_per_signal(self) -> int:
        return triton.cdiv(self.rows, self.tiles.blocks)


def ag_gemm(
    a_shard: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    group: object = None,
    method: str = "auto",
    tiles: Tiles | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    epilogue: Epilogue | JITFunction | None = None,
) -> torch.Tensor:
    """``concat(a_shard of every rank) @ b`` on every rank of ``group``, in stream order of the current stream.

    All ranks of the group call it, with tensors of the same shapes and dtypes and the same options; strides may differ.

    a_shard: (M_local, K), this rank's rows of A; fp32, fp16, bf16 or fp8. b: (K, N), any strides, of the same dtype.
    out: (size * M_local, N), last dimension contiguous; allocated if None. Products are summed in fp32 and rounded once.
    group: a ``torch.distributed`` group (or what else ``find_team`` takes) whose ranks reach each other by direct pointers; None is all.
    method: one of ``METHODS`` (see the module), or "auto". tiles: how the fused methods cut the product, instead of what is chosen.
    scale_a, scale_b: fp8 only, both or neither: one fp32 element each that the product is multiplied by.
    out_dtype: of ``out``; by default that of ``a_shard``, and bf16 for fp8.
    epilogue: what is done to the product: to the fp32 tile before it is rounded ("fused", "fused_kernel"), or to what cuBLAS has rounded;
    see ``epilogues``. It has no gradient and is not traced.
    Autograd goes through it, see ``gradients``, and so does ``torch.compile``, for which ``group`` is None or a process group.
    Returns ``out``. Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError, UnreachablePeerError,
    and CaptureError for the first call with a shape inside a CUDA graph's capture.
    """
    options: dict = {"group": group, "method": method, "scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}
    if torch.compiler.is_compiling():
        from . import custom_ops

        refuse_epilogue("ag_gemm", epilogue, "torch.compile traces")
        options["out_dtype"] = out.dtype if out_dtype is None and out is not None else out_dtype
        options["group"] = custom_ops.name_of("ag_gemm", group)
        result = custom_ops.ag_gemm_op(a_shard, b, *options.values())
        return filled("ag_gemm", result, out)
    if wants_gradient(a_shard, b, *arguments_of(epilogue)):
        from .gemm_rs import gemm_rs

        refuse_output("ag_gemm", out, scale_a, scale_b)
        refuse_epilogue("ag_gemm", epilogue, "autograd knows")
        run = functools.partial(run_ag_gemm, tiles=tiles, **options)
        return AgGemm.apply(a_shard, b, run, functools.partial(gemm_rs, group=group), group)
    return run_ag_gemm(a_shard, b, out=out, tiles=tiles, epilogue=epilogue, **options)


def run_ag_gemm(a_shard: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor:
    """``ag_gemm`` that autograd and ``torch.compile`` do not look at. options: as for it."""
    return run_call(_OPERATOR, Request(a_shard, b, **options), _prepare)


_OPERATOR = Operator("ag_gemm", METHODS, lambda rows, team: rows * team.size, gathers=True, a_name="a_shard", most_blocks=MAX_BLOCKS)


def _prepare(call: Call) -> Callable[[], None] | None:
    operands, team, group = call.operands, call.team, call.group
    own = call.method == "auto" and not library.knows(operands.a.dtype, operands.b.dtype)
    if team.size == 1 and call.method == "auto" and not own and call.out.device.type == "cuda":  # the simulator is there for the kernel
        library.matmul(operands.a, operands.b, call.out, operands.scales)
        apply_to(call.out, operands.epilogue)
        if call.gathered is not None:
            call.gathered.copy_(operands.a)
        return None
    rows, itemsize = operands.a.shape[0], operands.a.element_size()
    method = "fused" if own else call.method
    plan = choose_plan(method, team.size, rows, operands.columns, operands.depth, itemsize, call.out.device.type)
    problem = _Problem(operands, call.out, team, group, call.tiles or plan.tiles)
    if plan.method in ("nccl", "torch"):
        gathered_product = library.nccl_ag_gemm if plan.method == "nccl" else library.torch_ag_gemm
        gathered_product(operands.a, operands.b, call.out, operands.scales, group, call.gathered)
        apply_to(call.out, operands.epilogue)
        return None
    if plan.method == "split":
        return _split(problem, call.gathered)
    if plan.method == "pipelined":
        multiply = _pipelined(replace(problem, tiles=replace(problem.tiles, blocks=1)))
    else:
        multiply = _fused(problem, by_kernel=plan.method == "fused_kernel")
    return multiply if call.gathered is None else functools.partial(_and_copy_gathered, problem, multiply, call.gathered)


def _and_copy_gathered(problem: _Problem, multiply: Callable[[], None], target: torch.Tensor) -> None:
    """What the product has read, in stream order behind it: the next call, which lets the peers overwrite it, comes after."""
    multiply()
    space: _Workspace = workspace("ag_gemm", problem.team.ranks, lambda: _make_workspace(problem))
    source, begin = space.gathered_rows(problem), problem.team.index * problem.rows
    end = begin + problem.rows
    for rows, part in ((slice(0, begin), source[:begin]), (slice(begin, end), problem.shard), (slice(end, None), source[end:])):
        target[rows].copy_(part)


def _split(problem: _Problem, gathered: torch.Tensor | None) -> Callable[[], None]:
    """The all-gather and the product by cuBLAS, ready to be queued on the current stream."""
    team, shard = problem.team, problem.shard
    if gathered is None:
        gathered = _gathered_apart(problem)
    gather = gather_launch(shard, gathered, team, problem.group)

    def enqueue() -> None:
        gather.run()
        library.matmul(gathered, problem.b, problem.out, problem.scales)
        apply_to(problem.out, problem.epilogue)

    return enqueue


def _gathered_apart(problem: _Problem) -> torch.Tensor:
    """(size * rows, depth) of memory that is this rank's alone."""
    team, shard = problem.team, problem.shard
    nbytes = team.size * shard.numel() * shard.element_size()
    buffer: GrowingBuffer = workspace(
        "ag_gemm split",
        team.ranks,
        lambda: GrowingBuffer("ag_gemm", lambda size: torch.empty(size, dtype=torch.uint8, device=shard.device)),
    )
    return buffer.at_least(nbytes)[:nbytes].view(shard.dtype).view(-1, problem.depth)


def _fused(problem: _Problem, *, by_kernel: bool) -> Callable[[], None]:
    """The producer and the product of a fused method, ready to be queued on the current stream."""
    team = problem.team
    space: _Workspace = workspace("ag_gemm", team.ranks, lambda: _make_workspace(problem))
    gathered = space.gathered_rows(problem)
    programs = problem.tiles.programs or _sm_count()
    multiply = _tma_launch if _suits_tma(problem) else _load_launch
    if team.size == 1:
        return multiply(problem, space, gathered, programs).run
    product = multiply(problem, space, gathered, max(1, programs - PRODUCER_PROGRAMS) if by_kernel else programs)
    push = _push_launch(problem, space, gathered) if by_kernel else None
    # What decides which kernels Triton compiles: shapes, dtypes, strides, alignment and how the product is cut.
    operands = [(t.shape, t.stride(), t.dtype, t.data_ptr() % 16 == 0) for t in (problem.shard, problem.b, problem.out)]
    key = (*operands, team.size, problem.tiles, problem.scales is None, by_kernel, *epilogue_key(problem.epilogue))
    preload("ag_gemm", key, lambda: [product] if push is None else [product, push])

    def enqueue() -> None:
        main = current_stream()
        shard_ready = main.record_event()
        # The product first: the producer waits for the peers' products.
        product.run()
        space.side_stream.wait_event(shard_ready)
        if push is None:
            _push_by_copy_engine(problem, space, gathered)
        else:
            with stream(space.side_stream):
                push.run()
        main.wait_event(space.side_stream.record_event())  # until then the shard must not be overwritten

    return enqueue


def _pipelined(problem: _Problem) -> Callable[[], None]:
    """Copies, and a product by cuBLAS for each shard when it has arrived; ready to be queued on the current stream."""
    team, rows = problem.team, problem.rows
    space: _Workspace = workspace("ag_gemm", team.ranks, lambda: _make_workspace(problem))
    gathered = space.gathered_rows(problem)
    sources = [(team.index + team.size - distance) % team.size for distance in range(1, team.size)]

    def multiply(a: torch.Tensor, source: int) -> None:
        library.matmul(a, problem.b, problem.out[source * rows : (source + 1) * rows], problem.scales)

    def enqueue() -> None:
        main, second = current_stream(), space.second_stream
        begun = main.record_event()
        space.side_stream.wait_event(begun)
        second.wait_event(begun)
        _push_by_copy_engine(problem, space, gathered, [Write(space.peer_ready[source][team.index], 1) for source in sources])
        multiply(problem.shard, team.index)
        # Two streams take turns: a product's first tiles run beside the last ones of the product before.
        for place, source in enumerate(sources):
            with stream(main if place % 2 else second):
                signal_batch([Wait(space.flags[source, 0], 1)])
                multiply(gathered[source * rows : (source + 1) * rows], source)
                write_value(space.flags[source, 0], 0)
        main.wait_event(second.record_event())
        apply_to(problem.out, problem.epilogue)
        main.wait_event(space.side_stream.record_event())

    return enqueue


def _make_workspace(problem: _Problem) -> _Workspace:
    team, group, device = problem.team, problem.group, problem.shard.device
    ready = symm_zeros((team.size,), torch.int32, name="ready", group=group)
    flags = symm_zeros((team.size, MAX_BLOCKS), torch.int32, name="flags", group=group)
    return _Workspace(
        gathered=GrowingBuffer.symmetric("ag_gemm", "gathered", group),
        ready=ready,
        flags=flags,
        peer_ready=[symm_peer(ready, rank) for rank in team.ranks],
        peer_flags=[symm_peer(flags, rank) for rank in team.ranks],
        finished=torch.zeros(1, dtype=torch.int32, device=device),
        world_ranks=world_ranks_tensor(team, device),
        side_stream=own_stream(),
        second_stream=own_stream(),
    )


def _push_by_copy_engine(problem: _Problem, space: _Workspace, gathered: torch.Tensor, announced: Sequence[Write] = ()) -> None:
    """To the next rank first, then the one after it, and so on: every rank sends to another one at any time.

    announced: what the side stream tells the peers before it waits for them.
    """
    team, rows = problem.team, problem.rows
    begin = team.index * rows
    receivers = team.others
    # One batch: each operation by itself costs the stream more than a microsecond.
    taken = [step for receiver in receivers for step in (Wait(space.ready[receiver], 1), Write(space.ready[receiver], 0))]
    signal_batch([*announced, *taken], space.side_stream)
    for receiver in receivers:
        target = symm_peer(gathered, team.ranks[receiver])
        for block in range(triton.cdiv(rows, problem.rows_per_signal)):
            first, last = block * problem.rows_per_signal, min((block + 1) * problem.rows_per_signal, rows)
            copy_async(target[begin + first : begin + last], problem.shard[first:last], space.side_stream)
            # The stream orders the signal behind the copy.
            write_value(space.peer_flags[receiver][team.index, block], 1, space.side_stream)


def _push_launch(problem: _Problem, space: _Workspace, gathered: torch.Tensor) -> Launch:
    team = problem.team
    blocks = triton.cdiv(problem.rows, problem.rows_per_signal)
    return Launch.of(push_shard_kernel, min(PRODUCER_PROGRAMS, (team.size - 1) * blocks))(
        problem.shard, gathered, space.ready, space.flags, space.world_ranks, team.index, team.size, problem.rows, problem.depth, blocks,
        ROWS_PER_SIGNAL=problem.rows_per_signal, MAX=MAX_BLOCKS, TILE_M=min(problem.tiles.m, 32),
        TILE_K=min(256, triton.next_power_of_2(problem.depth)), num_warps=8,
    )  # fmt: skip


def _suits_tma(problem: _Problem) -> bool:
    """Whether descriptors can describe the operands (16-byte aligned, strides multiples of 16 bytes) and blocks are all alike."""
    tiles, b, out = problem.tiles, problem.b, problem.out
    if not tiles.tma or problem.rows % tiles.blocks or problem.shard.dtype == torch.float32 or not b.numel():
        return False
    by_columns = b.stride(0) == 1
    if not by_columns and (b.stride(1) != 1 or problem.shard.dtype in FP8):
        return False
    operands = ((problem.shard, problem.depth), (b, b.stride(1 if by_columns else 0)), (out, out.stride(0)))
    return all(t.data_ptr() % 16 == 0 and stride * t.element_size() % 16 == 0 for t, stride in operands)


def _tma_launch(problem: _Problem, space: _Workspace, gathered: torch.Tensor, programs: int) -> Launch:
    from triton.tools.tensor_descriptor import TensorDescriptor

    team, tiles, b, out = problem.team, problem.tiles, problem.b, problem.out
    block_rows, columns, depth = problem.rows // tiles.blocks, b.shape[1], problem.depth
    by_columns = b.stride(0) == 1
    b_matrix = b.t() if by_columns else b
    tiles_m, tiles_n = triton.cdiv(block_rows, tiles.m), triton.cdiv(columns, tiles.n)
    total = team.size * tiles.blocks * tiles_m * tiles_n
    programs = min(programs, total)
    blocks_per_wait = tiles.blocks_per_wait or max(1, (team.size - 1) * tiles.blocks)
    parts = _tail_parts(problem, total, programs, blocks_per_wait, tiles_m * tiles_n)

    def box(width: int) -> list[int]:
        return [width, tiles.k] if by_columns else [tiles.k, width]

    def out_boxes(width: int) -> TensorDescriptor:
        shape = [team.size * tiles.blocks, block_rows, columns]
        return TensorDescriptor(out, shape, [block_rows * out.stride(0), out.stride(0), 1], [1, tiles.m, width])

    def rows_of(matrix: torch.Tensor) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(matrix.view(-1, block_rows, depth), [1, tiles.m, tiles.k])

    scale_a, scale_b = problem.scales or (space.finished, space.finished)
    return Launch.of(gathered_gemm_kernel, programs)(
        rows_of(problem.shard), rows_of(gathered), TensorDescriptor.from_tensor(b_matrix, box(tiles.n)), out_boxes(tiles.n),
        TensorDescriptor.from_tensor(b_matrix, box(tiles.n // parts)), out_boxes(tiles.n // parts),
        space.ready, space.flags, space.finished, space.world_ranks, scale_a, scale_b,
        team.index, team.size, tiles.blocks, blocks_per_wait, tiles_m, tiles_n, depth,
        TILE_M=tiles.m, TILE_N=tiles.n, TILE_K=tiles.k, GROUP=tiles.group, TAIL_PARTS=parts, MAX=MAX_BLOCKS,
        CAPACITY=triton.next_power_of_2(team.size * MAX_BLOCKS), SCALED=problem.scales is not None, B_BY_COLUMNS=by_columns,
        IMPRECISE=tiles.k if problem.shard.dtype in FP8 else None, OUT=TRITON_DTYPES[out.dtype], **epilogue_options(problem.epilogue),
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def _tail_parts(problem: _Problem, total: int, programs: int, blocks_per_wait: int, tiles_per_block: int) -> int:
    """In how many parts to multiply the tiles of the grid's last turn; these have to be among the last blocks that are waited for."""
    left = total % programs
    remote_blocks = (problem.team.size - 1) * problem.tiles.blocks
    last_blocks = remote_blocks % blocks_per_wait or blocks_per_wait
    if not problem.tiles.split_tail or not left or not remote_blocks or left > last_blocks * tiles_per_block:
        return 1
    return tail_parts(left, programs, problem.tiles.n)


def _load_launch(problem: _Problem, space: _Workspace, gathered: torch.Tensor, programs: int) -> Launch:
    team, tiles, b, out = problem.team, problem.tiles, problem.b, problem.out
    num_tiles = team.size * triton.cdiv(problem.rows, tiles.m) * triton.cdiv(b.shape[1], tiles.n)
    scale_a, scale_b = problem.scales or (space.finished, space.finished)
    return Launch.of(any_gemm_kernel, max(1, min(num_tiles, programs)))(
        problem.shard, gathered, space.ready, space.flags, space.finished, space.world_ranks, b, out, scale_a, scale_b,
        team.index, team.size, problem.rows, b.shape[1], problem.depth, b.stride(0), b.stride(1), out.stride(0),
        triton.cdiv(problem.rows, problem.rows_per_signal),
        ROWS_PER_SIGNAL=problem.rows_per_signal, MAX=MAX_BLOCKS, CAPACITY=triton.next_power_of_2(team.size * MAX_BLOCKS),
        TILE_M=tiles.m, TILE_N=tiles.n, TILE_K=tiles.k, PRECISION="ieee", SCALED=problem.scales is not None,
        WAITED=num_tiles > 0, **epilogue_options(problem.epilogue), num_warps=8 if tiles.m * tiles.n >= 128 * 128 else 4,
    )  # fmt: skip


def _sm_count() -> int:
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())["multiprocessor_count"]
