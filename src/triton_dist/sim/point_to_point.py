"""Send and receive between two ranks of a group: matching, and the transfer once both are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import CollectiveMismatchError
from .collectives import describe_tensor
from .torch_accesses import accesses_of

if TYPE_CHECKING:
    from .machine import Machine


@dataclass(eq=False)
class Message:
    """One side of a transfer. ``source`` is None in a receive from anyone; ranks are ranks of the group.

    stream_point: work of the rank's stream after which the tensor may be touched, or None.
    """

    tensor: torch.Tensor
    source: int | None
    destination: int
    tag: int
    stream_point: Any
    done: bool = False
    arrived: Any = None
    """What the rank had done when it came, for ``check``."""
    known: Any = None
    """What whoever waits for it comes after."""

    @property
    def ready(self) -> bool:
        return self.stream_point is None or self.stream_point.done


class Transfers:
    """The sends and receives of one group that have not been matched, and the matched ones that have not moved yet."""

    def __init__(self, world_ranks: Sequence[int], where: str, machine: Machine | None = None) -> None:
        self._machine = machine
        self.world_ranks = world_ranks
        self.where = where
        self._sends: list[Message] = []
        self._receives: list[Message] = []
        self._pairs: list[tuple[Message, Message]] = []

    def post(self, message: Message, *, is_send: bool) -> None:
        """Add one side; the oldest fitting message of the other side is its partner.

        Raises CollectiveMismatchError if the partner has another dtype or number of elements.
        """
        others = self._receives if is_send else self._sends
        for other in others:
            send, receive = (message, other) if is_send else (other, message)
            if send.destination == receive.destination and send.tag == receive.tag and receive.source in (None, send.source):
                others.remove(other)
                self._check(send, receive)
                receive.source = send.source
                self._pairs.append((send, receive))
                return
        (self._sends if is_send else self._receives).append(message)

    def _check(self, send: Message, receive: Message) -> None:
        if send.tensor.dtype != receive.tensor.dtype or send.tensor.numel() != receive.tensor.numel():
            raise CollectiveMismatchError(
                f"{self.where}: rank {self.world_ranks[send.source or 0]} sends {describe_tensor(send.tensor)} but rank "
                f"{self.world_ranks[send.destination]} receives into {describe_tensor(receive.tensor)}; "
                "give both the same dtype and number of elements"
            )

    def _order(self, send: Message, receive: Message) -> None:
        """Tell the race check what a transfer reads and writes, and behind what."""
        races = None if self._machine is None else self._machine.races
        if races is None:
            return
        points = [message.stream_point.reached for message in (send, receive) if message.stream_point is not None]
        clocks = [clock for clock in (send.arrived, receive.arrived, *points) if clock is not None]
        ranks = self.world_ranks[send.source or 0], self.world_ranks[send.destination]
        name = f"transfer from rank {ranks[0]} to rank {ranks[1]}"
        # gloo's send has copied the data already, and waits for nobody.
        sent = () if send.stream_point is None and send.arrived is None else (send.tensor,)
        receive.known = send.known = races.met((name, id(self)), name, clocks, accesses_of(sent, (receive.tensor,)))

    @torch.no_grad()
    def progress(self) -> None:
        """Move what both sides are ready for."""
        waiting = []
        for send, receive in self._pairs:
            if send.ready and receive.ready:
                self._order(send, receive)
                receive.tensor.detach().copy_(send.tensor.reshape(receive.tensor.shape))
                send.done = receive.done = True
            else:
                waiting.append((send, receive))
        self._pairs = waiting
