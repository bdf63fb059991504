"""``nvshmem.core``: memory, teams, puts, gets, signals and barriers of the host, by nvshmem4py's names and operand order.

Operations on a stream take effect in its order. ``stream``: a torch stream, a driver handle, or anything with ``__cuda_stream__``;
None is the current stream. Non-blocking forms are the same as the blocking ones here: both are stream operations.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import __version__
from ..errors import InvalidArgumentError, UnsupportedOperationError
from ..runtime import streams, symmetric, world
from ..runtime.foreign_streams import as_stream
from . import moves, teams
from .buffers import Buffer, buffer_of, pair, require_buffer, require_tensor, signal_word
from .collectives import alltoall, broadcast, fcollect, reduce, reducescatter
from .teams import TeamConfig, Teams

__all__ = [
    "Buffer",
    "ComparisonType",
    "InitStatus",
    "NvshmemError",
    "NvshmemInvalid",
    "SignalOp",
    "TeamConfig",
    "Teams",
    "UniqueID",
    "Version",
    "alltoall",
    "barrier",
    "barrier_all",
    "broadcast",
    "buffer",
    "bytetensor",
    "fcollect",
    "finalize",
    "free",
    "free_tensor",
    "get",
    "get_multicast_tensor",
    "get_nbi",
    "get_peer_buffer",
    "get_peer_tensor",
    "get_unique_id",
    "get_version",
    "init",
    "init_status",
    "my_pe",
    "n_pes",
    "put",
    "put_nbi",
    "put_signal",
    "put_signal_nbi",
    "quiet",
    "reduce",
    "reducescatter",
    "signal_op",
    "signal_wait",
    "sync",
    "sync_all",
    "team_destroy",
    "team_my_pe",
    "team_n_pes",
    "team_split_2d",
    "team_split_strided",
    "team_translate_pe",
    "tensor",
    "tensor_get_buffer",
]

NvshmemInvalid = InvalidArgumentError


class NvshmemError(RuntimeError):
    """For ``except`` clauses; this package raises its own errors."""


class SignalOp(enum.IntEnum):
    """What a signal does to its word."""

    SIGNAL_SET = moves.SIGNAL_SET
    SIGNAL_ADD = moves.SIGNAL_ADD


class ComparisonType(enum.IntEnum):
    """Conditions of a wait, with NVSHMEM's numbers."""

    CMP_EQ = 0
    CMP_NE = 1
    CMP_GT = 2
    CMP_LE = 3
    CMP_LT = 4
    CMP_GE = 5


class InitStatus(enum.IntEnum):
    """Whether symmetric memory is ready."""

    STATUS_NOT_INITIALIZED = 0
    STATUS_IS_INITIALIZED = 2


@dataclass(frozen=True)
class UniqueID:
    """What ranks pass around to find each other; here torch.distributed or the simulator has done that."""

    empty: bool = False


@dataclass(frozen=True)
class Version:
    """Versions as nvshmem4py names them."""

    openshmem_spec_version: str = "1.6"
    nvshmem4py_version: str = __version__
    libnvshmem_version: str = "triton_dist"


def get_unique_id(empty: bool = False) -> UniqueID:
    """An id for ``init``."""
    return UniqueID(empty)


def get_version() -> Version:
    """Who answers under the name of nvshmem."""
    return Version()


def init(
    device: Any = None,
    uid: Any = None,
    rank: int | None = None,
    nranks: int | None = None,
    mpi_comm: Any = None,
    initializer_method: str = "",
) -> None:
    """Make symmetric memory ready; every rank calls it. The world is the simulator's or torch.distributed's.

    rank, nranks: must be this world's where they are given. Raises InvalidArgumentError, NotInitializedError.
    """
    world.initialize()
    here = world.require_world("nvshmem.core.init")
    if nranks not in (None, here.world_size) or rank not in (None, here.rank):
        raise InvalidArgumentError(
            f"nvshmem.core.init(rank={rank}, nranks={nranks}), but this is rank {here.rank} of {here.world_size}; "
            "symmetric memory spans all ranks of the job"
        )
    here.shmem_initialized = True


def init_status() -> InitStatus:
    """Whether ``init`` was called."""
    here = world.current_world()
    return InitStatus.STATUS_IS_INITIALIZED if here is not None and here.shmem_initialized else InitStatus.STATUS_NOT_INITIALIZED


def finalize() -> None:
    """Wait for this rank's device work and leave symmetric memory. Every rank calls it; calling it again changes nothing."""
    here = world.require_world("nvshmem.core.finalize")
    here.synchronize(why="nvshmem.core.finalize()")
    here.shmem_initialized = False


def my_pe() -> int:
    """This rank."""
    return world.rank()


def n_pes() -> int:
    """Number of ranks."""
    return world.world_size()


def tensor(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, release: bool = False, morder: str = "C", except_on_del: bool = True
) -> torch.Tensor:
    """A symmetric tensor; contents unspecified. Every rank calls it with the same shape and dtype."""
    if morder != "C":
        raise UnsupportedOperationError(f"nvshmem.core.tensor: morder={morder!r}; only row-major tensors ('C') are made")
    return symmetric.symm_empty(shape, dtype)


def bytetensor(shape: Sequence[int], dtype: torch.dtype = torch.float32, **options: Any) -> torch.Tensor:
    """A symmetric tensor of the bytes that ``shape`` elements of ``dtype`` take."""
    if not isinstance(dtype, torch.dtype):
        raise InvalidArgumentError(f"nvshmem.core.bytetensor: dtype={dtype!r} must be a torch dtype such as torch.float32")
    elements = math.prod(symmetric.sizes_of("nvshmem.core.bytetensor", shape))
    return tensor((elements * dtype.itemsize,), torch.uint8, **options)


def free_tensor(tensor: torch.Tensor) -> None:
    """Free a symmetric tensor; every rank calls it."""
    symmetric.symm_free(require_tensor(tensor, "nvshmem.core.free_tensor"))


def get_peer_tensor(tensor: torch.Tensor, peer_pe: int | None = None) -> torch.Tensor:
    """The tensor in the memory of ``peer_pe``. Raises UnreachablePeerError for a rank of another node."""
    what = "nvshmem.core.get_peer_tensor"
    return symmetric.symm_peer(require_tensor(tensor, what), world.rank() if peer_pe is None else moves.index(peer_pe, "peer_pe", what))


def get_multicast_tensor(team: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Raises UnsupportedOperationError: there is no multicast memory."""
    raise UnsupportedOperationError(
        "nvshmem.core.get_multicast_tensor: there is no multicast memory here; ask is_nvshmem_multimem_supported()"
    )


def buffer(size: int, release: bool = False, except_on_del: bool = True) -> Buffer:
    """``size`` bytes of symmetric memory; every rank calls it."""
    return buffer_of(symmetric.symm_empty((size,), torch.uint8))


def free(buffer: Buffer) -> None:
    """Free what ``buffer`` made; every rank calls it."""
    symmetric.symm_free(require_buffer(buffer, "nvshmem.core.free").tensor)


def get_peer_buffer(buffer: Buffer, pe: int) -> Buffer:
    """The same bytes in the memory of ``pe``."""
    what = "nvshmem.core.get_peer_buffer"
    return buffer_of(symmetric.symm_peer(require_buffer(buffer, what).tensor, moves.index(pe, "pe", what)))


def tensor_get_buffer(tensor: torch.Tensor) -> tuple[Buffer, int, str]:
    """The bytes of a symmetric tensor, their number, and the dtype's name."""
    found = buffer_of(require_tensor(tensor, "nvshmem.core.tensor_get_buffer"))
    return found, found.size, str(tensor.dtype).removeprefix("torch.")


def put(dst: Any, src: Any, remote_pe: int = -1, stream: Any = None) -> None:
    """Copy ``src`` of this rank into the place of ``dst`` in ``remote_pe``'s memory, on any node. Both contiguous, of equal size."""
    target, source = pair(dst, src, "nvshmem.core.put")
    address = moves.remote_address(symmetric.address_of(target), remote_pe, "nvshmem.core.put")
    moves.copy(address, source.data_ptr(), target.numel() * target.element_size(), stream, "nvshmem.core.put", (target, source))


def get(dst: Any, src: Any, remote_pe: int = -1, stream: Any = None) -> None:
    """Copy the place of ``src`` in ``remote_pe``'s memory into ``dst`` of this rank. Both contiguous, of equal size."""
    target, source = pair(dst, src, "nvshmem.core.get")
    address = moves.remote_address(symmetric.address_of(source), remote_pe, "nvshmem.core.get")
    moves.copy(target.data_ptr(), address, target.numel() * target.element_size(), stream, "nvshmem.core.get", (target, source))


put_nbi, get_nbi = put, get


def put_signal(dst: Any, src: Any, signal_var: Any, signal_val: int, signal_op: int, remote_pe: int = -1, stream: Any = None) -> None:
    """``put``, then ``signal_op``: whoever sees the signal on ``remote_pe`` sees the data."""
    what = "nvshmem.core.put_signal"
    word = signal_word(signal_var, what)
    moves.check_signal(word, signal_val, signal_op, what)
    put(dst, src, remote_pe, stream)
    moves.signal(word, remote_pe, signal_val, signal_op, stream, what)


put_signal_nbi = put_signal


def signal_op(signal_var: Any, signal_val: int, signal_op: int, remote_pe: int = -1, stream: Any = None) -> None:
    """Set, or add to, the 64-bit signal word at the place of ``signal_var`` on ``remote_pe``."""
    what = "nvshmem.core.signal_op"
    moves.signal(signal_word(signal_var, what), remote_pe, signal_val, signal_op, stream, what)


def signal_wait(signal_var: Any, signal_val: int, signal_op: int, stream: Any = None) -> None:
    """Hold ``stream`` until this rank's signal word compares to ``signal_val``. signal_op: a ComparisonType."""
    what = "nvshmem.core.signal_wait"
    if signal_op not in tuple(ComparisonType):
        raise InvalidArgumentError(f"{what}: {signal_op!r} is not one of {[f'ComparisonType.{each.name}' for each in ComparisonType]}")
    streams.wait_value(signal_word(signal_var, what), signal_val, moves.COMPARISONS[signal_op], as_stream(stream, what))


def quiet(stream: Any = None) -> None:
    """Nothing to wait for: puts and signals of a stream are complete when the stream has come past them."""
    as_stream(stream, "nvshmem.core.quiet")


def barrier(team: int = Teams.TEAM_WORLD, stream: Any = None) -> None:
    """A barrier of a team on ``stream``: later work there sees what the members' streams did before it."""
    from ..ops.collectives.barrier import barrier as team_barrier
    from ..utils import nvshmem_barrier_all_on_stream

    members = teams.find(team, "nvshmem.core.barrier")
    if members.size == world.world_size():
        nvshmem_barrier_all_on_stream(stream)
        return
    with streams.stream(as_stream(stream, "nvshmem.core.barrier")):
        team_barrier(members)


def barrier_all(stream: Any = None) -> None:
    """A barrier of all ranks on ``stream``."""
    barrier(Teams.TEAM_WORLD, stream)


sync, sync_all = barrier, barrier_all


def team_my_pe(team: int) -> int:
    """This rank's place in a team; -1 if it is not a member."""
    ranks = teams.ranks_of_team(team, "team_my_pe") if teams.number_of(team, "team_my_pe") != teams.TEAM_INVALID else ()
    return ranks.index(world.rank()) if world.rank() in ranks else -1


def team_n_pes(team: int) -> int:
    """Number of ranks of a team; -1 for TEAM_INVALID."""
    return len(teams.ranks_of_team(team, "team_n_pes")) if teams.number_of(team, "team_n_pes") != teams.TEAM_INVALID else -1


def team_translate_pe(src_team: int, src_pe: int, dest_team: int) -> int:
    """The place in ``dest_team`` of the rank at ``src_pe`` in ``src_team``; -1 if it is not a member."""
    return teams.translate(src_team, src_pe, dest_team)


def team_split_strided(
    parent_team: int, start: int, stride: int, size: int, config: Any = None, config_mask: int = 0, new_team_name: str | None = None
) -> int:
    """A team of ``size`` ranks of the parent, from its place ``start`` on, every ``stride``-th. Every rank of the parent calls it."""
    parent = teams.ranks_of_team(parent_team, "team_split_strided")
    start, stride, size = (
        moves.index(value, name, "team_split_strided") for name, value in (("start", start), ("stride", stride), ("size", size))
    )
    places = [start + stride * number for number in range(size)]
    if size < 1 or min(places) < 0 or max(places) >= len(parent) or len(set(places)) != size:
        raise InvalidArgumentError(
            f"team_split_strided: start={start}, stride={stride}, size={size} does not name {size} ranks of a team of {len(parent)}"
        )
    return teams.new_team(tuple(parent[place] for place in places), "team_split_strided")


def team_split_2d(
    parent_team: int,
    xrange: int,
    xaxis_config: Any = None,
    xaxis_mask: int = 0,
    yaxis_config: Any = None,
    yaxis_mask: int = 0,
    new_team_name: str | None = None,
) -> tuple[int, int]:
    """This rank's row and column of the parent laid out in rows of ``xrange``. Every rank of the parent calls it."""
    parent = teams.ranks_of_team(parent_team, "team_split_2d")
    if not 1 <= moves.index(xrange, "xrange", "team_split_2d") <= len(parent):
        raise InvalidArgumentError(f"team_split_2d: xrange={xrange} must be 1 to {len(parent)}, the size of the parent team")
    row, column = divmod(parent.index(world.rank()), xrange)
    x_team = teams.new_team(parent[row * xrange : (row + 1) * xrange], "team_split_2d")
    return x_team, teams.new_team(parent[column::xrange], "team_split_2d")


def team_destroy(team: int) -> None:
    """Give a team that was split off back; every member calls it."""
    teams.destroy(team, "team_destroy")
