"""The SHMEM functions that concern teams: who is in one, and where its ranks meet, to be ordered or to exchange data.

A name without a suffix is called by one thread of each rank, ``_warp`` by one warp and ``_block`` by one block, of the whole grid. A team
is a constant (NVSHMEM_TEAM_WORLD, ...) or what ``triton_dist.team_number`` gives.
"""

from __future__ import annotations

import triton.language as tl

from triton_dist.primitives import lowering, shmem
from triton_dist.primitives.primitive_function import primitive


@primitive
def team_my_pe(team):
    """This rank's place in ``team``, int32; -1 if it is not in it. ``team`` is a constant or what ``triton_dist.team_number`` gives."""
    return lowering.emit("team_my_pe", team, function="team_my_pe", stamp="db5f5821986c02d5")


@primitive
def team_n_pes(team):
    """Number of ranks of ``team``, int32; -1 if this rank is not in it."""
    return lowering.emit("team_n_pes", team, function="team_n_pes", stamp="db5f5821986c02d5")


@primitive
def team_translate_pe(src_team, pe_in_src_team, dest_team):
    """The place in ``dest_team`` of the rank at a place of ``src_team``, int32; -1 if it has none. This rank is in both teams."""
    return lowering.emit("team_translate_pe", src_team, pe_in_src_team, dest_team, function="team_translate_pe", stamp="db5f5821986c02d5")


@primitive
def barrier_all():
    """Meets all ranks; called by one thread of each of them, of the whole grid. Everything that the ranks put and stored before is
    there afterwards.
    """
    lowering.emit("shmem_barrier", 0, level="thread", completes=1, function="barrier_all", stamp="db5f5821986c02d5")


@primitive
def barrier_all_warp():
    """Meets all ranks; called by one warp of each of them, of the whole grid. Everything that the ranks put and stored before is there
    afterwards.
    """
    lowering.emit("shmem_barrier", 0, level="warp", completes=1, function="barrier_all_warp", stamp="db5f5821986c02d5")


@primitive
def barrier_all_block():
    """Meets all ranks; called by one block of each of them, of the whole grid. Everything that the ranks put and stored before is
    there afterwards.
    """
    lowering.emit("shmem_barrier", 0, level="block", completes=1, function="barrier_all_block", stamp="db5f5821986c02d5")


@primitive
def barrier(team):
    """Meets the ranks of ``team``; called by one thread of each of them, of the whole grid. Everything that the ranks put and stored
    before is there afterwards.
    """
    lowering.emit("shmem_barrier", team, level="thread", completes=1, function="barrier", stamp="db5f5821986c02d5")


@primitive
def barrier_warp(team):
    """Meets the ranks of ``team``; called by one warp of each of them, of the whole grid. Everything that the ranks put and stored
    before is there afterwards.
    """
    lowering.emit("shmem_barrier", team, level="warp", completes=1, function="barrier_warp", stamp="db5f5821986c02d5")


@primitive
def barrier_block(team):
    """Meets the ranks of ``team``; called by one block of each of them, of the whole grid. Everything that the ranks put and stored
    before is there afterwards.
    """
    lowering.emit("shmem_barrier", team, level="block", completes=1, function="barrier_block", stamp="db5f5821986c02d5")


@primitive
def sync_all():
    """Meets all ranks; called by one thread of each of them, of the whole grid. Everything that the ranks stored before is there
    afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", 0, level="thread", completes=0, function="sync_all", stamp="db5f5821986c02d5")


@primitive
def sync_all_warp():
    """Meets all ranks; called by one warp of each of them, of the whole grid. Everything that the ranks stored before is there
    afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", 0, level="warp", completes=0, function="sync_all_warp", stamp="db5f5821986c02d5")


@primitive
def sync_all_block():
    """Meets all ranks; called by one block of each of them, of the whole grid. Everything that the ranks stored before is there
    afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", 0, level="block", completes=0, function="sync_all_block", stamp="db5f5821986c02d5")


@primitive
def team_sync(team):
    """Meets the ranks of ``team``; called by one thread of each of them, of the whole grid. Everything that the ranks stored before is
    there afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", team, level="thread", completes=0, function="team_sync", stamp="db5f5821986c02d5")


@primitive
def team_sync_warp(team):
    """Meets the ranks of ``team``; called by one warp of each of them, of the whole grid. Everything that the ranks stored before is
    there afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", team, level="warp", completes=0, function="team_sync_warp", stamp="db5f5821986c02d5")


@primitive
def team_sync_block(team):
    """Meets the ranks of ``team``; called by one block of each of them, of the whole grid. Everything that the ranks stored before is
    there afterwards; puts only after a ``quiet`` before it.
    """
    lowering.emit("shmem_barrier", team, level="block", completes=0, function="team_sync_block", stamp="db5f5821986c02d5")


@primitive
def broadcastmem(team, dest, source, nelems, pe_root):
    """Copies ``nelems`` bytes of the rank at place ``pe_root`` of ``team`` to ``dest`` on all its ranks; called by one thread of each
    of them. Meets them at its end.
    """
    lowering.emit("shmem_broadcast", team, dest, source, nelems, pe_root, level="thread", function="broadcastmem", stamp="db5f5821986c02d5")


@primitive
def broadcastmem_warp(team, dest, source, nelems, pe_root):
    """Copies ``nelems`` bytes of the rank at place ``pe_root`` of ``team`` to ``dest`` on all its ranks; called by one warp of each of
    them. Meets them at its end.
    """
    lowering.emit(
        "shmem_broadcast", team, dest, source, nelems, pe_root, level="warp", function="broadcastmem_warp", stamp="db5f5821986c02d5"
    )


@primitive
def broadcastmem_block(team, dest, source, nelems, pe_root):
    """Copies ``nelems`` bytes of the rank at place ``pe_root`` of ``team`` to ``dest`` on all its ranks; called by one block of each
    of them. Meets them at its end.
    """
    lowering.emit(
        "shmem_broadcast", team, dest, source, nelems, pe_root, level="block", function="broadcastmem_block", stamp="db5f5821986c02d5"
    )


@primitive
def broadcast(team, dest, source, nelems, pe_root):
    """``broadcastmem`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "broadcast")
    lowering.emit("shmem_broadcast", team, dest, source, size, pe_root, level="thread", function="broadcast", stamp="db5f5821986c02d5")


@primitive
def broadcast_warp(team, dest, source, nelems, pe_root):
    """``broadcastmem_warp`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "broadcast_warp")
    lowering.emit("shmem_broadcast", team, dest, source, size, pe_root, level="warp", function="broadcast_warp", stamp="db5f5821986c02d5")


@primitive
def broadcast_block(team, dest, source, nelems, pe_root):
    """``broadcastmem_block`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "broadcast_block")
    lowering.emit("shmem_broadcast", team, dest, source, size, pe_root, level="block", function="broadcast_block", stamp="db5f5821986c02d5")


@primitive
def fcollectmem(team, dest, source, nelems):
    """Puts the ``nelems`` bytes at ``source`` of each rank of ``team`` one behind the other, in team order, to ``dest`` on all of
    them; called by one thread of each. Meets them at its end.
    """
    lowering.emit("shmem_fcollect", team, dest, source, nelems, level="thread", function="fcollectmem", stamp="db5f5821986c02d5")


@primitive
def fcollectmem_warp(team, dest, source, nelems):
    """Puts the ``nelems`` bytes at ``source`` of each rank of ``team`` one behind the other, in team order, to ``dest`` on all of
    them; called by one warp of each. Meets them at its end.
    """
    lowering.emit("shmem_fcollect", team, dest, source, nelems, level="warp", function="fcollectmem_warp", stamp="db5f5821986c02d5")


@primitive
def fcollectmem_block(team, dest, source, nelems):
    """Puts the ``nelems`` bytes at ``source`` of each rank of ``team`` one behind the other, in team order, to ``dest`` on all of
    them; called by one block of each. Meets them at its end.
    """
    lowering.emit("shmem_fcollect", team, dest, source, nelems, level="block", function="fcollectmem_block", stamp="db5f5821986c02d5")


@primitive
def fcollect(team, dest, source, nelems):
    """``fcollectmem`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "fcollect")
    lowering.emit("shmem_fcollect", team, dest, source, size, level="thread", function="fcollect", stamp="db5f5821986c02d5")


@primitive
def fcollect_warp(team, dest, source, nelems):
    """``fcollectmem_warp`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "fcollect_warp")
    lowering.emit("shmem_fcollect", team, dest, source, size, level="warp", function="fcollect_warp", stamp="db5f5821986c02d5")


@primitive
def fcollect_block(team, dest, source, nelems):
    """``fcollectmem_block`` of ``nelems`` elements of the type that ``dest`` points to."""
    size = tl.cast(nelems, tl.int64) * shmem.element_bytes(dest, "fcollect_block")
    lowering.emit("shmem_fcollect", team, dest, source, size, level="block", function="fcollect_block", stamp="db5f5821986c02d5")
