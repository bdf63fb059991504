# mypy: disable-error-code="override,assignment"
# (torch declares overloads of these methods; torch.distributed calls only the forms with lists and options.)
"""``torch.distributed`` among the simulated ranks: a process group whose waits give up the baton.

The groups of all ranks meet in one ``CollectiveEngine``. Collectives take effect in stream order: the inputs are read when the work
queued on the rank's current stream before the call has finished. They are host operations here: ``wait()`` blocks the host.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..errors import CollectiveMismatchError, InvalidArgumentError, UnsupportedOperationError
from .collectives import Call, Meeting, Part, Tensor, check_operation
from .context import RankContext
from .host_work import CoalescedWork, HostWork, rank_context
from .layouts import check_layouts
from .point_to_point import Message, Transfers
from .work import DeviceEvent, RecordEvent

if TYPE_CHECKING:
    from .machine import Machine


@dataclass(eq=False)
class _Group:
    """What the members of one group share."""

    name: str
    world_ranks: tuple[int, ...]
    transfers: Transfers
    meetings: dict[int, Meeting] = field(default_factory=dict)


class CollectiveEngine:
    """The groups of one simulation and their unfinished collectives."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine
        self._groups: dict[tuple, _Group] = {}
        self._created: dict[tuple[int, str], int] = {}
        self._pending: list[Meeting] = []

    def group(self, name: str, world_ranks: tuple[int, ...], rank: int) -> _Group:
        """The group that ``rank`` creates under ``name``: the same object for all members' n-th group of that name.

        Raises CollectiveMismatchError if another rank created it with other, overlapping members.
        """
        generation = self._created[rank, name] = self._created.get((rank, name), 0) + 1
        for other_name, other_generation, ranks in self._groups:
            if (other_name, other_generation) == (name, generation) and ranks != world_ranks and set(ranks) & set(world_ranks):
                raise CollectiveMismatchError(
                    f"rank {rank} creates group {name!r} of ranks {list(world_ranks)}, but rank {ranks[0]} created it of ranks "
                    f"{list(ranks)}; all ranks must call new_group with the same lists in the same order"
                )
        key = (name, generation, world_ranks)
        if key not in self._groups:
            where = f"group {name!r} of ranks {list(world_ranks)}"
            self._groups[key] = _Group(name, world_ranks, Transfers(world_ranks, where, self._machine))
        return self._groups[key]

    def arrive(self, group: _Group, sequence: int, group_rank: int, call: Call, stream_point: Any, stream: int = 0) -> Meeting:
        """Add one rank's ``sequence``-th collective of ``group``."""
        if sequence not in group.meetings:
            where = f"collective {sequence} of group {group.name!r} (ranks {list(group.world_ranks)})"
            group.meetings[sequence] = Meeting(group.world_ranks, where, self._machine)
        meeting = group.meetings[sequence]
        meeting.arrive(group_rank, call, stream_point, stream)
        if not meeting.missing():
            del group.meetings[sequence]
            self._pending.append(meeting)
        return meeting

    def progress(self) -> None:
        """Move the data of every collective and transfer for which everything is there."""
        if self._pending:
            self._pending = [meeting for meeting in self._pending if not meeting.progress()]
        for group in self._groups.values():
            group.transfers.progress()


class SimProcessGroup(dist.ProcessGroup):
    """One rank's handle of a group. Its methods are what ``torch.distributed`` calls; tensors are checked by ``torch.distributed``."""

    def __init__(self, engine: CollectiveEngine, group: _Group, group_rank: int, backend: str) -> None:
        super().__init__(group_rank, len(group.world_ranks))  # type: ignore[call-arg]
        self._engine = engine
        self._group = group
        self._rank = group_rank
        self._size = len(group.world_ranks)
        self._backend = backend
        self._sequence = 0
        self._coalesced: list[HostWork] | None = None

    def __repr__(self) -> str:
        return f"SimProcessGroup({self._group.name!r}, rank {self._rank} of ranks {list(self._group.world_ranks)})"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return self._backend

    def getBackendName(self) -> str:
        # Not "gloo" or "nccl": for those C++ code reaches for the backend's own class. dist.get_backend() still says those.
        return "simulated"

    @property
    def group_name(self) -> str:
        return self._group.name

    @property
    def pg_name(self) -> str:
        return self._group.name

    def shutdown(self) -> None:
        """Nothing is held that has to be given back."""

    abort = shutdown

    def _set_sequence_number_for_group(self) -> None:
        """Sequence numbers start at 0 without being asked."""

    def allreduce(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._reduction("all_reduce", [Part([t] * self._size, [t]) for t in _listed(tensors)], opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> HostWork:
        return self._reduction("all_reduce_coalesced", [Part([t] * self._size, [t]) for t in _listed(tensors)], opts)

    def reduce(self, tensors: Any, opts: Any) -> HostWork:
        root = self._member(opts.rootRank, "reduce")
        parts = [Part(self._only(root, t), [t if self._rank == root else None]) for t in _listed(tensors)]
        return self._reduction("reduce", parts, opts, root=root)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        inputs = [inputs] if isinstance(inputs[0], torch.Tensor) else inputs
        parts = [Part(list(sent), [into]) for into, sent in zip(_listed(outputs), inputs, strict=True)]
        return self._reduction("reduce_scatter", parts, opts)

    def reduce_scatter_single(self, output: Tensor, sent: Tensor, opts: Any = None) -> HostWork:
        return self._reduction("reduce_scatter_tensor", [Part(self._chunks(sent), [output])], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> HostWork:
        parts = [Part(self._chunks(sent), [into]) for into, sent in zip(outputs, inputs, strict=True)]
        return self._reduction("reduce_scatter_tensor_coalesced", parts, opts)

    def broadcast(self, tensors: Any, opts: Any) -> HostWork:
        root = self._member(opts.rootRank, "broadcast")
        nothing: list[Tensor | None] = [None] * self._size
        parts = [
            Part([t] * self._size, self._only(root, t)) if self._rank == root else Part(nothing, self._only(root, t))
            for t in _listed(tensors)
        ]
        return self._call(Call("broadcast", parts, root=root))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> HostWork:
        outputs = [outputs] if isinstance(outputs[0], torch.Tensor) else outputs
        return self._call(Call("all_gather", [Part([t] * self._size, into) for into, t in zip(outputs, _listed(inputs), strict=True)]))

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> HostWork:
        # Here the outputs are one list for each rank, not one for each input.
        parts = [Part([t] * self._size, [row[number] for row in outputs]) for number, t in enumerate(inputs)]
        return self._call(Call("all_gather_coalesced", parts))

    def all_gather_single(self, output: Tensor, sent: Tensor, opts: Any = None) -> HostWork:
        return self._call(Call("all_gather_into_tensor", [Part([sent] * self._size, self._chunks(output))]))

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> HostWork:
        parts = [Part([t] * self._size, self._chunks(into)) for into, t in zip(outputs, inputs, strict=True)]
        return self._call(Call("all_gather_into_tensor_coalesced", parts))

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> HostWork:
        return self._call(Call("all_to_all", [Part(inputs, outputs)]))

    def all_to_all_single(self, output: Tensor, sent: Tensor, output_splits: Any, input_splits: Any, opts: Any = None) -> HostWork:
        part = Part(self._split(sent, input_splits, "input"), self._split(output, output_splits, "output"))
        return self._call(Call("all_to_all_single", [part]))

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> HostWork:
        root = self._member(opts.rootRank, "gather")
        receives = outputs[0] if self._rank == root else [None] * self._size
        return self._call(Call("gather", [Part(self._only(root, _listed(inputs)[0]), receives)], root=root))

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> HostWork:
        root = self._member(opts.rootRank, "scatter")
        sends = inputs[0] if self._rank == root else [None] * self._size
        return self._call(Call("scatter", [Part(sends, self._only(root, _listed(outputs)[0]))], root=root))

    def barrier(self, opts: Any = None) -> HostWork:
        return self._call(Call("barrier"))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier; a rank that never comes is named by the deadlock report, so there is no timeout."""
        self._call(Call("monitored_barrier")).wait()

    def send(self, tensors: list[Tensor], destination: int, tag: int = 0) -> HostWork:
        rank = rank_context("send")
        tensor = tensors[0]
        peer = self._group.world_ranks[self._member(destination, "send")]
        if self._backend == "gloo":
            # gloo's send returns once the data is on its way, whether or not anyone receives; NCCL's waits for the receiver.
            rank.synchronize(rank.stream, "send")
            message = Message(tensor.clone(), self._rank, destination, tag, None)
        else:
            message = Message(tensor, self._rank, destination, tag, _stream_point(rank))
        message.arrived = _arrival(rank)
        self._group.transfers.post(message, is_send=True)
        done = (lambda: True) if self._backend == "gloo" else (lambda: message.done)
        what = f"send to rank {peer} (tag {tag}, group {self._group.name!r}): rank {peer} has not received"
        return self._made(HostWork(done, lambda: what, tensors))

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> HostWork:
        peer = self._group.world_ranks[self._member(source, "recv")]
        return self._receive(tensors, source, tag, f"rank {peer}")

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> HostWork:
        return self._receive(tensors, None, tag, "any rank")

    def _receive(self, tensors: list[Tensor], source: int | None, tag: int, sender: str) -> HostWork:
        rank = rank_context("recv")
        message = Message(tensors[0], source, self._rank, tag, _stream_point(rank))
        message.arrived = _arrival(rank)
        self._group.transfers.post(message, is_send=False)
        what = f"recv from {sender} (tag {tag}, group {self._group.name!r}): nothing was sent"
        source_rank = lambda: -1 if message.source is None else message.source  # noqa: E731
        return self._made(HostWork(lambda: message.done, lambda: what, tensors, source_rank, lambda: message.known))

    def _reduction(self, name: str, parts: list[Part], opts: Any, root: int | None = None) -> HostWork:
        operation = getattr(opts, "reduceOp", opts)
        return self._call(Call(name, parts, check_operation(operation if operation is not None else dist.ReduceOp.SUM), root))

    def _call(self, call: Call) -> HostWork:
        rank = rank_context(call.name)
        check_layouts(call, self._backend, rank)
        sequence, self._sequence = self._sequence, self._sequence + 1
        meeting = self._engine.arrive(self._group, sequence, self._rank, call, _stream_point(rank), rank.stream)
        contexts = rank.simulation.contexts

        def what() -> str:
            missing = ", ".join(f"rank {peer}{' (ended)' if contexts[peer].ended else ''}" for peer in meeting.missing())
            reason = f"{missing} has not called it" if missing else "the streams of the ranks are not there yet"
            return f"dist.{call.describe()}, {meeting.where}: {reason}"

        received = [t for part in call.parts for t in part.receives if t is not None]
        return self._made(HostWork(lambda: meeting.done, what, received, known=lambda: meeting.known))

    def _start_coalescing(self, device: Any) -> None:
        """What is called from now on is one call, whose waits are put off to its end; ``dist._coalescing_manager(device=...)`` calls it."""
        if self._coalesced is not None:
            raise InvalidArgumentError("dist._coalescing_manager inside another one of the same group; end that first")
        self._coalesced = []

    def _end_coalescing(self, device: Any) -> HostWork:
        if self._coalesced is None:
            raise InvalidArgumentError("_end_coalescing without _start_coalescing; use dist._coalescing_manager")
        works, self._coalesced = self._coalesced, None
        return CoalescedWork(works)

    def _made(self, work: HostWork) -> HostWork:
        if self._coalesced is not None:
            works = self._coalesced
            works.append(work)
            work.held = lambda: self._coalesced is works
        return work

    def _member(self, rank: int, name: str) -> int:
        """``rank`` of the group. Raises InvalidArgumentError if there is none of this number."""
        if not 0 <= rank < self._size:
            raise InvalidArgumentError(
                f"dist.{name}: there is no rank {rank} in group {self._group.name!r} of ranks {list(self._group.world_ranks)}; "
                f"give one from 0 to {self._size - 1}"
            )
        return rank

    def _only(self, root: int, tensor: Tensor) -> list[Tensor | None]:
        return [tensor if rank == root else None for rank in range(self._size)]

    def _chunks(self, tensor: Tensor) -> list[Tensor]:
        if not tensor.is_contiguous():
            raise InvalidArgumentError(
                f"a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} can't be split over the ranks; "
                "pass a contiguous tensor"
            )
        if tensor.numel() % self._size:
            raise InvalidArgumentError(
                f"a tensor of {tensor.numel()} elements (shape {list(tensor.shape)}) can't be split evenly over {self._size} ranks"
            )
        flat = tensor.view(-1)
        each = flat.numel() // self._size
        return [flat[rank * each : (rank + 1) * each] for rank in range(self._size)]

    def _split(self, tensor: Tensor, sizes: Any, side: str) -> list[Tensor]:
        check_layouts(Call("all_to_all_single", [Part([tensor], [])]), self._backend, rank_context("all_to_all_single"))
        rows = tensor.shape[0] if tensor.dim() else 0
        if not sizes:
            if rows % self._size:
                raise InvalidArgumentError(f"all_to_all_single: {rows} rows of {side} can't be split evenly over {self._size} ranks")
            sizes = [rows // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != rows:
            raise InvalidArgumentError(
                f"all_to_all_single: {side} split sizes {list(sizes)} must be {self._size} numbers that add up to the {rows} rows of {side}"
            )
        return list(tensor.split(list(sizes)))

    # The names that torch 2.11 uses for the same methods.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _arrival(rank: RankContext) -> Any:
    """What a rank has done up to now, where data races are looked for."""
    races = rank.machine.races
    return None if races is None else races.arrival(rank.rank, rank.stream)


def _stream_point(rank: RankContext) -> Any:
    """Work on the rank's current stream that is done when everything queued before it is; None if the stream is idle."""
    if rank.capture is not None and rank.capture.takes(rank.stream):
        raise UnsupportedOperationError(
            "torch.distributed was called while a CUDA graph captures the stream; the simulator can't put collectives into a graph: "
            "capture the kernels around it, or use triton_dist.ops"
        )
    if not rank.busy(rank.stream):
        return None
    return rank.submit(RecordEvent(DeviceEvent()))
