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
    card = ("simulated (dry run)", machine.rank) if machine.dry else _card(machine.device)
    found = machine.gather(card)
    cards = [name for name, _ in set(found)]  # ranks may share one
    shared = f", shared by {len(found)} ranks" if len(cards) < len(found) else ""
    return {
        "cards": [f"{cards.count(name)} x {name}{shared}" for name in sorted(set(cards))],
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


def _card(device: torch.device) -> tuple[str, str]:
    """Its name, and which it is."""
    return torch.cuda.get_device_name(device), str(torch.cuda.get_device_properties(device).uuid)


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
