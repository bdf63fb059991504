"""``python -m tests.runtime.cuda.scenarios 4 NAME...`` runs scenarios on that many ranks and prints what each rank says, as JSON."""

from __future__ import annotations

import json
import sys

from tests.runtime.cuda.fake_world import run_ranks
from tests.runtime.cuda.scenarios.all import SCENARIOS

if __name__ == "__main__":
    chosen = [scenario for scenario in SCENARIOS if not sys.argv[2:] or scenario.__name__ in sys.argv[2:]]
    print(json.dumps(run_ranks(chosen, int(sys.argv[1]))))
