"""GEMM + all-reduce in pieces: products, their way to the rank that adds them up, and the sums' way to all ranks at the same time.

Products and sums go as in ``pieces``. The copy engine takes the sum of a piece from its owner's result to the memory of all other ranks,
which copy it into theirs, while the next piece is multiplied. All that goes over the links is pushed: on two H200s pushes and pulls at
the same time take up to 1.7 times as long as pushes of as many bytes.

Who writes, resets and waits for each signal, once a call: ``ready`` and ``flags`` as "pipelined" in ``gemm_rs``, and
- ``summed[p, s]`` of a rank is set to 1 by rank ``s`` behind its sum of piece ``p``, waited for by the stream that copies the sum into the
  result, and reset to 0 there. Rank ``s`` sends a sum again, and sets it, only when this rank's ``flags`` for that sum have come, which
  this rank sends in its next call, in stream order behind the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...errors import InvalidArgumentError
from ...runtime.streams import Stream, Wait, Write, copy_async, current_stream, own_stream, signal_batch, write_value
from ...runtime.symmetric import symm_peer, symm_zeros
from ..team import GrowingBuffer, Team, workspace
from .operands import Operands
from .pieces import Cuts, Pieces
from .scatter_plan import MAX_PIECES, pieces_of_sum
from .slots import blocks_in


@dataclass
class _Space:
    """Memory of one (team, stream). gathered: symmetric bytes, a slot for each rank's sums; summed: (MAX_PIECES, size), symmetric.

    share_stream sends sums, fetch_stream copies those that have come, beside the streams of ``pieces``.
    """

    gathered: GrowingBuffer
    summed: torch.Tensor
    peer_summed: list[torch.Tensor]
    share_stream: Stream
    fetch_stream: Stream


def pipelined(operands: Operands, out: torch.Tensor, count: int | None, team: Team, group: object) -> Callable[[], None]:
    """Products, copies and sums, ready to be queued on the current stream.

    out: (rows, columns), contiguous, with elements. count: pieces of a rank's rows, instead of what is chosen.
    """
    (rows, columns), index, ranks = out.shape, team.index, team.ranks
    if rows < team.size:
        raise InvalidArgumentError(
            f"gemm_ar: method='pipelined' needs at least {team.size} rows, one for each rank, not {rows}; use another method"
        )
    if count is None:
        count = pieces_of_sum(team.size, columns * out.element_size(), rows, operands.depth * operands.a.element_size())
    cuts = Cuts(rows, team.size, min(count, rows // team.size))
    pieces = Pieces.of("gemm_ar", operands, out, cuts, lambda piece: cuts.rows_of(piece, index), team, group)
    space: _Space = workspace("gemm_ar pipelined", ranks, lambda: _make_space(team, group))
    gathered = blocks_in(space.gathered, pieces.blocks.shape, out.dtype)

    def share(piece: int, adding: Stream) -> None:
        """Send this rank's sum, and fetch the others'."""
        space.share_stream.wait_event(adding.record_event())
        for owner in team.others:
            target = symm_peer(gathered, ranks[owner])[index, cuts.place(piece, index)]
            copy_async(target, out[cuts.rows_of(piece, index)], space.share_stream)
            write_value(space.peer_summed[owner][piece, index], 1, space.share_stream)
        for owner in team.others:
            signal_batch([Wait(space.summed[piece, owner], 1), Write(space.summed[piece, owner], 0)], space.fetch_stream)
            copy_async(out[cuts.rows_of(piece, owner)], gathered[owner, cuts.place(piece, owner)], space.fetch_stream)

    def enqueue() -> None:
        main = current_stream()
        space.fetch_stream.wait_event(main.record_event())
        pieces.enqueue(share)
        # Until then the result is in use.
        for other in (space.share_stream, space.fetch_stream):
            main.wait_event(other.record_event())

    return enqueue


def _make_space(team: Team, group: object) -> _Space:
    """Made, by all ranks of the team together, at the first call on a stream."""
    summed = symm_zeros((MAX_PIECES, team.size), torch.int32, name="summed", group=group)
    return _Space(
        gathered=GrowingBuffer.symmetric("gemm_ar", "gathered", group),
        summed=summed,
        peer_summed=[symm_peer(summed, rank) for rank in team.ranks],
        share_stream=own_stream(),
        fetch_stream=own_stream(),
    )
