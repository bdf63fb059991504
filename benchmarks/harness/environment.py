"""What a result depends on besides the code: card, driver, versions."""

from __future__ import annotations

import datetime
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch
import triton

import triton_dist

from .machine import Machine

_ROOT = Path(__file__).parent.parent.parent


def describe(machine: Machine) -> dict[str, Any]:
    """Cards of all ranks, driver, versions, commit if known, date (UTC). Every rank calls it."""
    card = "simulated (dry run)" if machine.dry else torch.cuda.get_device_name(machine.device)
    cards = machine.gather(card)
    return {
        "cards": [f"{cards.count(name)} x {name}" for name in dict.fromkeys(cards)],
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
        "nccl": None if machine.dry else ".".join(map(str, torch.cuda.nccl.version())),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "triton_dist": triton_dist.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _commit() -> str | None:
    """The checkout's commit, with "+" if files differ from it; None outside a checkout."""
    commit = _first_line("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD")
    changed = commit and _first_line("git", "-C", str(_ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if changed else commit


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
