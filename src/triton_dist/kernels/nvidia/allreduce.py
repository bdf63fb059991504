"""``all_reduce`` as programs written for Triton-distributed call it; the work is done by ``triton_dist.ops.all_reduce``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...device_info import get_max_gpu_clock_rate_in_khz
from ...errors import InvalidArgumentError, UnsupportedOperationError
from ...ops import all_reduce as all_reduce_of_world
from ...script_helpers import sleep_async
from ..allreduce import AllReduceMethod

_FORMS = {
    AllReduceMethod.OneShot: "one_shot",
    AllReduceMethod.OneShot_TMA: "one_shot",
    AllReduceMethod.OneShot_Multimem: "one_shot",
    AllReduceMethod.TwoShot: "two_shot",
    AllReduceMethod.DoubleTree: "two_shot",
    AllReduceMethod.TwoShot_Multimem: "two_shot",
    AllReduceMethod.TwoShot_Multimem_ST: "two_shot",
}
"""By what each method is done here: neither TMA, nor multicast, nor trees are used, and the sums are the same."""


@dataclass
class AllReduceContext:
    """workspace_nbytes: bytes that a tensor has at most. The symmetric memory is the operator's own and grows when it has to."""

    workspace_nbytes: int
    rank: int
    world_size: int
    local_world_size: int

    def finalize(self) -> None:
        """Nothing is held."""


def create_allreduce_ctx(workspace_nbytes: int, rank: int, world_size: int, local_world_size: int) -> AllReduceContext:
    """A context for tensors of up to ``workspace_nbytes`` bytes. Raises InvalidArgumentError for ranks on several hosts."""
    if world_size != local_world_size:
        raise InvalidArgumentError(f"create_allreduce_ctx: {world_size} ranks, {local_world_size} of them here; all have to be on one host")
    return AllReduceContext(workspace_nbytes, rank, world_size, local_world_size)


def all_reduce(
    x: torch.Tensor,
    method: AllReduceMethod | None,
    ctx: AllReduceContext,
    output: torch.Tensor | None = None,
    max_sm: int = -1,
    straggler_option: tuple[int, int] | None = None,
) -> torch.Tensor:
    """The sum of all ranks' ``x``, in ``output`` (a new tensor if None), which is returned; all ranks call it alike.

    method: see ``AllReduceMethod``; None goes by the size. max_sm: accepted, and changes nothing: at most 128 programs run.
    straggler_option: (rank, cycles) of a rank that sleeps first.
    Raises UnsupportedOperationError for a method that is not there, InvalidArgumentError for a tensor that the context is too small for.
    """
    if method is not None and method not in _FORMS:
        raise UnsupportedOperationError(f"all_reduce: {method!r} is not there; use one of {[form.name for form in _FORMS]}")
    nbytes = x.numel() * x.element_size()
    if nbytes > ctx.workspace_nbytes:
        raise InvalidArgumentError(f"all_reduce: x has {nbytes} bytes, the context is for {ctx.workspace_nbytes}; make a larger one")
    if straggler_option is not None and straggler_option[0] == ctx.rank:
        sleep_async(straggler_option[1] / get_max_gpu_clock_rate_in_khz())
    return all_reduce_of_world(x, out=output, method="auto" if method is None else _FORMS[method])
