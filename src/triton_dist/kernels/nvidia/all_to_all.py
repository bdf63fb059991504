"""All-to-all of tokens between ranks that hold experts, under the names that programs written for Triton-distributed import.

One kernel pushes: program ``p`` of a rank stores piece ``p`` of the rows for every peer into that peer's memory, says so to program ``p``
there, and waits for program ``p`` of all peers. Who writes and resets what, and why two slots are enough: ``ops/collectives/staging.py``.
Nothing is read on the host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist

from ...errors import CaptureError, InvalidArgumentError
from ...ops.collectives.staging import begin_call, end_call, meet, new_staging, programs_for
from ...ops.team import find_team, in_capture, peer_addresses
from ...runtime.symmetric import symm_zeros

_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.int8))
_BLOCK_BYTES = 16 << 10


@triton.jit
def _push(source, target, begin_row, rows, width, BLOCK: tl.constexpr):
    """This program's piece of ``rows`` rows of ``width`` words, from row ``begin_row`` of ``source`` to ``target``."""
    count = rows.to(tl.int64) * width
    source += begin_row.to(tl.int64) * width
    piece = tl.cdiv(tl.cdiv(count, tl.num_programs(0)), BLOCK) * BLOCK
    begin = tl.program_id(0) * piece
    end = tl.minimum(begin + piece, count)
    for first in range(begin, end, BLOCK):
        offset = first + tl.arange(0, BLOCK)
        tl.store(target + offset, tl.load(source + offset, mask=offset < end), mask=offset < end)


@triton_dist.jit(do_not_specialize=["index", "rows"])
def all_to_all_kernel(
    x, scale, cumsum, peer_tokens, peer_scales, peer_splits, arrived, peer_arrived, epochs, index, rows, max_m,
    WIDTH: tl.constexpr, WITH_SCALE: tl.constexpr, EXPERTS: tl.constexpr, EXPERT_LANES: tl.constexpr, SIZE: tl.constexpr,
    WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows ``cumsum[peer * EXPERTS]`` to ``[(peer + 1) * EXPERTS]`` of ``x`` go to ``peer``, to row ``index * max_m`` of its slot.

    x: words (rows, WIDTH). scale: (rows,). cumsum: (SIZE * EXPERTS + 1,). peer_tokens, peer_scales, peer_splits: addresses of every rank's
    two slots of (SIZE * max_m) rows, scales, and (SIZE * EXPERTS) numbers of rows. EXPERT_LANES: EXPERTS, up to a power of 2.
    """
    now = begin_call(epochs)
    slot = now % 2
    expert = tl.arange(0, EXPERT_LANES)
    for peer in range(SIZE):
        # A row outside of x would be one outside of the peer's part, too.
        begin = tl.minimum(tl.maximum(tl.load(cumsum + peer * EXPERTS), 0), rows).to(tl.int32)
        end = tl.minimum(tl.maximum(tl.load(cumsum + (peer + 1) * EXPERTS), begin), rows).to(tl.int32)
        row = (slot * SIZE + index) * max_m
        tokens = tl.multiple_of(tl.load(peer_tokens + peer).to(tl.pointer_type(x.dtype.element_ty)), 16)
        _push(x, tokens + row * WIDTH, begin, end - begin, WIDTH, BLOCK)
        if WITH_SCALE:
            scales = tl.load(peer_scales + peer).to(tl.pointer_type(scale.dtype.element_ty))
            _push(scale, scales + row, begin, end - begin, 1, BLOCK)
        if tl.program_id(0) == 0:
            first = cumsum + peer * EXPERTS + expert
            inside = expert < EXPERTS
            splits = tl.load(peer_splits + peer).to(tl.pointer_type(tl.int32)) + (slot * SIZE + index) * EXPERTS
            tl.store(splits + expert, (tl.load(first + 1, mask=inside) - tl.load(first, mask=inside)).to(tl.int32), mask=inside)
    meet(arrived, peer_arrived, index, SIZE, now, WORDS)
    end_call(epochs, now)


class AllToAllContext:
    """Memory of the calls of one stream; made by all ranks together. ``create_all_to_all_context`` says what the arguments are."""

    def __init__(
        self,
        max_m: int,
        hidden: int,
        rank: int,
        num_tot_experts: int,
        WORLD_SIZE: int,
        experts_per_rank: int,
        dtype: torch.dtype = torch.bfloat16,
        scale_dtype: torch.dtype = torch.float,
    ) -> None:
        self._team = find_team(None, "create_all_to_all_context")
        if (rank, WORLD_SIZE) != (self._team.index, self._team.size):
            raise InvalidArgumentError(
                f"create_all_to_all_context: rank {rank} of {WORLD_SIZE}; this is rank {self._team.index} of {self._team.size}"
            )
        if min(max_m, hidden, experts_per_rank) < 1 or num_tot_experts != WORLD_SIZE * experts_per_rank:
            raise InvalidArgumentError(
                f"create_all_to_all_context: max_m={max_m}, hidden={hidden}, num_tot_experts={num_tot_experts}, "
                f"experts_per_rank={experts_per_rank}; all have to be at least 1, and num_tot_experts {WORLD_SIZE} times experts_per_rank"
            )
        self.max_m, self.hidden, self.rank, self.WORLD_SIZE = max_m, hidden, rank, WORLD_SIZE
        self.num_tot_experts, self.experts_per_rank = num_tot_experts, experts_per_rank
        self.dtype, self.scale_dtype = dtype, scale_dtype
        self.call_count = 1
        rows = 2 * WORLD_SIZE * max_m
        self.recv_buf = symm_zeros((rows, hidden), dtype, name="recv_buf")
        self.scale_recv_buf = symm_zeros((rows,), scale_dtype, name="scale_recv_buf")
        self.split_recv_buf = symm_zeros((2 * num_tot_experts,), torch.int32, name="split_recv_buf")
        self._peers = [peer_addresses(buffer, self._team) for buffer in (self.recv_buf, self.scale_recv_buf, self.split_recv_buf)]
        self._staging = new_staging("fast_all_to_all", self._team, None, self.recv_buf.device)

    def finalize(self) -> None:
        """Its memory goes back to the heap with it."""


def create_all_to_all_context(
    max_m: int,
    hidden: int,
    rank: int,
    num_tot_experts: int,
    WORLD_SIZE: int,
    experts_per_rank: int,
    dtype: torch.dtype = torch.bfloat16,
    scale_dtype: torch.dtype = torch.float,
) -> AllToAllContext:
    """Memory for ``fast_all_to_all``; all ranks call it, with the same arguments but ``rank``.

    max_m: rows that a rank sends in one call at most. hidden: elements of a row, of ``dtype``. rank, WORLD_SIZE: of the world.
    num_tot_experts: experts of all ranks, ``experts_per_rank`` on each. scale_dtype: of the number that goes with a row.
    Raises InvalidArgumentError, NotInitializedError, AllocationMismatchError, HeapFullError.
    """
    return AllToAllContext(max_m, hidden, rank, num_tot_experts, WORLD_SIZE, experts_per_rank, dtype, scale_dtype)


def fast_all_to_all(
    ctx: AllToAllContext, send_tensor: torch.Tensor, send_split_cumsum: torch.Tensor, send_scale: torch.Tensor | None
) -> list[torch.Tensor | None]:
    """Send each expert's rows to the rank that has it, in stream order of the current stream; all ranks call it.

    send_tensor: (rows, hidden), contiguous, ordered by expert; at most ``max_m`` rows. send_split_cumsum: int32 or int64
    (num_tot_experts + 1,), on the device: expert ``e`` gets rows ``send_split_cumsum[e]`` to ``[e + 1]``. send_scale: (rows,) of the
    context's ``scale_dtype``, or None on all ranks.
    Returns [splits, tokens, scales or None], good until the next call: rank ``r``'s rows stand from row ``r * max_m`` of ``tokens``
    (WORLD_SIZE * max_m, hidden), ``splits[r * experts_per_rank + e]`` of them, int32, for this rank's expert ``e``.
    Not for CUDA graphs: calls take two slots in turn, and what is returned is one of them. Raises InvalidArgumentError, CaptureError.
    """
    if in_capture("fast_all_to_all"):
        raise CaptureError("fast_all_to_all: its result alternates between two buffers, which a CUDA graph can't; call it outside")
    fits = send_tensor.dim() == 2 and send_tensor.shape[1] == ctx.hidden and send_tensor.shape[0] <= ctx.max_m
    if not fits or not send_tensor.is_contiguous() or send_tensor.dtype != ctx.dtype:
        raise InvalidArgumentError(
            f"fast_all_to_all: send_tensor is {list(send_tensor.shape)} {send_tensor.dtype}; it has to be contiguous, at most "
            f"{ctx.max_m} rows of {ctx.hidden} {ctx.dtype}"
        )
    if send_split_cumsum.shape != (ctx.num_tot_experts + 1,) or send_split_cumsum.dtype not in (torch.int32, torch.int64):
        raise InvalidArgumentError(
            f"fast_all_to_all: send_split_cumsum is {list(send_split_cumsum.shape)} {send_split_cumsum.dtype}; it has to be "
            f"[{ctx.num_tot_experts + 1}] of int32 or int64"
        )
    rows = send_tensor.shape[0]
    if send_scale is not None and (send_scale.shape != (rows,) or send_scale.dtype != ctx.scale_dtype):
        raise InvalidArgumentError(
            f"fast_all_to_all: send_scale is {list(send_scale.shape)} {send_scale.dtype}; it has to be [{rows}] {ctx.scale_dtype}"
        )
    space = ctx._staging
    row_bytes = ctx.hidden * send_tensor.element_size()
    width, word = next((width, word) for width, word in _WORDS if (row_bytes | send_tensor.data_ptr()) % width == 0)
    scale_word = dict(_WORDS)[ctx.scale_recv_buf.element_size()]
    scale = send_split_cumsum if send_scale is None else send_scale.contiguous().view(scale_word)
    # As many on every rank, so not by this rank's rows.
    all_to_all_kernel[(programs_for(triton.cdiv(ctx.max_m * row_bytes, ctx.WORLD_SIZE)),)](
        send_tensor.view(word), scale, send_split_cumsum.contiguous(), *ctx._peers, space.arrived, space.peer_arrived, space.epochs,
        ctx.rank, rows, ctx.max_m, WIDTH=row_bytes // width, WITH_SCALE=send_scale is not None,
        EXPERTS=ctx.experts_per_rank, EXPERT_LANES=triton.next_power_of_2(ctx.experts_per_rank), SIZE=ctx.WORLD_SIZE,
        WORDS=triton.next_power_of_2(ctx.WORLD_SIZE), BLOCK=_BLOCK_BYTES // 8 // width, num_warps=8,
    )  # fmt: skip
    slot = ctx.call_count % 2
    ctx.call_count += 1
    splits, tokens, scales = (
        buffer.view(2, -1, *buffer.shape[1:])[slot] for buffer in (ctx.split_recv_buf, ctx.recv_buf, ctx.scale_recv_buf)
    )
    return [splits, tokens, scales if send_scale is not None else None]


def all_to_all_post_process(
    ctx: AllToAllContext, input_splits: torch.Tensor, recv_buffer: torch.Tensor, scale_buffer: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What ``fast_all_to_all`` received, without the gaps: (rows, hidden) and (rows,), rank after rank, copied. Waits for the stream."""
    rows = input_splits.reshape(ctx.WORLD_SIZE, -1).sum(dim=1).tolist()
    whole = [recv_buffer[rank * ctx.max_m :][:count] for rank, count in enumerate(rows)]
    if scale_buffer is None:
        return torch.concat(whole), None
    return torch.concat(whole), torch.concat([scale_buffer[rank * ctx.max_m :][:count] for rank, count in enumerate(rows)])
