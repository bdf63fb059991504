"""A producer on each rank fills tiles of a neighbour's buffer, a consumer computes on each tile as soon as its signal is there.

This is the smallest whole program with the primitives: ``symm_at`` to reach a peer's memory, ``notify`` to say that a tile is ready,
``wait`` and ``consume_token`` to use it. Run it on simulated ranks with ``python examples/01_producer_consumer.py``, or with one process
a rank, on GPUs or without any, by ``torchrun --nproc-per-node 4 examples/01_producer_consumer.py``.
"""

from __future__ import annotations

import os

import torch
import triton.language as tl

import triton_dist
import triton_dist.language as dl

TILES, TILE = 4, 64


@triton_dist.jit
def producer_kernel(buffer, signals, TILE: tl.constexpr):
    tile_id = tl.program_id(0)
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tile_id * TILE + tl.arange(0, TILE)
    remote = dl.symm_at(buffer, peer)
    tl.store(remote + offset, (dl.rank() * 100 + tile_id + tl.zeros((TILE,), tl.float32)))
    # One word a tile, set to 1; notify orders every store of this program before it.
    dl.notify(signals + tile_id, peer, signal=1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def consumer_kernel(buffer, signals, out, TILE: tl.constexpr):
    tile_id = tl.program_id(0)
    # A peer GPU writes the word and the data, so the scope is "sys".
    token = dl.wait(signals + tile_id, 1, "sys", "acquire", waitValue=1)
    ready = dl.consume_token(buffer, token)
    offset = tile_id * TILE + tl.arange(0, TILE)
    tl.store(out + offset, tl.load(ready + offset) * 2)


@triton_dist.jit
def printed_producer_kernel(buffer, signals, TILE: tl.constexpr):
    """As often printed: every tile signals word 0, with its own number as the value."""
    tile_id = tl.program_id(0)
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tile_id * TILE + tl.arange(0, TILE)
    tl.store(dl.symm_at(buffer, peer) + offset, tl.zeros((TILE,), tl.float32))
    dl.notify(signals, peer, signal=tile_id, sig_op="set")


@triton_dist.jit
def printed_consumer_kernel(buffer, signals, out, TILE: tl.constexpr):
    """As often printed: every tile waits for word ``tile_id`` to be 1, which nobody sets."""
    tile_id = tl.program_id(0)
    token = dl.wait(signals + tile_id, 1, "gpu", "acquire")
    ready = dl.consume_token(buffer, token)
    offset = tile_id * TILE + tl.arange(0, TILE)
    tl.store(out + offset, tl.load(ready + offset) * 2)


def run(producer=producer_kernel, consumer=consumer_kernel) -> torch.Tensor:
    """One rank's host function: launch both kernels and return what the consumer made."""
    buffer = triton_dist.symm_zeros((TILES * TILE,), torch.float32)
    signals = triton_dist.symm_zeros((TILES,), torch.int32)
    out = torch.zeros(TILES * TILE, device=triton_dist.device())
    producer[(TILES,)](buffer, signals, TILE)
    consumer[(TILES,)](buffer, signals, out, TILE)
    triton_dist.synchronize()
    return out


def expected(rank: int, world_size: int) -> torch.Tensor:
    """What rank ``rank`` has to get from the rank before it."""
    tiles = torch.arange(TILES, dtype=torch.float32).repeat_interleave(TILE)
    return 2 * ((rank - 1) % world_size * 100 + tiles)


def run_as_rank() -> None:
    """What torchrun starts: this process is one of the ranks."""
    triton_dist.initialize()
    rank, world_size = triton_dist.rank(), triton_dist.world_size()
    assert torch.equal(run().cpu(), expected(rank, world_size)), f"rank {rank} is wrong"
    print(f"rank {rank} of {world_size}: every tile arrived and was consumed")
    triton_dist.finalize()


def main() -> None:
    if "RANK" in os.environ:
        run_as_rank()
        return
    for rank, out in enumerate(triton_dist.simulate(run, world_size=4)):
        assert torch.equal(out, expected(rank, 4)), f"rank {rank} is wrong"
    print("4 ranks: every tile arrived and was consumed")
    try:
        triton_dist.simulate(run, world_size=2, args=(printed_producer_kernel, printed_consumer_kernel))
    except triton_dist.errors.DeadlockError as error:
        print(f"\nthe form that is often printed:\n{error}")


if __name__ == "__main__":
    main()
