"""Stands in for kernels: writes the records that they write to a wait board."""

from __future__ import annotations

import struct
import threading

from triton_dist.runtime import wait_layout as layout
from triton_dist.runtime.address_map import GUARD_BYTES, heap_base
from triton_dist.runtime.wait_board import WaitBoard

PTX = """
.visible .entry consumer_kernel(
    .loc 2 74 8 // functions.py:74:8 @[ kernels.py:12:4 ]
    // triton_dist wait 00000000000000ab 0
    .loc 2 74 8 // functions.py:74:8 @[ kernels.py:15:4 ]
    // triton_dist wait 00000000000000ab 1
.file 1 "/home/user/kernels.py"
.file 2 "/somewhere/triton_dist/primitives/functions.py"
"""
"""A kernel with two waits, as far as it matters here."""

KERNEL = 0xAB


def address_of(rank: int, offset: int) -> int:
    """Where byte ``offset`` of a rank's heap is."""
    return heap_base(rank) + GUARD_BYTES + offset


def write_record(board: WaitBoard, slot: int, stamp: int, *, number=0, program=(0, 0, 0), address=0, expected=1, seen=0, bits=32, cmp="eq"):
    """One record, stamped last."""
    mask = (1 << bits) - 1
    kind = bits | layout.COMPARISONS.index(cmp) << 8
    start = layout.RECORDS + slot * layout.RECORD_BYTES
    fields = (KERNEL, address, expected & mask, seen & mask, number, *program, 2000, 0, kind)
    board._memory[start : start + 60] = struct.pack("=4Q7I", *fields)
    board._memory[start + 60 : start + 64] = struct.pack("=I", stamp)


def time_out(board: WaitBoard, **record) -> None:
    """What a wait does that runs into its bound."""
    write_record(board, 0, layout.STAMP_TIMED_OUT, **record)
    board.abort = layout.TIMED_OUT


class WaitingKernels(threading.Thread):
    """Programs of one rank that wait until they are stopped: they answer requests, and end when they are aborted.

    records: arguments of ``write_record`` for each program.
    """

    def __init__(self, board: WaitBoard, records: list[dict]) -> None:
        super().__init__(daemon=True)
        self.board, self.records = board, records
        self.stopped = threading.Event()
        self.aborted = threading.Event()
        self.start()

    def run(self) -> None:
        told = 0
        while not self.stopped.wait(0.002):
            if self.board.abort:
                self.aborted.set()
                return
            request = self.board.request
            if request and request != told:
                for slot, record in enumerate(self.records):
                    write_record(self.board, slot, request, **record)
            told = request

    def stop(self) -> None:
        self.stopped.set()
        self.join()
