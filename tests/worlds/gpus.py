"""Which of the machine's GPUs a test takes: workers of pytest that run side by side start at different ones."""

from __future__ import annotations

import os
import re

import torch


def visible() -> list[str]:
    """The GPUs that this process may use, first to last, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(number) for number in range(torch.cuda.device_count())] if named is None else [name for name in named.split(",") if name]


def first() -> str:
    """The value of CUDA_VISIBLE_DEVICES for ranks that share one GPU."""
    return (visible() or ["0"])[0]


def start_at_own(worker: str) -> None:
    """Let the GPUs of this process and its children begin with another one in each worker, ``gw0``, ``gw1``, ...; before any use of CUDA.

    Without it the first ranks of all worlds would fill the memory of one GPU.
    """
    gpus, number = visible(), re.search(r"\d+", worker)
    if gpus and number:
        turn = int(number.group()) % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[turn:] + gpus[:turn])
