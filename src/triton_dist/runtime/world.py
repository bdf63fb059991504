"""Which rank this is, among how many: neutral names that mean the same on every kind of machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidArgumentError, NotInitializedError

if TYPE_CHECKING:
    from ..sim.context import RankContext


def require_world(what: str) -> RankContext:
    """The rank whose host function runs here. Raises NotInitializedError, naming ``what`` was called, if there is none."""
    context = current_world()
    if context is None:
        raise NotInitializedError(
            f"{what} needs a world of ranks: call it in a function that triton_dist.simulate(fn, world_size=...) runs"
        )
    return context


def current_world() -> RankContext | None:
    """The rank whose host function runs here, or None."""
    from ..sim import context

    return context.current()


def ranks_of_group(group: object, what: str) -> tuple[int, ...]:
    """World ranks of a ``torch.distributed`` group that this rank is in, in group order; None is all ranks.

    what: the function that asks, for the messages. Raises InvalidArgumentError, NotInitializedError.
    """
    context = require_world(what)
    if group is None:
        return tuple(range(context.world_size))
    import torch.distributed as dist

    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgumentError(f"{what}: group={group!r} must be a torch.distributed process group that this rank is in, or None")
    return tuple(dist.get_process_group_ranks(group))


def rank() -> int:
    """This process's rank in the world."""
    return require_world("rank()").rank


def world_size() -> int:
    """Number of ranks in the world."""
    return require_world("world_size()").world_size


def local_rank() -> int:
    """This process's rank among those of its node."""
    return require_world("local_rank()").local_rank


def local_world_size() -> int:
    """Number of ranks on each node."""
    return require_world("local_world_size()").local_world_size


def node() -> int:
    """Index of the node that this rank is on."""
    return require_world("node()").node


def num_nodes() -> int:
    """Number of nodes that the world is spread over."""
    return require_world("num_nodes()").num_nodes


def is_initialized() -> bool:
    """Whether there is a world here."""
    return current_world() is not None


def initialize() -> None:
    """Join the world. All ranks call it once, before any symmetric allocation; in the simulator ``simulate`` has done it."""
    require_world("initialize()")


def finalize() -> None:
    """Leave the world: waits until this rank's device work has finished."""
    require_world("finalize()").synchronize(why="finalize()")
