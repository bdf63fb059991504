"""``AllGatherLayer`` as programs written for Triton-distributed call it; the work is done by ``triton_dist.ops.all_gather``."""

from __future__ import annotations

import torch

from ...errors import InvalidArgumentError
from ...ops import all_gather


class AllGatherLayer:
    """Gathers in place in a buffer in which every rank has filled its own part.

    nnodes, world_size, rank: of the world; all ranks have to be on one host. max_buffer_size: bytes of the largest buffer. stages: buffers
    that the caller takes in turn, buffer ``signal_target % stages`` for the next call; ``signal_target`` counts calls, from 1.
    The methods differ in name only: one kernel of all ranks serves all of them, in stream order of the current stream.
    """

    def __init__(self, nnodes: int, world_size: int, rank: int, max_buffer_size: int = 2 * 32 * 128 * 128, stages: int = 2) -> None:
        if nnodes != 1:
            raise InvalidArgumentError(f"AllGatherLayer: nnodes={nnodes}; all ranks have to be on one host")
        if not 0 <= rank < world_size:
            raise InvalidArgumentError(f"AllGatherLayer: rank={rank} of {world_size} ranks")
        self.nnodes, self.num_ranks, self.rank = nnodes, world_size, rank
        self.max_buffer_size, self.stages = max_buffer_size, stages
        self.signal_target = 1

    def forward_pull(self, symm_buffer: torch.Tensor) -> torch.Tensor:
        """Fill ``symm_buffer``, contiguous, with every rank's part, and return it. Own part ``[rank]`` of ``num_ranks`` is there already.

        Raises InvalidArgumentError for a buffer that has no equal parts, or more than ``max_buffer_size`` bytes.
        """
        nbytes = symm_buffer.numel() * symm_buffer.element_size()
        if not symm_buffer.is_contiguous() or symm_buffer.numel() % self.num_ranks or nbytes > self.max_buffer_size:
            raise InvalidArgumentError(
                f"AllGatherLayer: a buffer of {symm_buffer.numel()} elements, {nbytes} bytes; it has to be contiguous, "
                f"{self.num_ranks} equal parts, and at most {self.max_buffer_size} bytes"
            )
        flat = symm_buffer.view(-1)
        all_gather(flat.view(self.num_ranks, -1)[self.rank], out=flat)
        self.signal_target += 1
        return symm_buffer

    forward_push_2d = forward_push_3d = forward_push_3d_ll = forward_push_2d_ll = forward_push_2d_ll_multimem = forward_pull
    forward_push_numa_2d = forward_push_numa_2d_ll = forward_push_numa_2d_ll_multinode = forward_pull

    def finalize(self) -> None:
        """Nothing is held."""
