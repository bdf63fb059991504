"""A product whose finished pieces travel to the ranks that add them up, while later ones are multiplied: for ``gemm_rs`` and ``gemm_ar``.

Every rank owns a block of rows of the product, cut into pieces. cuBLAS multiplies one piece of each block after the other, on two streams
in turn, the next rank's first and this rank's own last; the copy engine takes a finished one to a slot of its owner, where a kernel adds
the slots up when all have come. Signals: see ``gemm_rs``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton

from ...runtime.preload import Launch, preload
from ...runtime.streams import Stream, Wait, Write, copy_async, current_stream, signal_batch, stream, write_value
from ...runtime.symmetric import symm_peer
from ..team import Team
from . import library
from .epilogues import epilogue_key
from .operands import Operands
from .slots import Slots, addition_of, blocks_in, slots_of


@dataclass(frozen=True)
class Cuts:
    """``rows`` of a product in a block of nearly as many for each of ``size`` ranks, and each block in ``count`` pieces; none is empty."""

    rows: int
    size: int
    count: int

    @property
    def height(self) -> int:
        """Rows of the largest block."""
        return triton.cdiv(self.rows, self.size)

    def place(self, piece: int, owner: int) -> slice:
        """Where a piece lies in the block of its owner."""
        rows = (owner + 1) * self.rows // self.size - owner * self.rows // self.size
        return slice(piece * rows // self.count, (piece + 1) * rows // self.count)

    def rows_of(self, piece: int, owner: int) -> slice:
        """Where a piece lies in the product."""
        place, begin = self.place(piece, owner), owner * self.rows // self.size
        return slice(begin + place.start, begin + place.stop)


@dataclass(frozen=True)
class Pieces:
    """One call, ready to be queued on the current stream.

    blocks: this rank's slots, (size, height, columns); products: (size - 1, height, columns), on their way to the peers. sums: for each
    piece, what adds it up.
    """

    operands: Operands
    cuts: Cuts
    team: Team
    slots: Slots
    blocks: torch.Tensor
    products: torch.Tensor
    sums: list[Launch]

    @classmethod
    def of(
        cls, what: str, operands: Operands, out: torch.Tensor, cuts: Cuts, result_rows: Callable[[int], slice], team: Team, group: object
    ) -> Pieces:
        """what: the operator. out: contiguous, with elements. result_rows: where in ``out`` this rank's sum of a piece belongs."""
        slots = slots_of(team, group, out.device)
        blocks = blocks_in(slots.staging, (team.size, cuts.height, out.shape[1]), out.dtype)
        sums, alignment = [], []
        for piece in range(cuts.count):
            rows = result_rows(piece)
            own = operands.after(rows.start)
            sums.append(addition_of(slots, blocks[:, cuts.place(piece, team.index)], out[rows], own, team.index, piece=piece))
            alignment.append(out[rows].data_ptr() % 16)
        bias = operands.bias
        # What decides, beside constants, which kernel Triton compiles to add up.
        key = (cuts, out.dtype, out.shape[1], *alignment, bias is None or bias.data_ptr() % 16, *epilogue_key(operands.epilogue))
        preload(what, ("pieces", *key), lambda: sums)
        return cls(operands, cuts, team, slots, blocks, slots.own_products(blocks), sums)

    def enqueue(self, then: Callable[[int, Stream], None] | None = None) -> None:
        """then: called when the sum of a piece is queued, with its number and the stream that it is on."""
        cuts, slots, index, receivers = self.cuts, self.slots, self.team.index, self.team.others
        main, second, side, third = current_stream(), slots.second_stream, slots.side_stream, slots.third_stream
        side.wait_event(main.record_event())
        signal_batch([Write(slots.peer_ready[peer][index], 1) for peer in receivers], side)
        begun = side.record_event()
        for other in (second, third):
            # In a graph the second product could begin before the first one otherwise.
            other.wait_event(begun)
        # Two streams take turns: a product's first tiles run beside the last ones of the product before.
        turns = itertools.cycle((main, second))
        for piece in range(cuts.count):
            for number, owner in enumerate(receivers):
                place = cuts.place(piece, owner)
                with stream(next(turns)):
                    self._multiply(piece, owner, self.products[number, place])
                    multiplied = current_stream().record_event()
                if piece == 0:
                    signal_batch([Wait(slots.ready[owner], 1), Write(slots.ready[owner], 0)], side)
                side.wait_event(multiplied)
                copy_async(symm_peer(self.blocks, self.team.ranks[owner])[index, place], self.products[number, place], side)
                # The stream orders the signal behind the copy.
                write_value(slots.peer_flags[owner][piece, index], 1, side)
            with stream(next(turns)):
                self._multiply(piece, index, self.blocks[index, cuts.place(piece, index)])
                multiplied = current_stream().record_event()
            adding = third if piece < cuts.count - 1 else main
            if adding is third:
                # The stream waits, since a kernel that does would take room from the products.
                third.wait_event(multiplied)
                signal_batch([Wait(slots.flags[piece, peer], 1) for peer in receivers], third)
            else:
                # The last kernel waits, and would leave no room for one before it that has not run yet.
                for other in (second, third):
                    main.wait_event(other.record_event())
            with stream(adding):
                self.sums[piece].run()
            if then is not None:
                then(piece, adding)
        main.wait_event(side.record_event())  # until then the products must not be overwritten

    def _multiply(self, piece: int, owner: int, out: torch.Tensor) -> None:
        library.matmul(self.operands.a[self.cuts.rows_of(piece, owner)], self.operands.b, out, self.operands.scales)
