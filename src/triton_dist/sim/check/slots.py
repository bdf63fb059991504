"""The fine slots of clocks: which program or copy has which."""

from __future__ import annotations

from .actors import Actor, Launch
from .clocks import Clock, join_entries


class Slots:
    """The fine slots. Those of a finished launch go to the next launch of the same stream, whose programs come after all of them."""

    def __init__(self) -> None:
        self._owners: list[Actor | None] = []

    def take(self, launch: Launch) -> int:
        """A slot for a program of ``launch``."""
        stream = launch.stream
        if stream.free_slots:
            slot = stream.free_slots.pop()
        else:
            self._owners.append(stream)
            slot = len(self._owners) - 1
        launch.slots.append(slot)
        return slot

    def take_for_put(self, stream: Actor) -> tuple[int, int]:
        """A slot for a put of a program of this stream, and the time that it has come to. Puts may outlive their launch."""
        if stream.put_slots:
            return stream.put_slots.pop()
        self._owners.append(None)
        return len(self._owners) - 1, 1

    def pruned(self, clock: Clock) -> Clock:
        """``clock`` without what its coarse part says already: programs of launches that are known to have finished."""
        entries = clock.fine_items()
        owners = self._owners
        keep = tuple((slot, time) for slot, time in entries if (owner := owners[slot]) is None or time > owner.finished_at(clock))
        return clock if len(keep) == len(entries) else join_entries(Clock(clock.coarse, {}), keep)
