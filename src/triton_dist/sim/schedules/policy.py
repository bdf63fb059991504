"""What a policy is: it chooses what runs next, where the machine's own loop is not used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..pending import PendingCopies, PendingCopy

PATIENCE = 2000
"""Turns that one actor may take in a row before others have a turn, too: it may poll, with effects, for what they have to do."""

HOST_PATIENCE = 64
"""Steps of the machine that hosts which are ready may be kept waiting for."""


class Policy:
    """Chooses among programs and tasks (actors) that can run, and among hosts that are ready.

    The machine tells of each actor that has become able to run (``arrived``); ``next`` takes one of them out, and it comes back by
    ``stays`` if it can go on after its turn.
    pauses_hosts: whether a host function gives others the chance to run before it queues work.
    ready_hosts: ranks whose hosts could go on instead of the machine; empty where it has to go on.
    leaves: whether ``next`` has found nothing because one of these hosts goes on now.
    """

    pauses_hosts = False
    ready_hosts: Sequence[int] = ()
    leaves = False

    def arrived(self, actors: Sequence[Any]) -> None:
        """These can run now."""
        raise NotImplementedError

    def next(self) -> Any | None:
        """The actor that runs next, which leaves those that can run; None for none of them."""
        raise NotImplementedError

    def stays(self, actor: Any) -> None:
        """The one that was chosen last has had its turn and can go on."""
        raise NotImplementedError

    def actors(self) -> list[Any]:
        """All that can run."""
        raise NotImplementedError

    def host(self, ready: Sequence[int], idle: bool) -> int | None:
        """Which of the ranks whose hosts are ready goes on; None, unless the machine is ``idle``, to let the machine go on first."""
        raise NotImplementedError

    def lands(self, pending: PendingCopies) -> None:
        """Called before each turn while puts or gets are under way: some may land."""

    def order(self, copies: list[PendingCopy], pending: PendingCopies) -> None:
        """Put copies that land at once, which nothing orders, into an order."""
        pending.shuffle(copies)

    def forced(self, pending: PendingCopies) -> PendingCopy:
        """Which of the copies under way lands, since nothing else can move."""
        return pending.any_one()
