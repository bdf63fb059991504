"""What a launcher such as torchrun tells a process."""

from __future__ import annotations

import os
from datetime import timedelta

from ..errors import NotInitializedError

TIMEOUT = timedelta(minutes=5)
"""How long ranks wait for each other inside ``torch.distributed``."""


def launched() -> bool:
    """Whether a launcher has started this process as one of the ranks of a world."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def check_launcher() -> None:
    """Raise NotInitializedError unless the environment says how to meet the other ranks."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise NotInitializedError(
            f"initialize() finds no {', '.join(missing)} in the environment: start the script by torchrun, "
            "or call torch.distributed.init_process_group first"
        )
