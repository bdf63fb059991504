"""A schedule that was written down: run on with the same one, but for the switches that it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .policy import PATIENCE, Policy
from .trace import START, NamedCopies, Switch, host_name, name_of

if TYPE_CHECKING:
    from ..pending import PendingCopies, PendingCopy
    from ..policy_machine import PolicyMachine


class Applied(NamedTuple):
    """A switch that changed what ran, and in words who stopped where and who went on where."""

    switch: Switch
    words: str


class ReplayPolicy(Policy):
    """Keeps running the same actor until it waits or ends, then a host that is ready, then the actor that has been able to run for longest.

    switches: exceptions from that; one that names what can't run at that moment has no effect.
    landing: copies that land before others when several land at once; the others follow in the order of issue. A copy that nothing
    orders lands when nothing else can move, unless a switch says so.
    applied: the switches that had an effect are appended to it.
    """

    machine: PolicyMachine

    def __init__(self, switches: Sequence[Switch], landing: Sequence[str], pauses_hosts: bool, applied: list[Applied]) -> None:
        self.pauses_hosts = pauses_hosts
        self._table = {(switch.name, switch.turns): switch for switch in switches}
        self._until: dict[str, int] = defaultdict(int)
        for switch in switches:
            self._until[switch.name] = max(self._until[switch.name], switch.turns)
        self._landing = {name: place for place, name in enumerate(landing)}
        self._applied = applied
        self._able: dict[str, Any] = {}
        """What can run, by name, in the order in which it became able to; what runs on is among them."""
        self._turns: dict[str, int] = defaultdict(int)
        self._last = START
        """What moved last; with its number of turns, the key of the next switch."""
        self._last_actor: Any = None
        """The actor that moved last, hosts and copies apart."""
        self._current: str | None = None
        """The actor that runs on."""
        self._run = 0

    def arrived(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._able[name_of(actor)] = actor

    def actors(self) -> list[Any]:
        return list(self._able.values())

    def stays(self, actor: Any) -> None:
        self._current = name_of(actor)
        self._able[self._current] = actor

    def _wanted(self) -> Switch | None:
        return self._table.get((self._last, self._turns[self._last]))

    def next(self) -> Any | None:
        self.leaves = False
        switch = self._wanted()
        if switch is not None:
            if switch.to in {host_name(rank) for rank in self.ready_hosts}:
                self.leaves = True
                return None
            self._table.pop((switch.name, switch.turns))
            if switch.to not in self._able and any(name_of(actor) == switch.to for actor in self.machine.spinning()):
                self.machine.try_spinning()
            if switch.to in self._able:
                if switch.to != self._current and (self._current or self.ready_hosts or switch.to != next(iter(self._able))):
                    self._note(switch, self._describe(self._able[switch.to]))
                return self._start(switch.to)
            if self._land(switch):
                return self.next()
        if self._run > PATIENCE and self._current is not None and self._turns[self._current] >= self._until[self._current]:
            self._able[self._current] = self._able.pop(self._current)  # behind all others
            self._current = None
        if self._current is not None:
            return self._start(self._current)
        if self.ready_hosts:
            self.leaves = True
            return None
        return self._start(next(iter(self._able))) if self._able else None

    def _start(self, name: str) -> Any:
        actor = self._able.pop(name)
        self._run = self._run + 1 if name == self._last else 0
        self._current = None
        self._last_actor = actor
        self._moved(name)
        return actor

    def _moved(self, name: str) -> None:
        self._last = name
        self._turns[name] += 1

    def _land(self, switch: Switch) -> bool:
        pending = self.machine.pending
        assert isinstance(pending, NamedCopies)
        copy = next((copy for copy, name in pending.names.items() if name == switch.to), None)
        if copy is None:
            return False
        self._note(switch, f"put or get {switch.to.partition('#')[2]} of {copy.program.describe()} lands")
        pending.land(copy)
        self._moved(switch.to)
        return True

    def host(self, ready: Sequence[int], idle: bool) -> int | None:
        names = {host_name(rank): rank for rank in ready}
        default = self._last if self._last in names else next(iter(names))
        switch = self._wanted()
        if switch is not None and switch.to in names:
            self._table.pop((switch.name, switch.turns))
            if self._current is not None or switch.to != default:
                self._note(switch, f"rank {names[switch.to]}, host")
            return self._choose_host(switch.to, names)
        if not idle and (self._current is not None or switch is not None):
            return None
        return self._choose_host(default, names)

    def _choose_host(self, name: str, names: dict[str, int]) -> int:
        self._moved(name)
        return names[name]

    def order(self, copies: list[PendingCopy], pending: PendingCopies) -> None:
        assert isinstance(pending, NamedCopies)
        behind = len(self._landing)
        copies.sort(key=lambda copy: self._landing.get(pending.names.get(copy, ""), behind))

    def forced(self, pending: PendingCopies) -> PendingCopy:
        copy = pending.entries[0]
        assert isinstance(pending, NamedCopies)
        self._moved(pending.names[copy])
        return copy

    def _describe(self, actor: Any) -> str:
        line = actor.line()
        return actor.describe() + (f" at {line}" if line else "")

    def _note(self, switch: Switch, to: str) -> None:
        last = self._last_actor
        if switch.name == START:
            stops = "at the start"
        elif switch.name.startswith("h"):
            stops = f"rank {switch.name[1:]}, host, stops"
        elif "#" in switch.name:
            stops = f"after put or get {switch.name}"
        elif self._current is not None:
            stops = f"{self._describe(last)} is preempted"
        elif last.generator.gi_frame is None:
            stops = f"{last.describe()} has ended"
        else:
            stops = f"{self._describe(last)} waits"
        self._applied.append(Applied(switch, f"{stops}; {to} goes on" if not to.endswith("lands") else f"{stops}; {to}"))
