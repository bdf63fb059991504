"""All scenarios, in the order in which they run."""

from __future__ import annotations

from tests.runtime.cuda.scenarios import adoption, allocation, attempts, joining, lifetime, lone, teams

SCENARIOS = [scenario for module in (allocation, teams, lifetime, joining, adoption, attempts, lone) for scenario in module.SCENARIOS]
