"""The words of the context page that the host writes when a world is made; ``context_layout`` says what they are."""

from __future__ import annotations

import torch

from . import context_layout


def first_words(
    rank: int, world_size: int, local_rank: int, local_world_size: int, wait_board: int = 0, shmem_words: int = 0
) -> torch.Tensor:
    """The page up to the table of teams, uint8, on the CPU. wait_board: address of the wait board for kernels, 0 for none.

    shmem_words: address of this process's words of the SHMEM barriers.
    """
    words = torch.zeros(context_layout.TEAM_TABLE // 4, dtype=torch.int32, device="cpu")
    for offset, value in (
        (context_layout.RANK, rank),
        (context_layout.NUM_RANKS, world_size),
        (context_layout.LOCAL_RANK, local_rank),
        (context_layout.LOCAL_NUM_RANKS, local_world_size),
    ):
        words[offset // 4] = value
    mask = words[context_layout.PEER_MASK // 4 : context_layout.PEER_MASK // 4 + 4].view(torch.uint8)
    for peer in range(world_size):
        mask[peer // 8] |= 1 << (peer % 8)
    pointer = words[context_layout.WAIT_BOARD // 4 : context_layout.WAIT_BOARD // 4 + 2].view(torch.int64)
    pointer[0] = wait_board
    words[context_layout.SHMEM_WORDS // 4 : context_layout.SHMEM_WORDS // 4 + 2].view(torch.int64)[0] = shmem_words
    words[context_layout.LAYOUT // 4 : context_layout.LAYOUT // 4 + 2].view(torch.int64)[0] = context_layout.LAYOUT_MARK
    return words.view(torch.uint8)
