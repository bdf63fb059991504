"""Data races and misuse. ``simulate(fn, world_size, check="race")`` looks for the first, ``check="lint"`` for the second, "all" for both.

``RaceCheck`` and ``LintCheck`` are their options, ``Race`` is what ``errors.DataRaceError.races`` holds, and ``lints.Finding`` what
``errors.MisuseError.findings`` holds. docs/checks.md tells what orders and how to read a report, docs/lints what each code means.

For code of the simulator: ``machine.races`` is a ``checker.RaceChecker``, or None where nothing is checked, and ``program.race`` is a
program's actor, or None. It follows what orders for the lints, too; its ``lints`` are where they report, or
None. Whoever adds an access or something that orders calls, where ``race`` is not None,

- ``ops.memory.check_scalar``, ``_box`` or ``_addresses``, or ``descriptor.box``, which report by themselves; ``races.access`` for bytes
  that are accessed in another way; ``races.tile(..., lanes=...)`` for threads with an address each;
- ``races.word`` (or ``update``, ``notified``, ``waited``) for atomic accesses, with an ``order.Order``: what they order follows from it;
- ``program.race.block_barrier()``, ``.warp_barrier(warps)``, ``.fence(scope, thread)`` where threads of a block meet or fence;
- ``races.put_begins``, ``put_signals``, ``get_begins`` for a copy that a program starts, ``quiet`` and ``fence`` where it waits for such
  copies or orders them, ``arrives`` and ``meets`` around a barrier of several ranks' programs (``puts``);
- ``races.stream_accesses`` for work of a stream, and ``actor.publish()`` / ``actor.learn(clock)`` for anything else that orders.
"""

from __future__ import annotations

from .options import Check, LintCheck, RaceCheck
from .report import Race

__all__ = ["Check", "LintCheck", "Race", "RaceCheck"]
