"""``nvshmem.bindings.nvshmem`` (also reached as ``nvshmem.bindings``): the C names on plain addresses that scripts use."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ..runtime import symmetric, world
from . import core, moves
from .core import my_pe, n_pes, team_my_pe, team_n_pes, team_translate_pe

__all__ = [
    "barrier_all_on_stream",
    "barrier_on_stream",
    "finalize",
    "free",
    "getmem_on_stream",
    "malloc",
    "my_pe",
    "n_pes",
    "ptr",
    "putmem_on_stream",
    "putmem_signal_on_stream",
    "signal_op_on_stream",
    "sync_all_on_stream",
    "team_my_pe",
    "team_n_pes",
    "team_translate_pe",
]

finalize = core.finalize

nvshmem = sys.modules[__name__]
"""``nvshmem.bindings.nvshmem`` is these names, too."""


def ptr(dest: int, pe: int) -> int:
    """The address of ``dest`` on ``pe``, or 0 where this rank can't load from it."""
    here = world.require_world("nvshmem.bindings.ptr")
    if moves.index(pe, "pe", "nvshmem.bindings.ptr") // here.local_world_size != here.node:
        return 0
    return moves.remote_address(dest, pe, "nvshmem.bindings.ptr")


def putmem_on_stream(dest: int, source: int, bytes: int, pe: int, cstrm: Any) -> None:
    """Copy ``bytes`` bytes at ``source`` to the place of ``dest`` on ``pe``."""
    moves.copy(moves.remote_address(dest, pe, "putmem_on_stream"), source, bytes, cstrm, "putmem_on_stream")


def getmem_on_stream(dest: int, source: int, bytes: int, pe: int, cstrm: Any) -> None:
    """Copy ``bytes`` bytes at the place of ``source`` on ``pe`` to ``dest``."""
    moves.copy(dest, moves.remote_address(source, pe, "getmem_on_stream"), bytes, cstrm, "getmem_on_stream")


def putmem_signal_on_stream(dest: int, source: int, bytes: int, sig_addr: int, signal: int, sig_op: int, pe: int, cstrm: Any) -> None:
    """``putmem_on_stream``, then ``signal_op_on_stream``."""
    what = "putmem_signal_on_stream"
    moves.check_signal(moves.SignalWord(moves.address_in(sig_addr, what), torch.int64), signal, sig_op, what)
    putmem_on_stream(dest, source, bytes, pe, cstrm)
    signal_op_on_stream(sig_addr, signal, sig_op, pe, cstrm)


def signal_op_on_stream(sig_addr: int, signal: int, sig_op: int, pe: int, cstrm: Any) -> None:
    """Set, or add to, the 64-bit word at the place of ``sig_addr`` on ``pe``."""
    word = moves.SignalWord(moves.address_in(sig_addr, "signal_op_on_stream"), torch.int64)
    moves.signal(word, pe, signal, sig_op, cstrm, "signal_op_on_stream")


def barrier_on_stream(team: int, stream: Any) -> None:
    """A barrier of a team."""
    core.barrier(team, stream)


def barrier_all_on_stream(stream: Any) -> None:
    """A barrier of all ranks."""
    core.barrier_all(stream)


sync_all_on_stream = barrier_all_on_stream


def malloc(size: int) -> int:
    """The address of ``size`` new symmetric bytes; every rank calls it. They live until ``free`` or the end of the world."""
    here = world.require_world("nvshmem.bindings.malloc")
    made = symmetric.symm_empty((size,), torch.uint8)
    here.workspaces.setdefault("nvshmem malloc", {})[made.data_ptr()] = made
    return made.data_ptr()


def free(ptr: int) -> None:
    """Free what ``malloc`` gave; every rank calls it."""
    made = world.require_world("nvshmem.bindings.free").workspaces.setdefault("nvshmem malloc", {})
    address = moves.address_in(ptr, "nvshmem.bindings.free")
    if address not in made:
        raise core.NvshmemInvalid(f"nvshmem.bindings.free({address:#x}): malloc did not give this address")
    symmetric.symm_free(made.pop(address))
