"""What is printed beside errors: by a thread that nobody waits for, or where the program can't hear of an error yet."""

from __future__ import annotations

import contextlib
import sys


def tell(text: str) -> None:
    """Print a message of this rank to standard error, whole: in one write, so that other ranks' lines don't end up inside.

    Does nothing where standard error is gone, or a signal handler came in the middle of another message; it is a help, and whoever prints
    it has something to raise.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        if sys.stderr is not None:
            sys.stderr.write(f"triton_dist: {text}\n")
            sys.stderr.flush()
