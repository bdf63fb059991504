"""All scenarios, in the order in which they run."""

from __future__ import annotations

from tests.runtime.cuda.scenarios import adoption, allocation, attempts, joining, lifetime, teams

SCENARIOS = [scenario for module in (allocation, teams, lifetime, joining, adoption, attempts) for scenario in module.SCENARIOS]
