"""Names of the schedules that ``simulate`` and ``explore`` take."""

from __future__ import annotations

LOOPS = ("random", "round_robin", "straggler")
"""Schedules that the machine's own loop has."""

POLICIES = ("pct", "late")
"""Schedules that a policy chooses for a ``PolicyMachine``."""

SCHEDULES = (*LOOPS, *POLICIES)
