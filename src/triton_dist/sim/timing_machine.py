"""The machine of ``simulate(execute="timing")``: kernels run for their time only, in the order of the simulated clock.

Signals, integers and control flow are real; floating-point tiles are not loaded, computed or stored. Since what runs next is always
what is furthest behind, programs and copies can compete for what they share: a rank's memory, its links in both directions, its caches.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Any

from ..runtime.address_map import rank_of
from .cost_model import OperatorTime
from .machine import _BATCH, Machine
from .memory import Allocation
from .program import Program
from .work import Copy

_SLOT_NS = 1000.0
"""Resolution with which time on something shared is given away."""


class Server:
    """Something of a limited rate that is shared: time on it is given away in slots, first come, first served.

    Who asks late for an early time still gets what nobody took: programs ask in the order in which they are run, and between two waits
    of one program lies time that others use.
    """

    __slots__ = ("rate", "room", "_left", "_next")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.room = rate * _SLOT_NS
        self._left: dict[int, float] = {}
        self._next: dict[int, int] = {}
        """For a full slot one behind it that may have room."""

    def serve(self, begin: float, amount: float) -> float:
        """When ``amount`` that is asked for at ``begin`` is done."""
        left, room = self._left, self.room
        end = begin + amount / self.rate
        slot = int(begin / _SLOT_NS)
        while True:
            slot = self._with_room(slot)
            free = left.get(slot, room)
            if amount < free:
                left[slot] = free - amount
                return max(end, slot * _SLOT_NS + (room - free + amount) / self.rate)
            amount -= free
            left[slot] = 0.0
            self._next[slot] = slot + 1
            if amount <= 0.0:
                return max(end, (slot + 1) * _SLOT_NS)

    def _with_room(self, slot: int) -> int:
        """The first slot from this one on that is not full."""
        following = self._next
        passed = []
        while slot in following:
            passed.append(slot)
            slot = following[slot]
        for full in passed[:-1]:
            following[full] = slot
        return slot


class Cache:
    """Which of a rank's tiles are in its L2 cache, by the address of a tile's first byte.

    A tile is there while whoever brought it still uses it, since programs that share tiles go on together, and later until as many
    other bytes as the cache holds have come from memory. A tensor that fits into the cache comes from memory once in that time.
    """

    __slots__ = ("size", "brought", "tiles", "tensors")

    def __init__(self, size: int) -> None:
        self.size = size
        self.brought = 0.0
        self.tiles: dict[int, tuple[float, float]] = {}
        self.tensors: dict[int, tuple[float, float]] = {}

    def missing(self, address: int, nbytes: float, time: float, tensor: Allocation) -> float:
        """Bytes of a tile of ``tensor`` that have to come from memory at ``time``. The caller calls ``used`` when it is through."""
        known = self.tiles.get(address)
        if known is not None and (time < known[1] or self.brought - known[0] <= self.size):
            return 0.0
        if tensor.hi - tensor.lo <= self.size:
            came, when = self.tensors.get(tensor.lo, (0.0, 0.0))
            came = came if self.brought - when <= self.size else 0.0
            nbytes = min(nbytes, tensor.hi - tensor.lo - came)
            self.tensors[tensor.lo] = (came + nbytes, self.brought + nbytes)
        self.brought += nbytes
        self.tiles[address] = (self.brought, time)
        return nbytes

    def used(self, address: int, until: float) -> None:
        """A tile was in use until then."""
        known = self.tiles[address]
        self.tiles[address] = (self.brought, max(until, known[1]))


class SharedResources:
    """What everything that runs on one rank's GPU shares.

    outgoing, incoming: the links. compute: the SMs as torch operators use them.
    """

    __slots__ = ("memory", "outgoing", "incoming", "compute", "cache")

    def __init__(self, machine: Machine) -> None:
        costs = machine.gpu.costs
        self.memory = Server(costs.hbm)
        self.outgoing = Server(costs.link)
        self.incoming = Server(costs.link)
        self.compute = Server(1.0)
        self.cache = Cache(costs.l2_bytes)


class TimingProgram(Program):
    """A program whose tiles only take time.

    scale: how often the code that runs now stands for itself: the product of the rounds of the loops of which one round is run.
    """

    __slots__ = ("scale", "shared", "from_memory", "link_ns", "rounds_ns", "round_ns", "received", "sent", "tiles", "loading", "storing")

    def __init__(self, *arguments: Any) -> None:
        self.scale = 1
        self.from_memory = self.link_ns = self.rounds_ns = self.round_ns = 0.0
        self.received: dict[int, float] = {}
        self.sent: dict[int, float] = {}
        self.tiles: list[int] = []
        self.loading = self.storing = False
        super().__init__(*arguments)
        self.shared: SharedResources = self.machine.shared[self.rank]  # type: ignore[attr-defined]

    def read(self, address: int, nbytes: float, allocation: Allocation) -> None:
        """Begin to load a tile."""
        nbytes *= self.scale
        self.storing = False
        owner = allocation.rank
        if owner is not None and owner != self.rank:
            self.memory_ns = self.memory_ns or 1.0  # who looks there whether to settle sees that something has begun
            self.link_ns += nbytes * self.rates.remote_ns_per_byte
            self.received[owner] = self.received.get(owner, 0.0) + nbytes
            self.round_ns = self.rates.remote_ns
            return
        self.loading = True
        self.round_ns = max(self.round_ns, self.rates.local_ns)
        self.memory_ns += nbytes * self.rates.l2_ns_per_byte
        self.from_memory += self.shared.cache.missing(address, nbytes, self.clock, allocation)
        self.tiles.append(address)

    def end_round(self) -> None:
        """The end of a loop's body that is not pipelined: what it loaded has arrived before the next round loads."""
        self.rounds_ns += self.scale * self.round_ns
        self.round_ns = 0.0

    def write(self, address: int, nbytes: float, allocation: Allocation) -> None:
        """Store a tile: outside of a loop that is run once for all its rounds, when everything before it is done."""
        nbytes *= self.scale
        if self.scale == 1:
            self.settle()
        if not self.storing:
            self.storing = True
            self.clock += self.machine.gpu.costs.tile_store_ns
        owner = allocation.rank
        if owner is not None and owner != self.rank:
            self.memory_ns = self.memory_ns or 1.0  # who looks there whether to settle sees that something has begun
            self.link_ns += nbytes * self.rates.remote_ns_per_byte
            self.sent[owner] = self.sent.get(owner, 0.0) + nbytes
        else:
            self.memory_ns += nbytes * self.rates.l2_ns_per_byte
            self.from_memory += nbytes
            self.shared.cache.missing(address, nbytes, self.clock, allocation)
            self.tiles.append(address)
        if self.scale == 1:
            self.settle()

    def settle(self) -> None:
        begin, end = self.clock, self.clock + max(self.memory_ns, self.matrix_ns, self.rounds_ns)
        self.memory_ns = self.matrix_ns = self.rounds_ns = self.round_ns = 0.0
        if self.from_memory:
            end = max(end, self.shared.memory.serve(begin, self.from_memory))
            self.from_memory = 0.0
        if self.received or self.sent:
            end = max(end, begin + self.link_ns, self._over_the_links(begin)) + self.rates.remote_ns
            self.link_ns = 0.0
        if self.loading:
            end += self.machine.gpu.costs.tile_load_ns
            self.loading = False
        self.clock = end
        if self.tiles:
            for address in self.tiles:
                self.shared.cache.used(address, end)
            self.tiles.clear()

    def _over_the_links(self, begin: float) -> float:
        """When what was read from peers and stored to them has passed."""
        ranks: list[SharedResources] = self.machine.shared  # type: ignore[attr-defined]
        end = begin
        for peer, nbytes in self.received.items():
            end = max(end, ranks[peer].outgoing.serve(begin, nbytes), self.shared.incoming.serve(begin, nbytes))
        for peer, nbytes in self.sent.items():
            end = max(end, self.shared.outgoing.serve(begin, nbytes), ranks[peer].incoming.serve(begin, nbytes))
        self.received.clear()
        self.sent.clear()
        return end


class TimingMachine(Machine):
    """A machine on which the actor that is furthest behind runs next. Seeds change only the order of the hosts."""

    program_class = TimingProgram
    timing = True
    order_of_its_own = True

    def __init__(self, world_size: int, **options: Any) -> None:
        self._order: list[tuple[float, int, Any]] = []
        self._number = count()
        super().__init__(world_size, **options)
        self.shared = [SharedResources(self) for _ in range(world_size)]

    def _ready(self, actor: Any) -> None:
        actor.waiting = None
        heapq.heappush(self._order, (actor.clock, next(self._number), actor))

    def _wake(self, actors: list) -> None:
        for actor in actors:
            self._ready(actor)

    def _ready_actors(self) -> list:
        return [actor for _, _, actor in self._order]

    def copied(self, copy: Copy, begin: float, size: int) -> float:
        costs = self.gpu.costs
        source, destination = rank_of(copy.source), rank_of(copy.destination)
        source = copy.rank if source is None else source
        destination = copy.rank if destination is None else destination
        self.shared[source].memory.serve(begin, size)
        if source == destination:
            return max(begin + 2 * size / costs.hbm, self.shared[source].memory.serve(begin, size))
        self.shared[destination].memory.serve(begin, size)
        links = self.shared[source].outgoing.serve(begin, size), self.shared[destination].incoming.serve(begin, size)
        return max(begin + size / costs.copy_engine, *links)

    def computed(self, rank: int, begin: float, time: OperatorTime) -> float:
        # Operators of different streams share the SMs: one goes on where the other leaves some idle.
        return max(begin + time.alone, self.shared[rank].compute.serve(begin, time.busy))

    def _batch(self) -> int:
        memory, order = self.memory, self._order
        finished = self.finished
        for turn in range(_BATCH):
            if not order and not self._wake_spinning() and not self._part_threads():
                return turn
            actor = heapq.heappop(order)[2]
            version = memory.version
            try:
                request = next(actor.generator)
            except StopIteration:
                self._ended(actor)
                if self.finished != finished:
                    return turn + 1
                continue
            except Exception as error:
                raise self._located(error, actor) from None
            if request is None:
                heapq.heappush(order, (actor.clock, next(self._number), actor))
            else:
                self._parks(actor, request, version)
        return _BATCH
