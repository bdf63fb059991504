"""Every function of ``libshmem_device`` between simulated hosts: the bodies of ``test_libshmem_device`` on two nodes of two ranks.

Between nodes no pointer leads from one rank to another, so what goes there goes by puts, gets, signals and barriers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.language.extra import test_libshmem_device as bodies
from tests.worlds.world import meet
from triton_dist.language.extra import libshmem_device as shmem
from triton_dist.language.extra.language_extra import __syncthreads, tid
from triton_dist.sim.simulate import simulate

RANKS = 4
on_two_nodes = functools.partial(simulate, num_nodes=2)

LEVELS = ("thread", "warp", "block")
CASES: dict[str, Callable[[], None]] = {
    **{
        f"{kind}, {level}, nbi {nbi}": functools.partial(
            bodies.test_puts_and_gets_of_any_size_and_place, on_two_nodes, RANKS, kind, nbi, level
        )
        for kind in ("put", "get")
        for level in LEVELS
        for nbi in (False, True)
    },
    **{
        f"signal, {level}, nbi {nbi}": functools.partial(
            bodies.test_a_signal_follows_its_data, on_two_nodes, RANKS, 10, torch.int64, nbi, level
        )
        for level in LEVELS
        for nbi in (False, True)
    },
    **{
        f"barriers, {level}, completes {completes}": functools.partial(
            bodies.test_barriers_of_all_ranks, on_two_nodes, RANKS, level, completes
        )
        for level in LEVELS
        for completes in (False, True)
    },
    **{
        f"barriers of teams, {level}": functools.partial(bodies.test_barriers_of_teams, on_two_nodes, RANKS, [[0, 2], [3, 1]], level, True)
        for level in LEVELS
    },
    **{
        f"{kind}, {level}, typed {typed}": functools.partial(bodies.test_collectives_of_all_ranks, on_two_nodes, RANKS, kind, level, typed)
        for kind in ("broadcast", "fcollect")
        for level in LEVELS
        for typed in (False, True)
    },
    "collectives of a team": functools.partial(bodies.test_collectives_of_teams, on_two_nodes, RANKS, [2, 0, 1], "fcollect"),
    "a peer for each thread, put": functools.partial(bodies.test_each_thread_has_its_own_peer, on_two_nodes, RANKS, False),
    "a peer for each thread, get": functools.partial(bodies.test_each_thread_has_its_own_peer, on_two_nodes, RANKS, True),
    "to and fro": functools.partial(bodies.test_signals_go_to_and_fro, functools.partial(simulate, num_nodes=3), 3),
    "conditions": functools.partial(bodies.test_every_condition_of_signal_wait_until, functools.partial(simulate, num_nodes=2), 2),
    "elements": functools.partial(bodies.test_ulong_put_signal_counts_elements, functools.partial(simulate, num_nodes=2), 2),
    "words": functools.partial(bodies.test_p_and_g, on_two_nodes, RANKS, torch.int32),
    "ring": functools.partial(bodies.test_a_ring_of_int_p, on_two_nodes, RANKS),
}


@pytest.mark.parametrize("case", CASES)
def test_between_nodes(case):
    CASES[case]()


def asks_about_nodes() -> list[int]:
    ranks = [3, 0, 1]
    out = bodies.asks_about_teams(ranks)
    meet()
    return out


def test_teams_of_a_node():
    """The team of a node, and the one of ranks that share memory, are two ranks each; a team may be spread over the nodes."""
    for rank, found in enumerate(simulate(asks_about_nodes, RANKS, num_nodes=2)):
        if rank != 2:
            assert found[:8] == [[3, 0, 1].index(rank), 3, rank, RANKS, 2, 2, -1, -1]
            assert found[8:12] == [3, 0, 1, -1]


@triton_dist.jit
def null_kernel(symmetric, out):
    if tid(0) < 4:
        dl.st(out + tid(0), (shmem.remote_ptr(symmetric, tid(0)).to(tl.int64) != 0).to(tl.int32))


def pointers() -> list[int]:
    symmetric = triton_dist.symm_zeros(16, torch.int32)
    out = torch.zeros(8, dtype=torch.int32, device=triton_dist.device())
    null_kernel[(1,)](symmetric, out)
    triton_dist.synchronize()
    return out.tolist()


def test_no_pointer_leads_to_another_node():
    assert simulate(pointers, RANKS, num_nodes=2) == [[int(rank // 2 == peer // 2) for peer in range(4)] + [0] * 4 for rank in range(RANKS)]


@triton_dist.jit
def fence_kernel(data, flag, out, COUNT: tl.constexpr):
    """A put that is late, the fence, and the word that says so, to the rank two places on: on another node."""
    peer = (shmem.my_pe() + 2) % shmem.n_pes()
    shmem.putmem_nbi_block(data + COUNT, data, COUNT * 4, peer)
    shmem.fence()
    if tid(0) == 0:
        shmem.int_p(flag, 1, peer)
        shmem.uint64_wait_until_equals(flag, 1)
    __syncthreads()
    tl.store(out + tl.arange(0, COUNT), tl.load(data + COUNT + tl.arange(0, COUNT)))


def fenced() -> list[int]:
    data, flag = triton_dist.symm_zeros(512, torch.int32), triton_dist.symm_zeros(2, torch.int32)
    data[:256] = triton_dist.rank() + 5
    out = torch.zeros(256, dtype=torch.int32, device=triton_dist.device())
    meet()
    fence_kernel[(1,)](data, flag.view(torch.int64), out, COUNT=256)
    meet()
    return out.unique().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_fence_orders_puts_to_another_node(seed):
    assert simulate(fenced, RANKS, num_nodes=2, seed=seed) == [[(rank + 2) % 4 + 5] for rank in range(RANKS)]


def test_no_function_is_left_out():
    """Each is one that the bodies use, or another name of such a one; typed ``p`` and ``g`` are forms of those."""
    used = {name for path in (bodies.__file__, __file__) for name in re.findall(r"\bshmem\.([a-z]\w*)", Path(path).read_text())}
    functions = {name for name in shmem.__all__ if name[0].islower()}
    same = {id(getattr(shmem, name)) for name in used & functions}
    others = {name for name in functions - used if id(getattr(shmem, name)) not in same and not re.fullmatch(r"\w+_[pg]", name)}
    assert others == {"set_rocshmem_ctx"}, "which takes a context of AMD's library and has nothing to do here"
