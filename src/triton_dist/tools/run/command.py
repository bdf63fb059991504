"""The command ``triton-dist run``: on simulated ranks, or, in a process that torchrun started, as that rank on its GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ...errors import InvalidArgumentError, NotInitializedError
from .options import Options

WRONG_USAGE = 2
"""Exit code for an option or a script that can't be run."""


def run(path: str, arguments: Sequence[str], **options: Any) -> int:
    """Run a script and return the exit code. options: as Options takes them."""
    try:
        if not started_by_torchrun():
            from . import simulated

            return simulated.run(path, arguments, Options(**options))
        from . import on_gpus

        if options.get("report") is not None:
            raise InvalidArgumentError("--report: only simulated ranks are recorded; leave it out on GPUs")
        script = on_gpus.prepare(path, arguments)
    except (InvalidArgumentError, NotInitializedError) as error:
        print(f"triton-dist run: {error}", file=sys.stderr)
        return WRONG_USAGE
    script.run()
    return 0


def started_by_torchrun() -> bool:
    """Whether this process is a rank of a job already."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ
