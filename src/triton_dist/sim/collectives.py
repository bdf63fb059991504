"""What a collective moves between the ranks of a group, and the meeting of the ranks' calls.

Every collective is one of two patterns over *parts*. In an exchange rank ``i`` receives from ``j`` what ``j`` sends to ``i``
(all-gather, all-to-all, broadcast, gather, scatter, send/recv); in a reduction rank ``i`` receives the sum (or another operation)
over ``j`` of what each ``j`` sends to ``i`` (all-reduce, reduce, reduce-scatter). A coalesced call has several parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CollectiveMismatchError, InvalidArgumentError
from .cost_model import collective_ns
from .work import has_values

if TYPE_CHECKING:
    from .check.checker import RaceChecker
    from .machine import Machine

Tensor = torch.Tensor


@dataclass
class Part:
    """What one rank sends to and receives from each rank of the group; None where nothing moves.

    sends: one entry for each destination.
    receives: one entry for each source; for a reduction the single entry that gets the result (or None on a rank without one).
    """

    sends: Sequence[Tensor | None]
    receives: Sequence[Tensor | None]


@dataclass
class Call:
    """One rank's call of a collective. ``operation`` is None for an exchange, else the name of the reduction."""

    name: str
    parts: list[Part] = field(default_factory=list)
    operation: str | None = None
    root: int | None = None

    @property
    def key(self) -> tuple:
        """What must be the same on every rank, whatever the shapes."""
        return self.name, self.operation, self.root, len(self.parts)

    def describe(self) -> str:
        """The call as the user would write it: ``all_reduce(sum, float32[4])``."""
        facts = [] if self.operation is None else [self.operation.lower()]
        if self.root is not None:
            facts.append(f"root {self.root}")
        tensors = [tensor for part in self.parts for tensor in part.sends if tensor is not None]
        tensors = tensors or [tensor for part in self.parts for tensor in part.receives if tensor is not None]
        shown = list(dict.fromkeys(describe_tensor(tensor) for tensor in tensors))
        facts += shown[:4] + (["..."] if len(shown) > 4 else [])
        return f"{self.name}({', '.join(facts)})"


def describe_tensor(tensor: Tensor) -> str:
    """dtype and shape in short: ``float32[4, 8]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _matches(sent: Tensor, received: Tensor) -> bool:
    return sent.dtype == received.dtype and sent.numel() == received.numel()


def check_calls(calls: Sequence[Call], world_ranks: Sequence[int], where: str) -> None:
    """Raise CollectiveMismatchError, naming two ranks, unless the calls (one for each rank of the group) fit together."""
    for i, receiver in enumerate(calls):
        for j, sender in enumerate(calls):
            for mine, theirs in zip(receiver.parts, sender.parts, strict=True):
                into = mine.receives[0 if receiver.operation else j]
                sent = theirs.sends[i]
                # A root-only result: the other ranks of a reduction receive nothing, and that is right.
                if (sent is None and into is None) or (receiver.operation and into is None):
                    continue
                if sent is None or into is None or not _matches(sent, into):
                    raise CollectiveMismatchError(
                        f"{where}: rank {world_ranks[j]} called {sender.describe()} and sends "
                        f"{'nothing' if sent is None else describe_tensor(sent)} to rank {world_ranks[i]}, which called "
                        f"{receiver.describe()} and expects {'nothing' if into is None else describe_tensor(into)}; "
                        "give both the same dtype and number of elements"
                    )


def busiest_rank_bytes(calls: Sequence[Call]) -> float:
    """Bytes that the rank with the most to do sends or receives, by the algorithms of a library.

    What goes to every rank unchanged is sent once. An all-reduce is a reduce-scatter and an all-gather.
    """
    most = 0.0
    for rank, call in enumerate(calls):
        sent = received = 0.0
        for part in call.parts:
            outgoing = {id(tensor): tensor for peer, tensor in enumerate(part.sends) if tensor is not None and peer != rank}
            size = sum(tensor.numel() * tensor.element_size() for tensor in outgoing.values())
            if call.operation and len(outgoing) == 1 and len(calls) > 1:
                sent += size * (1 if call.root is not None else 2) * (len(calls) - 1) / len(calls)
                continue
            sent += size
            incoming = () if call.operation else part.receives
            received += sum(t.numel() * t.element_size() for peer, t in enumerate(incoming) if t is not None and peer != rank)
        most = max(most, sent, received)
    return most


@torch.no_grad()
def run_calls(calls: Sequence[Call], only_time: bool = False) -> None:
    """Move the data of one collective. All inputs are read before any output is written, so they may share memory.

    only_time: leave tensors whose values do not count then as they are.
    """
    values: list[tuple[Tensor, Tensor]] = []
    copies: dict[int, Tensor] = {}
    for number in range(len(calls[0].parts)):
        parts = [call.parts[number] for call in calls]
        for i, part in enumerate(parts):
            if calls[i].operation is not None:
                into = part.receives[0]
                if into is not None and (has_values(into) or not only_time):
                    inputs = [other.sends[i] for other in parts]
                    values.append((into, reduce_tensors([item for item in inputs if item is not None], str(calls[i].operation))))
                continue
            for j, into in enumerate(part.receives):
                sent = parts[j].sends[i]
                if into is not None and sent is not None and (has_values(into) or not only_time):
                    if id(sent) not in copies:
                        copies[id(sent)] = sent.clone()
                    values.append((into, copies[id(sent)]))
    for into, value in values:
        # detach: torch.distributed's outputs are written without autograd noticing.
        into.detach().copy_(value.reshape(into.shape))


_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def check_operation(operation: Any) -> str:
    """The name of a ``ReduceOp``, or InvalidArgumentError for one that the simulator does not know."""
    name = getattr(operation, "op", operation).name
    if name not in _REDUCTIONS:
        raise InvalidArgumentError(f"ReduceOp.{name} is not implemented in the simulator; use one of {sorted(_REDUCTIONS)}")
    return name


_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def reduce_tensors(tensors: Sequence[Tensor], operation: str) -> Tensor:
    """Combine tensors of equal dtype in rank order; floats narrower than 32 bits in float32, rounded once."""
    dtype = tensors[0].dtype
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    if dtype == torch.bool and operation in ("SUM", "PRODUCT", "AVG"):
        wide = torch.int32
    elif dtype in _UNSIGNED and (dtype != torch.uint64 or operation in ("SUM", "PRODUCT")):
        wide = torch.int64  # torch has no arithmetic for them; of 64 bits, sums and products have the same bits
    result = reduce(_REDUCTIONS[operation], [tensor.reshape(-1).to(wide) for tensor in tensors])
    if operation == "AVG":
        result = result / len(tensors) if wide.is_floating_point else result // len(tensors)
    return result.to(dtype)


class Meeting:
    """The point where the calls of one collective meet: complete once every rank of the group came and its stream is there."""

    def __init__(self, world_ranks: Sequence[int], where: str, machine: Machine | None = None) -> None:
        self.world_ranks = world_ranks
        self.where = where
        self.calls: dict[int, Call] = {}
        self.done = False
        self._machine = machine
        self._streams: list[Any] = []
        self._places: list[tuple[int, int]] = []
        self._called_at: list[Any] = []
        """Source lines, where the run is recorded."""
        self._arrived: list[Any] = []
        self.known: Any = None
        """What whoever waits for it comes after, for ``check``."""

    def arrive(self, group_rank: int, call: Call, stream_point: Any, stream: int = 0) -> None:
        """Add a rank's call. ``stream_point``: work of its stream after which the inputs are there, or None if they are now.

        stream: the stream's number; its clock goes on when the collective is done.

        Raises CollectiveMismatchError in the rank that comes with another collective than the first one.
        """
        for other_rank, other in self.calls.items():
            if other.key != call.key:
                raise CollectiveMismatchError(
                    f"{self.where}: rank {self.world_ranks[group_rank]} called {call.describe()} but rank "
                    f"{self.world_ranks[other_rank]} called {other.describe()}; all ranks of the group must call the same "
                    "collectives in the same order"
                )
            break
        self.calls[group_rank] = call
        if self._machine is not None and self._machine.races is not None:
            self._arrived.append(self._machine.races.arrival(self.world_ranks[group_rank], stream))
        self._places.append((self.world_ranks[group_rank], stream))
        if self._machine is not None and self._machine.recorder is not None:
            self._called_at.append(self._machine.recorder.called_at())
        if stream_point is not None:
            self._streams.append(stream_point)
        if len(self.calls) == len(self.world_ranks):
            check_calls(self._ordered(), self.world_ranks, self.where)

    def _ordered(self) -> list[Call]:
        return [self.calls[rank] for rank in range(len(self.world_ranks))]

    def progress(self) -> bool:
        """Move the data if everything is there. Returns whether the collective is done."""
        if not self.done and len(self.calls) == len(self.world_ranks) and all(point.done for point in self._streams):
            calls = self._ordered()
            if self._machine is not None:
                nanoseconds = collective_ns(self._machine.gpu.costs, busiest_rank_bytes(calls))
                self._machine.meet(self._places, nanoseconds)
                if self._machine.recorder is not None:
                    self._machine.recorder.collective(calls[0].name, self._places, self._called_at, nanoseconds)
                if self._machine.races is not None:
                    self._order(self._machine.races, calls)
            run_calls(calls, self._machine is not None and self._machine.timing)
            self.done = True
        return self.done

    def _order(self, races: RaceChecker, calls: list[Call]) -> None:
        """Tell the race check what the collective reads and writes, and behind what."""
        from .torch_accesses import accesses_of

        clocks = [*self._arrived, *(point.reached for point in self._streams if point.reached is not None)]
        tensors = [(part.sends, part.receives) for call in calls for part in call.parts]
        sent = [tensor for sends, _ in tensors for tensor in sends if tensor is not None]
        received = [tensor for _, receives in tensors for tensor in receives if tensor is not None]
        name = f"{calls[0].name} of ranks {list(self.world_ranks)}"
        self.known = races.met(tuple(self.world_ranks), name, clocks, accesses_of(sent, received))

    def missing(self) -> list[int]:
        """World ranks that have not called it yet."""
        return [world_rank for rank, world_rank in enumerate(self.world_ranks) if rank not in self.calls]
