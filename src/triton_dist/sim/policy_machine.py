"""The machine whose order a policy chooses: priorities, everything late, or a schedule that was written down before."""

from __future__ import annotations

from typing import Any

from .machine import Machine
from .schedules.policy import Policy


class PolicyMachine(Machine):
    """A machine that asks ``policy`` before each turn. Slower than the machine's own loop."""

    policy: Policy
    order_of_its_own = True

    def __init__(self, world_size: int, policy: Policy, **options: Any) -> None:
        self.policy = policy
        super().__init__(world_size, **options)

    def _ready(self, actor: Any) -> None:
        actor.waiting = None
        self.policy.arrived([actor])

    def _wake(self, actors: list) -> None:
        for actor in actors:
            actor.waiting = None
        self.policy.arrived(actors)

    def _ready_actors(self) -> list:
        return self.policy.actors()

    def spinning(self) -> list:
        """Programs in loops that saw no change."""
        return self._spinning

    def try_spinning(self) -> bool:
        """Let programs that spin look again, if memory has changed since they all last looked."""
        return self._wake_spinning()

    def _batch(self) -> int:
        memory, policy, pending = self.memory, self.policy, self.pending
        finished = self.finished
        for turn in range(self.batch):
            if pending.entries:
                policy.lands(pending)
            actor = policy.next()
            if actor is None:
                if policy.leaves:
                    return turn
                # A copy that nothing orders lands after all else that could be first.
                if not self._wake_spinning() and (policy.ready_hosts or not pending.land_one()):
                    return turn
                continue
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
                policy.stays(actor)
            else:
                self._parks(actor, request, version)
        return self.batch
