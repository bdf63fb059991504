"""Schedules: what ``simulate(schedule=...)`` and ``explore(schedules=...)`` take besides the names of ``SCHEDULES``."""

from .names import SCHEDULES
from .spec import Late, Pct, Replay, Schedule, find_schedule

__all__ = ["SCHEDULES", "Late", "Pct", "Replay", "Schedule", "find_schedule"]
